package cudnn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/attention"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// oneEngine is what a library of the tests says of an engine.
type oneEngine struct {
	index, workspace int64
	notes            []int32
	broken           bool // its plan cannot be built
	fallback         bool // the heuristics that are asked first do not know it
}

// engines is a library that knows these, best first. Descriptors are numbers; those of
// configurations, engines and plans stand for the engine in turn.
type engines struct {
	list  []oneEngine
	next  desc
	kind  map[desc]descKind
	of    map[desc]int // which engine a configuration, an engine or a plan is
	mode  int32        // of the heuristics that were made last
	freed int
}

func (l *engines) create(k descKind) (desc, error) {
	l.next++
	l.kind[l.next] = k
	return l.next, nil
}

func (l *engines) destroy(desc)                                          { l.freed++ }
func (l *engines) setInts(fmt.Stringer, desc, attribute, ...int64) error { return nil }
func (l *engines) setEnum(_ fmt.Stringer, _ desc, a attribute, _ attrType, v int32) error {
	if a == attrHeurMode {
		l.mode = v
	}
	return nil
}
func (l *engines) setFloat(fmt.Stringer, desc, attribute, float32) error       { return nil }
func (l *engines) setTrue(fmt.Stringer, desc, attribute) error                 { return nil }
func (l *engines) setHandle(fmt.Stringer, desc, attribute) error               { return nil }
func (l *engines) setPointers(fmt.Stringer, desc, attribute, ...uintptr) error { return nil }
func (l *engines) setDescs(_ fmt.Stringer, d desc, a attribute, v ...desc) error {
	if a == attrPlanCfg {
		l.of[d] = l.of[v[0]]
	}
	return nil
}

func (l *engines) finalize(on fmt.Stringer, d desc) error {
	if l.kind[d] == descPlan && l.list[l.of[d]].broken {
		return &Error{}
	}
	if l.kind[d] == descHeuristics && l.mode == heurA && len(l.list) > 0 && !slices.ContainsFunc(l.list, func(e oneEngine) bool { return !e.fallback }) {
		return &Error{Status: 3000} // instead of an empty list
	}
	return nil
}

func (l *engines) getInt(_ fmt.Stringer, d desc, a attribute) (int64, error) {
	if a == attrEngineIndex {
		return l.list[l.of[d]].index, nil
	}
	return l.list[l.of[d]].workspace, nil
}

func (l *engines) getEnums(_ fmt.Stringer, d desc, _ attribute, _ attrType, _ int) ([]int32, error) {
	return l.list[l.of[d]].notes, nil
}

func (l *engines) getDescs(_ fmt.Stringer, d desc, a attribute, into []desc) (int64, error) {
	if a == attrCfgEngine {
		l.of[into[0]] = l.of[d]
		return 1, nil
	}
	n := 0
	for i, e := range l.list {
		if e.fallback != (l.mode == heurFallback) {
			continue
		}
		if n < len(into) {
			l.of[into[n]] = i
		}
		n++
	}
	return int64(n), nil
}

// Which engine of several is taken, and why not the others.
func TestChoice(t *testing.T) {
	shape := func(heads, n, d int64) library.Tensor {
		dims := []int64{1, heads, n, d}
		return library.Tensor{At: 256, DType: dtype.BF16, Shape: dims, Strides: packed(dims)}
	}
	lse := library.Tensor{At: 256, DType: dtype.F32, Shape: []int64{1, 8, 1, 1}, Strides: []int64{8, 1, 1, 1}}
	p := &attention.Problem{Op: attention.Forward, Batch: 1, Heads: 8, KeyHeads: 8, Queries: 1, Keys: 512, Dim: 64, DimV: 64, DType: dtype.BF16,
		Q: shape(8, 1, 64), K: shape(8, 512, 64), V: shape(8, 512, 64), Out: shape(8, 1, 64), LSE: lse,
		Grad: shape(8, 1, 64), DQ: shape(8, 1, 64), DK: shape(8, 512, 64), DV: shape(8, 512, 64)}
	split := oneEngine{index: unreproduced}
	for _, c := range []struct {
		name    string
		list    []oneEngine
		inexact bool
		back    bool
		want    string // the engine, or the refusal
	}{
		{"the first", []oneEngine{{index: 2}, {index: 3}}, false, false, "2 after 0"},
		{"not the one that splits keys", []oneEngine{split, {index: 2}}, false, false, "2 after 1"},
		{"unless results may differ", []oneEngine{split, {index: 2}}, true, false, "1 after 0"},
		{"its number means another engine backward", []oneEngine{split, {index: 2}}, false, true, "1 after 0"},
		{"none but it", []oneEngine{split}, false, false, "engine 1: its results may differ from run to run"},
		{"not one with the note", []oneEngine{{index: 4, notes: []int32{1, noteUnreproduced}}, {index: 5, notes: []int32{1}}}, false, false, "5 after 1"},
		{"not one that wants more memory", []oneEngine{{index: 4, workspace: 1 << 20}, {index: 5, workspace: 100}}, false, false, "5 after 1"},
		{"not one that cannot be built", []oneEngine{{index: 4, broken: true}, {index: 5}}, false, false, "5 after 1"},
		{"none at all", nil, false, false, "know no engine"},
	} {
		lib := &engines{list: c.list, kind: map[desc]descKind{}, of: map[desc]int{}}
		g := forwardGraph(p)
		if c.back {
			g = backwardGraph(p, !c.inexact)
		}
		e, err := newEngine(lib, g, !c.inexact, 1<<19, 0)
		if err != nil {
			if !errors.Is(err, library.ErrNotServed) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
			if lib.freed != int(lib.next) {
				t.Errorf("%s: %d of %d descriptors were destroyed", c.name, lib.freed, lib.next)
			}
			continue
		}
		if got := fmt.Sprintf("%d after %d", e.index, e.tried); got != c.want {
			t.Errorf("%s: engine %s, want %s", c.name, got, c.want)
		}
	}
}

