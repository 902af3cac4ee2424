package lower_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/program/progtest"
)

// mark makes regions of random runs of the nodes that may belong to one, whatever one
// kernel could compute. It prefers runs of elementwise operations if asked to.
func mark(f *ir.Func, r *rand.Rand, elementwise bool) {
	id, open := int64(-1), false
	for _, n := range f.Order() {
		c := n.Op().Class()
		fits := (c == ir.ClassView || c == ir.ClassMemory) && n.Pure() && n.Group() == nil && n.Op() != ir.OpCall
		for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
			fits = fits && !v.Type().IsAsync() && v.Type().Strides() != nil
		}
		if elementwise {
			fits = fits && (c == ir.ClassView || n.Op().Info().Elementwise)
		}
		switch {
		case !fits:
			open = false
			continue
		case !open || r.IntN(5) == 0:
			if open = r.IntN(3) > 0; !open {
				continue
			}
			id++
		}
		f.SetMeta(n, n.Meta().With(place.FusionKey, attr.Int(id)))
	}
}

// lengthen puts chains of elementwise operations behind some operations, so that there
// are values that only neighbours read.
func lengthen(m *ir.Module, r *rand.Rand) {
	for _, f := range m.Funcs() {
		for _, n := range f.Order() {
			c := n.Op().Class()
			if c != ir.ClassMemory && c != ir.ClassCompute || len(n.Results()) != 1 || r.IntN(2) == 0 {
				continue
			}
			v := n.Result(0)
			t := v.Type()
			if _, ok := t.Shape().Static(); !ok || t.IsAsync() || !t.DType().IsFloat() || !t.Contiguous() {
				continue
			}
			uses := slices.Clone(v.Uses())
			last, at := v, n
			for range 1 + r.IntN(3) {
				op := []ir.Op{ir.OpNeg, ir.OpRelu, ir.OpAbs, ir.OpAdd}[r.IntN(4)]
				s := ir.NodeSpec{Op: op, Name: "long", Args: []*ir.Value{last}, Results: []ir.Type{t}}
				if op == ir.OpAdd {
					s.Args = append(s.Args, v)
				}
				at = f.InsertAfter(at, s)
				last = at.Result(0)
			}
			for _, u := range uses {
				f.SetArg(u.Node, u.Index, last)
			}
		}
	}
}

// Random programs with random regions, whose results are on operands where that is
// legal, give the interpreter's bits. What is on an operand also comes out right if
// the elements of all results at one place are computed by themselves, from the operands as
// they are then, and places come in any order: the worst that a kernel can do. Lowered with source, regions that
// no kernel can compute are taken apart.
func TestRandomRegions(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 40
	}
	var all, apart tally
	compared := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		m, err := gen.Module(seed, gen.Config{Nodes: 60, World: 2})
		if err != nil {
			t.Fatal(err)
		}
		lengthen(m, r)
		marked := m.Clone()
		for _, f := range marked.Funcs() {
			mark(f, r, seed%2 == 0)
		}
		after := optimised(t, marked, "reuse-buffers{inputs=dying},plan-memory")
		for i, f := range after.Funcs() {
			if beyondHost(f) != "" {
				continue
			}
			if _, err := lower.Check(f); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, after)
			}
			p, err := lower.Func(f)
			if err != nil {
				t.Fatal(err)
			}
			all.add(p)
			k := withKernels(t, f)
			apart.add(k)
			loadsFirst(t, k)
			runsAsBefore(t, m.Funcs()[i], f, seed)
			for j := range p.Instrs {
				if ok, ran := scattered(t, p, &p.Instrs[j], r); ran {
					compared++
					if !ok {
						t.Errorf("seed %d: @%s: instruction %d depends on the order of elements\n%s", seed, f.Name, j, p)
					}
				}
			}
		}
	}
	t.Logf("%+v, %d launches compared by element; with source %+v", all, compared, apart)
	if apart.fused < all.fused+int(seeds)/2 {
		t.Errorf("%d launches of regions, %d with those that were taken apart", all.fused, apart.fused)
	}
	if n := int(seeds); all.fused < n || all.temps < n || compared < n/10 {
		t.Errorf("%d programs had %+v, %d compared by element", n, all, compared)
	}
}

