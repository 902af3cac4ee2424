package gomlx

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gomlx/compute"
)

// GoMLX says which inputs are donated when it runs a computation, and never to which results.
// So a result is given the place of the parameter of its type that is nearest in the text: few
// operations are between a variable and its new value. Where the guess is wrong, results are
// copied that need not be; numbers are never wrong, since no input loses what it holds before
// all have read it, and whoever has a result that the next run overwrites gets it saved.

// reach bounds the operations between a parameter and a result that takes its place.
const reach = 10

// named are the numbers of the values that a text names: 12 of %v12 and of %v12#1.
func (n *builder) named(text string) (out []int) {
	for {
		_, after, ok := strings.Cut(text, "%v")
		if !ok {
			return out
		}
		id, k := 0, 0
		for ; k < len(after) && '0' <= after[k] && after[k] <= '9'; k++ {
			id = 10*id + int(after[k]-'0')
		}
		if 0 < id && id <= len(n.sites.of) {
			out = append(out, id)
		}
		text = after[k:]
	}
}

// pair is a result that may take the place of a parameter.
type pair struct{ distance, result, param int }

// donate finds for results the parameters whose place they take. GoMLX asks for new values of
// variables as for a computation's own results: one that cannot be cut so lies as its variable.
func (n *builder) donate() error {
	f := n.main
	f.alias = make([]int, len(f.params))
	search := nearness{n, make([][]int, len(n.sites.of)+1), map[int]int{}, make([]int, len(n.sites.of)+1)}
	for _, l := range f.lines {
		if strings.HasPrefix(l, "%v") { // a call may have no results
			names := n.named(l)
			search.reads[names[0]] = names[1:]
		}
	}
	for i, p := range f.params {
		f.alias[i], search.params[n.named(p.name)[0]] = -1, i
	}
	var pairs []pair
	for k, o := range f.outs {
		pairs = append(pairs, search.near(k, o)...)
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.result, b.result), cmp.Compare(a.param, b.param))
	})
	taken := make([]bool, len(f.outs))
	for _, p := range pairs {
		if taken[p.result] || f.alias[p.param] >= 0 {
			continue
		}
		of := func(u unfit) bool { return u.result == p.result }
		moved := (n.b.sharded || n.b.mesh != nil) && replicated(f.outSpecs[p.result]) || slices.ContainsFunc(f.unfit, of)
		if moved && p.distance > 0 && variable(f.inputs[p.param]) {
			f.outSpecs[p.result] = f.specs[p.param]
			f.unfit = slices.DeleteFunc(f.unfit, of)
		}
		if !n.alike(f.outSpecs[p.result], f.specs[p.param]) {
			continue
		}
		taken[p.result], f.alias[p.param] = true, p.result
	}
	if len(f.unfit) > 0 {
		return f.unfit[0].err
	}
	return nil
}

// nearness finds parameters that are near results.
type nearness struct {
	n      *builder
	reads  [][]int     // by value: what its operation reads
	params map[int]int // by value
	seen   []int       // by value: the last result that it was seen for, from 1
}

// near are the parameters of a result's type within reach.
func (s *nearness) near(k int, o *value) []pair {
	var out []pair
	at, met := s.n.named(o.name), 0
	for d := 0; d <= reach && len(at) > 0 && met < 1000; d++ {
		var next []int
		for _, id := range at {
			if s.seen[id] == k+1 {
				continue
			}
			s.seen[id] = k + 1
			met++
			if i, ok := s.params[id]; ok && s.n.main.params[i].shape.Equal(o.shape) {
				out = append(out, pair{d, k, i})
			}
			next = append(next, s.reads[id]...)
		}
		at = next
	}
	return out
}

// alike reports whether two values have the same pieces on every device.
func (n *builder) alike(a, b *compute.ShardingSpec) bool {
	if n.world() == 1 || n.meshes == nil {
		return true
	}
	if replicated(a) || replicated(b) {
		return replicated(a) == replicated(b)
	}
	if a.Mesh != b.Mesh {
		return false
	}
	for i := range max(len(a.Axes), len(b.Axes)) {
		if !slices.Equal(axesOf(a, i), axesOf(b, i)) {
			return false
		}
	}
	return true
}

// replicated reports whether every device has all of a value.
func replicated(s *compute.ShardingSpec) bool {
	return s == nil || !slices.ContainsFunc(s.Axes, func(a []string) bool { return len(a) > 0 })
}

// axesOf are the axes that cut a dimension.
func axesOf(s *compute.ShardingSpec, dim int) []string {
	if s == nil || dim >= len(s.Axes) {
		return nil
	}
	return s.Axes[dim]
}
