package hlo

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/rowmajor"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// maxRanks bounds the ranks that groups list: a short text may list many.
const maxRanks = 1 << 16

// among says which ranks the instruction is among.
func (c *converter) among() ([]mlir.Named, error) {
	var out []mlir.Named
	if len(c.in.operands) == 0 {
		return nil, nil
	}
	if a, ok := get(c.in.attrs, "channel_id"); ok {
		n, err := c.numbers(a)
		if err != nil {
			return nil, err
		}
		if len(n) == 1 {
			out = append(out, mlir.Named{Name: "channel_id", Val: mlir.Number(a.start, n[0])})
		}
	}
	a, ok := get(c.in.attrs, "replica_groups")
	if !ok && !slices.Contains(collectives, c.in.opcode) {
		return out, nil
	}
	text := c.src.Text[a.start:a.end]
	l, known := c.lists[text] // those of one text are one list
	if !known {
		var rows [][]int64
		if ok {
			var err error
			if rows, err = c.groups(a); err != nil {
				return nil, err
			}
		}
		for _, r := range rows {
			l.ranks = max(l.ranks, slices.Max(append(r, -1))+1)
		}
		l.groups = mlir.Rows(max(a.start, c.in.at), rows)
		c.lists[text] = l
	}
	c.names(l.ranks)
	return append(out, mlir.Named{Name: "replica_groups", Val: l.groups}), nil
}

// list is a list of groups, and how many ranks there are for it to name them.
type list struct {
	groups mlir.Attr
	ranks  int64
}

// names notes how many there are of what the instruction is among, of which it names so many: all
// if it names none.
func (c *converter) names(n int64) {
	among := replicas
	switch {
	case c.text("use_global_device_ids") == "true":
		among = ranks
	case c.channel() && slices.Contains(betweenPartitions, c.in.opcode):
		among = partitions
	case n == 0 && c.channel():
		among = ranks
	}
	if n == 0 {
		n = c.everyone()
	}
	c.named[among] = max(c.named[among], n)
}

// What the numbers of a collective stand for: indices of named.
const (
	replicas = iota
	partitions
	ranks
)

// counted are the module's attributes that say how many replicas and partitions there are, by
// their names in HLO and in StableHLO.
var counted = [][2]string{{"replica_count", "mhlo.num_replicas"}, {"num_partitions", "mhlo.num_partitions"}}

// betweenPartitions are collectives that a channel makes those of the partitions of one replica.
// Others with a channel are of replicas with all of their partitions, or of ranks.
var betweenPartitions = []string{"all-to-all", "collective-permute", "collective-broadcast"}

// world says how many replicas and partitions there are where the text leaves it to whoever runs
// the module: as few as its collectives name.
func (c *converter) world() error {
	r, p := max(c.named[replicas], 1), max(c.named[partitions], 1)
	p = max(p, (c.named[ranks]+r-1)/r)
	if r > maxRanks || p > maxRanks/r {
		return c.errorf("more than %d ranks", maxRanks)
	}
	for i, key := range counted {
		if n := []int64{r, p}[i]; n > 1 {
			c.out.Attrs = append(c.out.Attrs, mlir.Named{Name: key[1], Val: mlir.Number(c.m.at, n)})
		}
	}
	return nil
}

// channel reports whether the instruction is among partitions.
func (c *converter) channel() bool {
	_, n, err := c.list("channel_id")
	return err == nil && len(n) == 1 && n[0] > 0
}

// collectives are instructions that are among all ranks where the text names none.
var collectives = []string{"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-broadcast"}

// everyone is how many ranks there are by the sizes of a collective of all of them, 0 if these
// do not tell.
func (c *converter) everyone() int64 {
	if len(c.in.operands) == 0 {
		return 0
	}
	from, to := c.by[c.in.operands[0]].shape, c.in.shape
	if to.many && len(to.tuple) > 0 {
		to = to.tuple[0]
	}
	if c.in.opcode == "reduce-scatter" {
		from, to = to, from
	}
	_, l, err := c.list("dimensions")
	if err != nil || len(l) != 1 || l[0] < 0 || l[0] >= int64(min(len(from.dims), len(to.dims))) || from.dims[l[0]] == 0 {
		return 0
	}
	return min(to.dims[l[0]]/from.dims[l[0]], maxRanks)
}

// groups reads {{0,1},{2,3}}, or [2,2]<=[4], or a mesh and its axes.
func (c *converter) groups(a attribute) ([][]int64, error) {
	p := c.scan(a)
	switch p.peek() {
	case '[':
		return p.iota()
	case 'm':
		return p.mesh()
	}
	var rows [][]int64
	p.expect("{", "before groups")
	total := 0
	for p.err == nil && !p.eat("}") {
		if len(rows) > 0 && !p.expect(",", "between groups") {
			break
		}
		rows = append(rows, p.list("{", "}"))
		if total += len(rows[len(rows)-1]); total > maxRanks {
			p.failf(a.start, "more than %d ranks", maxRanks)
		}
	}
	for _, r := range rows {
		if len(r) != len(rows[0]) && len(rows)*len(rows[0]) > maxRanks {
			p.failf(a.start, "more than %d ranks", maxRanks)
		}
	}
	return rows, p.err
}

