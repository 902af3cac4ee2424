package program

import (
	"flag"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// rng is splitmix64.
type rng uint64

func (g *rng) pick(n int) int {
	*g += 0x9e3779b97f4a7c15
	z := uint64(*g)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

// bytesOf lists the bytes of a tensor one element at a time.
func bytesOf(p *Program, t *Tensor) map[int64]bool {
	out := map[int64]bool{}
	size := int64(t.DType.Size())
	var walk func(d int, at int64)
	strides := t.SymbolicStrides()
	walk = func(d int, at int64) {
		if d == len(t.Shape) {
			for k := range size {
				out[at+k] = true
			}
			return
		}
		n, _ := p.Bound(t.Shape[d])
		stride, _ := p.Bound(strides[d])
		for i := range n {
			walk(d+1, at+i*stride*size)
		}
	}
	walk(0, p.Buffers[t.Buffer].Offset+t.Offset)
	return out
}

// randomTensor makes a tensor within a buffer of 4096 bytes.
func randomTensor(g *rng) Tensor {
	t := Tensor{DType: []dtype.DType{dtype.U8, dtype.F16, dtype.F32}[g.pick(3)]}
	t.Offset = int64(g.pick(40))
	stride := int64(1 + g.pick(3))
	for range g.pick(4) {
		n := int64(g.pick(4) + g.pick(2))
		t.Shape = append(t.Shape, dim.New(n))
		t.Strides = append(t.Strides, dim.New(stride))
		stride = max(stride*max(n, 1)+int64(g.pick(4))-int64(g.pick(2)), 0)
		if g.pick(8) == 0 {
			t.Strides[len(t.Strides)-1] = dim.New(0)
		}
	}
	slices.Reverse(t.Shape)
	slices.Reverse(t.Strides)
	if t.Strides == nil || g.pick(5) == 0 {
		t.Strides = nil
	}
	return t
}

// Windows agree with sets of bytes: exactly where they nest, and from above where
// they do not.
func TestWindows(t *testing.T) {
	p := &Program{Arena: 8192, Buffers: []Buffer{{Name: "b", Offset: 512, Size: 4096}}}
	g := rng(1)
	ragged, gaps := 0, 0
	for range 20000 {
		ts := []Tensor{randomTensor(&g), randomTensor(&g), randomTensor(&g)}
		var ws []window
		var sets []map[int64]bool
		for i := range ts {
			w, err := p.window(&ts[i])
			if err != nil {
				t.Fatal(err)
			}
			set := bytesOf(p, &ts[i])
			count := 0
			for x := w.lo; x < w.hi; x++ {
				lo, hi := w.next(x)
				if lo < x || lo < w.hi && hi <= lo {
					t.Fatalf("%v: next(%d) is %d, %d", w, x, lo, hi)
				}
				if in := lo == x; in != set[x] && !w.ragged {
					t.Fatalf("%+v: byte %d: %v, want %v (tensor %v)", w, x, in, set[x], ts[i])
				}
				if set[x] {
					count++
				}
			}
			if count != len(set) {
				t.Fatalf("%+v covers %d of %d bytes", w, count, len(set))
			}
			if w.ragged {
				ragged++
			} else if len(w.levels) > 0 {
				gaps++
			}
			ws, sets = append(ws, w), append(sets, set)
		}
		meet, miss, miss2 := false, false, false
		lo, hi := 512+int64(g.pick(60)), 512+int64(60+g.pick(100))
		for x := range sets[0] {
			meet = meet || sets[1][x]
			if x >= lo && x < hi {
				miss = miss || !sets[1][x] && !sets[2][x]
				miss2 = miss2 || sets[1][x] && !sets[2][x]
			}
		}
		exact := !ws[0].ragged && !ws[1].ragged && !ws[2].ragged
		if got := ws[0].overlaps(&ws[1]); got != meet && (exact || !got) {
			t.Fatalf("%+v and %+v overlap: %v", ws[0], ws[1], got)
		}
		if exact {
			if got := ws[0].misses(nil, lo, hi, []*window{&ws[1], &ws[2]}); got != miss {
				t.Fatalf("%+v less %+v and %+v in %d..%d misses: %v", ws[0], ws[1], ws[2], lo, hi, got)
			}
			if got := ws[0].misses(&ws[1], lo, hi, []*window{&ws[2]}); got != miss2 {
				t.Fatalf("%+v and %+v less %+v in %d..%d misses: %v", ws[0], ws[1], ws[2], lo, hi, got)
			}
		}
	}
	if ragged == 0 || gaps == 0 {
		t.Errorf("%d ragged windows, %d with gaps", ragged, gaps)
	}
}

// Windows of sizes whose products overflow are refused.
func TestWindowOverflow(t *testing.T) {
	p := &Program{Arena: 8192, Buffers: []Buffer{{Name: "b", Size: 4096}}}
	for _, x := range []Tensor{
		{DType: dtype.F32, Shape: []dim.Dim{dim.New(1 << 62), dim.New(1 << 62)}},
		{DType: dtype.F32, Shape: []dim.Dim{dim.New(2), dim.New(3)}, Strides: []dim.Dim{dim.New(1 << 62), dim.New(1)}},
		{DType: dtype.F32, Shape: []dim.Dim{dim.New(2)}, Strides: []dim.Dim{dim.New(-1)}},
		{DType: dtype.F32, Shape: []dim.Dim{dim.New(1 << 30)}},
		{DType: dtype.F32, Offset: 4090, Shape: []dim.Dim{dim.New(2)}},
	} {
		if w, err := p.window(&x); err == nil {
			t.Errorf("%v: %+v", x, w)
		}
	}
}

func TestBitTree(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 4096, 5000, 300000} {
		tree, set := newBitTree(n), make([]bool, n)
		g := rng(n)
		for range 2000 {
			i := g.pick(n)
			if set[i] = g.pick(3) > 0; set[i] {
				tree.set(i)
			} else {
				tree.clear(i)
			}
			j := g.pick(n)
			next, prev := -1, -1
			if k := slices.Index(set[j:], true); k >= 0 {
				next = j + k
			}
			for k := j; k >= 0 && prev < 0; k-- {
				if set[k] {
					prev = k
				}
			}
			got := tree.next(j)
			if got >= n {
				got = -1
			}
			if got != next || tree.prev(j) != prev || tree.has(j) != set[j] {
				t.Fatalf("%d of %d: next %d want %d, prev %d want %d", j, n, got, next, tree.prev(j), prev)
			}
		}
	}
}

// writtenBy lists what an instruction writes, by its text.
func writtenBy(in *Instr) []Tensor {
	text := in.Attrs.String()
	var out []Tensor
	if !strings.Contains(text, `"alias"`) {
		out = slices.Clone(in.Outs)
	}
	for k := range in.Ins {
		if strings.Contains(text, `"writes"`) && (!strings.Contains(text, "writes=[") || strings.Contains(text, fmt.Sprintf("writes=[%d", k)) || strings.Contains(text, fmt.Sprintf(", %d]", k))) {
			out = append(out, in.Ins[k])
		}
	}
	return out
}

// oracle decides by reachability over all instructions and by sets of bytes
// whether two accesses of instructions conflict without order. Inputs are plain.
func oracle(p *Program) bool {
	n := len(p.Instrs)
	words := (n + 63) / 64
	before := make([][]uint64, n) // by instruction: what has finished before it starts
	join := func(i, j int) {
		before[i][j/64] |= 1 << (j % 64)
		for k, w := range before[j] {
			before[i][k] |= w
		}
	}
	last := slices.Repeat([]int{-1}, len(p.Streams))
	rec := map[int]int{}
	type touch struct {
		instr int
		write bool
		bytes map[int64]bool
	}
	var touches []touch
	for i := range p.Instrs {
		in := &p.Instrs[i]
		before[i] = make([]uint64, words)
		if j := last[in.Stream]; j >= 0 {
			join(i, j)
		}
		last[in.Stream] = i
		switch in.Kind {
		case Record:
			rec[in.Event] = i
		case Wait:
			join(i, rec[in.Event])
		}
		for k := range in.Ins {
			touches = append(touches, touch{i, false, bytesOf(p, &in.Ins[k])})
		}
		for _, t := range writtenBy(in) {
			touches = append(touches, touch{i, true, bytesOf(p, &t)})
		}
	}
	for a := range touches {
		for b := range touches[:a] {
			x, y := &touches[a], &touches[b]
			if x.instr == y.instr || !x.write && !y.write || bits.OnesCount64(before[x.instr][y.instr/64]>>(y.instr%64)&1) > 0 {
				continue
			}
			for k := range x.bytes {
				if y.bytes[k] {
					return true
				}
			}
		}
	}
	return false
}

// randomCall makes a launch a call, with some of all effects.
func randomCall(g *rng, in *Instr) {
	in.Op = "call"
	var effects []string
	if g.pick(2) == 0 {
		effects = append(effects, "writes")
		if n := len(in.Ins); n > 0 && g.pick(2) == 0 {
			which := []int64{int64(g.pick(n))}
			if g.pick(2) == 0 && which[0] != int64(n-1) {
				which = append(which, int64(n-1))
			}
			in.Attrs = in.Attrs.With("writes", attr.Ints(which...))
		}
	}
	if len(in.Ins) > 0 && g.pick(3) == 0 {
		effects = append(effects, "alias")
		in.Outs = slices.Clone(in.Ins[:1])
	}
	in.Attrs = in.Attrs.With("effects", attr.Strings(effects...)).With("target", attr.String("t"))
}

// rounds is how many programs the checker is compared with the oracle on.
var rounds = flag.Int("rounds", 3000, "random programs to compare the checker with all pairs on")

// On small random programs with windows of all kinds and calls of all effects, the
// checker finds an unordered pair exactly where comparing all pairs does.
func TestCheckAgainstOracle(t *testing.T) {
	g := rng(7)
	found, clean := 0, 0
	for round := range *rounds {
		p := &Program{Name: "random", World: 1, Arena: 8192, Events: 3, Buffers: []Buffer{{"a", 0, 256}, {"b", 512, 256}},
			Groups: []Group{{"g", [][]int{{0}}}}, Streams: []Stream{{"compute", -1}, {"s", 0}, {"t", 0}}[:2+g.pick(2)]}
		fired := make([]bool, p.Events)
		for range 4 + g.pick(14) {
			in := Instr{Stream: g.pick(len(p.Streams)), Event: -1, Group: -1}
			switch g.pick(5) {
			case 0:
				in.Kind, in.Event = Record, g.pick(p.Events)
				fired[in.Event] = true
			case 1:
				in.Kind, in.Event = Wait, g.pick(p.Events)
				if !fired[in.Event] {
					continue
				}
			default:
				in.Kind, in.Op = Launch, "op"
				for _, list := range []*[]Tensor{&in.Ins, &in.Outs} {
					if x := randomTensor(&g); g.pick(3) > 0 {
						x.Buffer = g.pick(2)
						if w, err := p.window(&x); err == nil && !w.ragged {
							*list = append(*list, x)
						}
					}
				}
				if len(in.Ins) > 0 && g.pick(3) == 0 {
					if x := randomTensor(&g); g.pick(2) == 0 {
						if w, err := p.window(&x); err == nil && !w.ragged {
							in.Ins = append(in.Ins, x)
						}
					}
				}
				if g.pick(3) == 0 {
					randomCall(&g, &in)
				}
			}
			p.Instrs = append(p.Instrs, in)
		}
		r, err := CheckWith(p, CheckOptions{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == Unordered })
		want := oracle(p)
		if got != want {
			t.Fatalf("round %d: unordered %v, want %v\n%s\n%s", round, got, want, p, r)
		}
		if want {
			found++
		} else {
			clean++
		}
	}
	t.Logf("%d programs with a race and %d without, all told apart", found, clean)
	if found < 100 || clean < 100 {
		t.Errorf("%d programs with a race, %d without: the test says little", found, clean)
	}
}

// A wait that lost its record is explained, though Validate refuses the program.
func TestUnrecorded(t *testing.T) {
	p, err := Parse("step.prog", step)
	if err != nil {
		t.Fatal(err)
	}
	p.Instrs = append(p.Instrs[1:], p.Instrs[0]) // the record of event 0 comes last
	r, err := CheckWith(p, CheckOptions{})
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Kind != Unrecorded || r.Findings[0].Second.Index != len(p.Instrs)-1 {
		t.Fatalf("%v %+v", err, r)
	}
	if s := r.String(); !strings.Contains(s, "waits for event 0, which nothing before it records") || !strings.Contains(s, "move the record at 6 before the wait") {
		t.Error(s)
	}
}

// A malformed program is an error, not a finding.
func TestCheckMalformed(t *testing.T) {
	p, err := Parse("step.prog", step)
	if err != nil {
		t.Fatal(err)
	}
	p.Instrs[2].Ins[0].Strides = []dim.Dim{dim.New(1)}
	if _, err := CheckWith(p, CheckOptions{}); err == nil || !strings.Contains(err.Error(), "2 dimensions and 1 strides") {
		t.Error(err)
	}
}

// Findings beyond the limit are counted.
func TestCheckLimit(t *testing.T) {
	p := &Program{Name: "many", World: 1, Arena: 512, Streams: []Stream{{"compute", -1}}, Buffers: []Buffer{{"a", 0, 64}}}
	for range 5 {
		p.Instrs = append(p.Instrs, Instr{Kind: Launch, Op: "relu", Event: -1, Group: -1, Ins: []Tensor{{DType: dtype.F32, Shape: []dim.Dim{dim.New(4)}}}})
	}
	r, err := CheckWith(p, CheckOptions{Limit: 2})
	if err != nil || len(r.Findings) != 2 || r.More != 3 || !strings.Contains(r.String(), "3 more findings") {
		t.Errorf("%v %+v", err, r)
	}
}
