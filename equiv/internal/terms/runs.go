package terms

import (
	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Large tensors are compared by runs: where all moves take elements in runs of a length,
// whole and in order, and all that is computed is elementwise, a run is as good as an
// element. What repeats single elements for whole runs may do so.

// units is how many elements t has on a rank, by runs of that length. A constant has one
// for all.
func (e *elements) units(t *term, run int64) int64 {
	n, _ := t.n.Const()
	if t.kind == kindFull {
		return min(n, 1)
	}
	return n / run
}

// at is element i of what may be a constant.
func at(x []scalar.ID, i int64) scalar.ID {
	if len(x) == 1 {
		return x[0]
	}
	return x[i]
}

// runs decides what counts as one element: runs of one length where that can be. False if
// there are too many elements even so.
func (e *elements) runs(terms []TermID) bool {
	budget := int64(maxElements)
	if e.lines {
		budget = maxLines
	}
	if e.lines || !e.assign(terms, e.longest(terms)) {
		e.assign(terms, 1)
	}
	for _, id := range terms {
		t := e.z.at(id)
		run := max(e.run[id], 1)
		e.run[id] = run
		if budget -= (e.units(t, run) + 1) * int64(e.z.vals.world); budget < 0 {
			return false
		}
	}
	return true
}

// longest is a length of runs that no move takes apart, 1 if there is none.
func (e *elements) longest(terms []TermID) int64 {
	run := int64(0)
	for _, id := range terms {
		t := e.z.at(id)
		n, _ := t.n.Const()
		switch t.kind {
		case kindMove:
			l := &e.z.layouts.All[t.layout]
			run = l.Run(run)
		case kindLookup, kindScatter:
			run = intmath.GCD(run, t.scale)
		case kindOpaque, kindShuffle:
			run = intmath.GCD(run, n)
		}
	}
	return max(run, 1)
}

// assign gives every term runs of that length, or of 1; constants have 0. False if they do
// not fit.
func (e *elements) assign(terms []TermID, run int64) bool {
	e.run = map[TermID]int64{}
	for _, id := range terms {
		t := e.z.at(id)
		n, _ := t.n.Const()
		of := func(k int) int64 { return e.run[t.args[k]] }
		at := int64(1)
		switch t.kind {
		case kindFull:
			at = 0
		case kindIota:
		case kindMove:
			l := &e.z.layouts.All[t.layout]
			repeats := len(l.Digits) > 0 && l.Digits[len(l.Digits)-1].Stride == 0 && !l.Digits[len(l.Digits)-1].Table && l.Digits[len(l.Digits)-1].N%run == 0
			switch {
			case of(0) == 1 && !repeats:
			case of(0) == 1 || l.Whole(run):
				at = run
			default:
				return false
			}
		case kindPoint, kindReduce:
			at = 0
			for k := range t.args {
				if r := of(k); at > 0 && r > 0 && r != at {
					return false
				} else if r > 0 {
					at = r
				}
			}
			if at == 0 && n%run == 0 {
				at = run
			}
		case kindLookup:
			if of(1) > 1 || of(0) > 1 && t.scale%of(0) != 0 {
				return false
			}
			at = of(0)
		case kindScatter:
			at = max(of(0), of(1))
			if of(2) > 1 || t.scale%max(at, 1) != 0 || of(0) > 0 && of(0) != at || of(1) > 0 && of(1) != at {
				return false
			}
		default:
			if n%run == 0 && t.op != ir.OpArgmax {
				at = run
			}
		}
		if at == 0 && t.kind != kindFull {
			at = 1
		}
		e.run[id] = at
	}
	return true
}

// byRuns is the layout of a move between runs.
func (e *elements) byRuns(t *term, run int64) layout.Layout {
	l := e.z.layouts.All[t.layout]
	if run == 1 {
		return l
	}
	return l.ByRuns(run, max(e.run[t.args[0]], 1))
}