// list reads whole numbers between brackets.
func (p *scanner) list(open, end string) []int64 {
	var out []int64
	p.expect(open, "before numbers")
	for p.err == nil && !p.eat(end) {
		if len(out) > 0 && !p.expect(",", "between numbers") {
			break
		}
		if out = append(out, p.integer("a number")); len(out) > maxRanks {
			p.failf(p.i, "more than %d numbers", maxRanks)
		}
	}
	return out
}

// ordered are 0, 1, ... as [sizes] with their dimensions in the order of T(...), flat.
func (p *scanner) ordered() []int64 {
	at := p.i
	sizes := p.list("[", "]")
	n := int64(1)
	for _, s := range sizes {
		if s < 1 || s > maxRanks || n > maxRanks/s {
			p.failf(at, "%v ranks", sizes)
			return nil
		}
		n *= s
	}
	order := make([]int64, len(sizes))
	for i := range order {
		order[i] = int64(i)
	}
	if p.eat("T") {
		at := p.i
		if order = p.list("(", ")"); !permutation(order, len(sizes)) && p.err == nil {
			p.failf(at, "%v is not an order of %d dimensions", order, len(sizes))
		}
	}
	if p.err != nil {
		return nil
	}
	return places(sizes, order)
}

// places are those in a mesh along some of its axes, the last of which varies fastest.
func places[D int | int64](sizes []int64, axes []D) []int64 {
	step, out := rowmajor.Strides(sizes), []int64{0}
	for _, d := range axes {
		var next []int64
		for _, at := range out {
			for k := range sizes[d] {
				next = append(next, at+k*step[d])
			}
		}
		out = next
	}
	return out
}

func permutation(l []int64, n int) bool {
	sorted := slices.Sorted(slices.Values(l))
	for i, d := range sorted {
		if d != int64(i) {
			return false
		}
	}
	return len(l) == n
}

// iota reads [groups,ranks]<=[sizes]T(order).
func (p *scanner) iota() ([][]int64, error) {
	at := p.i
	to := p.list("[", "]")
	if !p.expect("<=", "behind the sizes of groups") {
		return nil, p.err
	}
	flat := p.ordered()
	if p.err == nil && (len(to) != 2 || to[0] < 1 || to[1] < 1 || to[0] > maxRanks || to[1] > maxRanks || to[0]*to[1] != int64(len(flat))) {
		p.failf(at, "groups of sizes %v among %d ranks", to, len(flat))
	}
	if p.err != nil {
		return nil, p.err
	}
	return slices.Collect(slices.Chunk(flat, int(to[1]))), nil
}

// mesh reads mesh['x'=2,'y'=2], device_ids=([4]), {'x'}: the ranks along some of its axes.
func (p *scanner) mesh() ([][]int64, error) {
	p.word()
	var names []string
	var sizes []int64
	p.expect("[", "before the axes of a mesh")
	n := int64(1)
	for p.err == nil && !p.eat("]") {
		if len(names) > 0 && !p.expect(",", "between axes") {
			break
		}
		names = append(names, p.axis())
		p.expect("=", "behind an axis")
		at := p.i
		s := p.integer("the size of an axis")
		if s < 1 || s > maxRanks || n > maxRanks/s {
			p.failf(at, "an axis of %d", s)
			break
		}
		n *= s
		sizes = append(sizes, s)
	}
	devices := make([]int64, n)
	for i := range devices {
		devices[i] = int64(i)
	}
	p.eat(",")
	if at := p.i; p.peek() == 'd' {
		p.word()
		p.expect("=", "behind device_ids")
		p.expect("(", "before device_ids")
		if p.peek() == '[' {
			p.list("[", "]")
			p.expect("<=", "behind the sizes of device_ids")
			devices = p.ordered()
			p.expect(")", "behind device_ids")
		} else {
			devices = p.list("", ")")
		}
		if !permutation(devices, int(n)) && p.err == nil {
			p.failf(at, "device_ids are not the %d ranks of the mesh", n)
		}
		p.eat(",")
	}
	var along []int
	p.expect("{", "before axes")
	for first := true; p.err == nil && !p.eat("}"); first = false {
		if !first && !p.expect(",", "between axes") {
			break
		}
		at := p.i
		k := slices.Index(names, p.axis())
		if p.peek() == ':' {
			p.failf(at, "op not supported: groups along a part of an axis")
		} else if k < 0 || slices.Contains(along, k) {
			p.failf(at, "want axes of %v, each once", names)
		}
		along = append(along, k)
	}
	if p.err != nil {
		return nil, p.err
	}
	return meshGroups(sizes, along, devices), nil
}

// axis reads the name of an axis in quotes.
func (p *scanner) axis() string {
	p.space()
	if p.i >= len(p.s) || p.s[p.i] != '\'' && p.s[p.i] != '"' {
		p.failf(p.i, "expected the name of an axis, found %s", p.found())
		return ""
	}
	at := p.i
	if !p.quoted(p.s[p.i]) {
		return ""
	}
	return p.s[at+1 : p.i-1]
}

// meshGroups are the ranks along some axes, for each place on the others.
func meshGroups(sizes []int64, along []int, devices []int64) [][]int64 {
	var rest []int
	for i := range sizes {
		if !slices.Contains(along, i) {
			rest = append(rest, i)
		}
	}
	var out [][]int64
	for _, f := range places(sizes, rest) {
		var g []int64
		for _, a := range places(sizes, along) {
			g = append(g, devices[f+a])
		}
		out = append(out, g)
	}
	return out
}