// Which engine computes a convolution: none whose numbers are not those asked for, and of
// the slow ones only where there is no other.
func TestConvolutionChoice(t *testing.T) {
	note := func(index int64, notes ...int32) oneEngine { return oneEngine{index: index, notes: notes} }
	slow := oneEngine{index: 9, fallback: true}
	for _, c := range []struct {
		name       string
		list       []oneEngine
		typ        dtype.DType
		tf32, fast bool
		want       string
	}{
		{"tensor cores", []oneEngine{note(1, noteTensorCore), slow}, dtype.BF16, false, false, "1 after 0"},
		{"no tensor cores for f32", []oneEngine{note(1, noteTensorCore), note(2), slow}, dtype.F32, false, false, "2 after 1"},
		{"no rounded operands", []oneEngine{note(1, noteNarrowed), note(2), slow}, dtype.F32, false, false, "2 after 1"},
		{"TF32", []oneEngine{note(1, noteTensorCore, noteNarrowed), note(2), slow}, dtype.F32, true, false, "1 after 0"},
		{"TF32 is for f32", []oneEngine{note(1, noteNarrowed), note(2), slow}, dtype.BF16, true, false, "2 after 1"},
		{"sums of f32", []oneEngine{note(1, noteReduced), note(2), slow}, dtype.F16, true, true, "2 after 1"},
		{"reproducible", []oneEngine{note(1, noteUnreproduced), note(2), slow}, dtype.BF16, false, false, "2 after 1"},
		{"fast", []oneEngine{note(1, noteUnreproduced), note(2), slow}, dtype.BF16, false, true, "1 after 0"},
		{"attention's engine 1 is another", []oneEngine{note(unreproduced)}, dtype.BF16, false, false, "1 after 0"},
		{"a slow one", []oneEngine{note(1, noteUnreproduced), slow}, dtype.BF16, false, false, "9 after 1"},
		{"heuristics that refuse", []oneEngine{slow}, dtype.BF16, false, false, "9 after 1"},
		{"too much workspace", []oneEngine{{index: 1, workspace: convolutionWorkspace + 1}, slow}, dtype.BF16, false, false, "9 after 1"},
		{"none", []oneEngine{note(1, noteTensorCore)}, dtype.F32, false, false, "engine 1: its numbers are not those asked for (notes [0])"},
	} {
		call := convCases[3].calls(c.typ)[0]
		v, err := newConvolution(&library.Call{Op: opConvolution, Attrs: call.attrs, Ins: call.ins[:], Outs: []library.Tensor{call.out}})
		if err != nil {
			t.Fatal(err)
		}
		g, _ := v.graph(c.tf32)
		lib := &engines{list: c.list, kind: map[desc]descKind{}, of: map[desc]int{}}
		got := ""
		if e, err := newEngine(lib, g, !c.fast, g.most, 0); err == nil {
			got = fmt.Sprintf("%d after %d", e.index, e.tried)
		} else if got = err.Error(); !errors.Is(err, library.ErrNotServed) {
			t.Errorf("%s: %v", c.name, err)
		}
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