// loadsFirst demands of each kernel with a result on an operand that its text loads the operand
// once, before the one store, and that the compiler is told where there are other results.
func loadsFirst(t *testing.T, p *program.Program) {
	t.Helper()
	for i := range p.Instrs {
		in := &p.Instrs[i]
		k := p.Kernel(in)
		for a := range in.Ins {
			for b := range in.Outs {
				if k == nil || k.Source == "" || in.Ins[a].Buffer != in.Outs[b].Buffer {
					continue
				}
				from, to := fmt.Sprintf("(in%d + ", a), fmt.Sprintf("(out%d + ", b)
				told := len(in.Outs) == 1 || !strings.Contains(k.Source, fmt.Sprintf("RESTRICT in%d ", a)) && !strings.Contains(k.Source, fmt.Sprintf("RESTRICT out%d ", b))
				if !told || strings.Count(k.Source, from) != 1 || strings.Count(k.Source, to) != 1 || strings.Index(k.Source, from) > strings.Index(k.Source, to) {
					t.Errorf("result %d lies on operand %d:\n%s", b, a, k.Source)
				}
			}
		}
	}
}

// scattered runs a fused launch of several operations with a result on an operand
// place by place, in random order, with everything computed anew for each place before
// its results are written, and reports whether the results are those of separate memory.
func scattered(t *testing.T, p *program.Program, in *program.Instr, r *rand.Rand) (ok, ran bool) {
	k := p.Kernel(in)
	if k == nil || len(k.Body) < 2 || !slices.ContainsFunc(in.Outs, func(o program.Tensor) bool {
		return slices.ContainsFunc(in.Ins, func(a program.Tensor) bool { return a.Buffer == o.Buffer })
	}) {
		return false, false
	}
	arena := make([]byte, p.Arena)
	for i := range arena {
		arena[i] = byte(r.IntN(256))
	}
	views := func(arena []byte, ts []program.Tensor) []hostops.Tensor {
		out := make([]hostops.Tensor, len(ts))
		for i := range ts {
			shape := make([]int64, len(ts[i].Shape))
			for d := range shape {
				shape[d], _ = ts[i].Shape[d].Const()
			}
			span, _ := p.Span(&ts[i])
			lo := p.Buffers[ts[i].Buffer].Offset + ts[i].Offset
			strides, _ := ir.Shape(ts[i].SymbolicStrides()).Static()
			out[i] = hostops.Tensor{DType: ts[i].DType, Shape: shape, Strides: strides, Data: arena[lo : lo+span : lo+span]}
		}
		return out
	}
	// apart computes the results of an arena in memory of their own, dense.
	apart := func(arena []byte) []hostops.Tensor {
		outs := views(slices.Clone(arena), in.Outs)
		if err := progtest.RunKernel(k, outs, views(arena, in.Ins)); err != nil {
			t.Fatal(err)
		}
		for i := range outs {
			outs[i] = dense(t, outs[i])
		}
		return outs
	}
	want := apart(arena)
	type spot struct{ of, at int } // the element at a place of each result of that many
	var spots []spot
	for _, w := range want {
		n := len(w.Data) / w.DType.Size()
		if n > 512 {
			return false, false
		}
		for e := range n {
			if s := (spot{n, e}); !slices.Contains(spots, s) {
				spots = append(spots, s)
			}
		}
	}
	outs := views(arena, in.Outs)
	for _, i := range r.Perm(len(spots)) {
		all := apart(arena)
		for _, n := range r.Perm(len(outs)) {
			size, e := outs[n].DType.Size(), spots[i].at
			if len(all[n].Data) != size*spots[i].of {
				continue
			}
			now := all[n].Data[e*size : (e+1)*size]
			at, rest := int64(0), int64(e)
			for d := len(outs[n].Shape) - 1; d >= 0; d-- {
				at += rest % outs[n].Shape[d] * outs[n].Strides[d]
				rest /= outs[n].Shape[d]
			}
			copy(outs[n].Data[at*int64(size):], now)
		}
	}
	for n := range outs {
		if !bytes.Equal(dense(t, outs[n]).Data, want[n].Data) {
			return false, true
		}
	}
	return true, true
}

// dense copies a tensor to memory without gaps.
func dense(t *testing.T, x hostops.Tensor) hostops.Tensor {
	t.Helper()
	d, err := hostops.New(x.DType, x.Shape...)
	if err == nil {
		err = hostops.Copy(d, x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}
