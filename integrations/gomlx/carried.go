package gomlx

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A step that trains float32 variables in bfloat16 begins by reading all of them and writing copies
// for its products. It could have written these when it had the new values in hand. So a copy
// is an input private to the program, and its new value, made of the variable's,
// takes its place: where the variable that comes is one that a run left, the copy is beside it.
// If that run had no use for a copy, as the one that makes first values, the devices make it
// (narrow.go), and the host makes those of variables that it has.

// carriedSize is how many elements a variable has at least whose copy is worth an input.
const carriedSize = 1 << 16

// copied is an input that is another one in fewer bits.
type copied struct{ input, of int }

// carry makes inputs of the copies that products read, of variables whose place a result takes,
// and returns them. It is told which inputs are variables.
func carry(f *ir.Func, variables []bool) (out []copied) {
	inputs, ret := f.Inputs(), f.Return()
	var more []*ir.Value
	for i, p := range inputs {
		k := p.Attrs().Int(ir.DonateKey, -1)
		v := p.Result(0)
		n, ok := v.Type().Shape().NumElems().Const()
		if !variables[i] || k < 0 || v.Type().DType() != ir.F32 || !v.Type().Contiguous() || !ok || n < carriedSize {
			continue
		}
		var copies []*ir.Node
		for _, u := range v.Uses() {
			if c := u.Node; c.Op() == ir.OpConvert && c.Result(0).Type().DType() == ir.BF16 && reads(c.Result(0), ir.OpMatmul) && !reads(c.Result(0), ir.OpReturn) {
				copies = append(copies, c)
			}
		}
		if copies == nil {
			continue
		}
		t, at := copies[0].Result(0).Type(), len(ret.Args())+len(more)
		in := f.InsertBefore(f.Order()[len(inputs)+len(out)], ir.NodeSpec{Op: ir.OpInput, Name: p.Name() + ".copy", Results: []ir.Type{t},
			Attrs: ir.A(ir.DonateKey, at)})
		for _, c := range copies {
			f.ReplaceUses(c.Result(0), in.Result(0))
			f.Remove(c)
		}
		next := f.InsertBefore(ret, ir.NodeSpec{Op: ir.OpConvert, Name: p.Name() + ".next", Args: []*ir.Value{ret.Arg(int(k))}, Results: []ir.Type{t}})
		out, more = append(out, copied{len(inputs) + len(out), i}), append(more, next.Result(0))
	}
	f.SetArgs(ret, slices.Concat(ret.Args(), more)...)
	return out
}

// reads reports whether an operation of that kind reads v or a view of it.
func reads(v *ir.Value, op ir.Op) bool {
	return slices.ContainsFunc(v.Uses(), func(u ir.Use) bool {
		return u.Node.Op() == op || u.Node.Op().IsView() && slices.ContainsFunc(u.Node.Results(), func(v *ir.Value) bool { return reads(v, op) })
	})
}

// bindCopy says where the copy of input i comes from, if there is one.
func (l *loaded) bindCopy(args []rt.Value, u *Buffer, j, i int) error {
	at := slices.IndexFunc(l.c.copies, func(c copied) bool { return c.of == i })
	if at < 0 {
		return nil
	}
	v := &args[l.c.copies[at].input]
	if v.Resident {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if p := u.at; p != nil && p.rank == j && (p.l != l || same(p.t, l.wants[i])) {
		if beside := p.copy(); beside != nil {
			v.Place = *beside
			return nil
		}
	}
	flat, _ := u.flat.([]float32)
	if u.at != nil {
		flat = make([]float32, u.shape.Size())
		if err := l.w.ranks[u.at.rank].Device().Download(dtypes.UnsafeByteSliceFromAny(flat), u.at.t); err != nil {
			return errors.WithStack(err)
		}
	}
	if len(flat) != u.shape.Size() {
		return errGone
	}
	v.Data = narrowed(flat)
	return nil
}

// copy is where the run that has left a variable, perhaps of another program, has left its copy.
func (p *place) copy() *rt.Tensor {
	for _, c := range p.l.c.copies {
		if same(p.t, p.l.wants[c.of]) {
			return &p.l.wants[c.input]
		}
	}
	return nil
}

// narrowed rounds to bfloat16, ties to even.
func narrowed(xs []float32) []byte {
	out := make([]byte, 2*len(xs))
	var wg sync.WaitGroup
	for lo, n := 0, len(xs)/runtime.GOMAXPROCS(0)+1; lo < len(xs); lo += n {
		wg.Go(func() {
			for i := lo; i < min(lo+n, len(xs)); i++ {
				b := math.Float32bits(xs[i])
				if xs[i] != xs[i] {
					b |= 1 << 22
				} else {
					b += 0x7fff + b>>16&1
				}
				binary.LittleEndian.PutUint16(out[2*i:], uint16(b>>16))
			}
		})
	}
	wg.Wait()
	return out
}
