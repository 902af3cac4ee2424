package bench

import (
	"context"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// fed runs the forward function and returns what it leaves for this one, the backward
// one. Made up inputs would not do: gradients of a row that many tokens share are summed
// one after the other, experts get as many tokens as the router gives them, and matmuls
// of numbers that mean nothing take other power.
func (k *meter) fed(ctx context.Context) ([]rt.Value, error) {
	f := k.forward
	outs, err := f.upTo(ctx, len(f.c.p.Instrs))
	if err != nil {
		return nil, err
	}
	if outs, err = hostrun.Places(ctx, outs); err != nil {
		return nil, err
	}
	j := &Job{pair: &step.Pair{Name: k.c.j.pair.Name, Forward: f.c.h.f, Backward: k.c.h.f}}
	return j.backwardInputs(outs)
}

// given brings in the inputs: of a backward function what its forward one leaves, else
// integers that are in reach of what they index, and for the rest numbers of the size that
// theirs have, in a pattern that comes again and again. How long a matmul takes depends on
// its numbers: of those that are much alike it is faster.
func (k *meter) given(ctx context.Context) ([]rt.Value, error) {
	if k.forward != nil {
		return k.fed(ctx)
	}
	j, m := k.c.j, k.c.module
	if j.indices == nil {
		return j.given(ctx, k.r, &k.h)
	}
	slots := interp.InputSlots(j.pair.Forward)
	var out []rt.Value
	from := make([]int64, len(slots)) // where an input's pattern is, 0 for none
	have := map[filled]int64{}
	size := min(patternBytes, k.c.bytes/mostPatterns) / program.Align * program.Align
	for i, s := range slots {
		at, err := k.r.In(m, m.Inputs[i].Tensors[0])
		if err != nil {
			return nil, err
		}
		v := rt.Value{DType: at.DType, Shape: at.Shape, Resident: true}
		if s.Type.DType().IsInt() {
			v.Data = j.indices[k.r.Info().Rank][i].Data
			if err := k.r.Upload(at, v.Data); err != nil {
				return nil, err
			}
		} else {
			like := filled{at.DType, 1}
			if role := k.c.p.Inputs[i].Role; len(at.Shape) == 2 && role != "saved" && role != "tangent" {
				like.dims = 2 // weights are small, what is computed is not
			}
			if _, ok := have[like]; !ok && len(have) < mostPatterns {
				have[like] = k.c.room + int64(len(have))*size
				if err := k.pattern(like, have[like], size); err != nil {
					return nil, err
				}
			}
			if from[i] = have[like]; from[i] == 0 {
				from[i] = k.c.room
			}
		}
		out = append(out, v)
	}
	_, err := rt.RunModule(ctx, k.r, m, func(x *rt.Exec) {
		for i, at := range from {
			to, all := m.Inputs[i].Tensors[0].Off, m.Inputs[i].Tensors[0].Bytes()
			start := int64(i) * apartBytes % size
			for done := int64(0); at != 0 && done < all; start = 0 {
				n := min(all-done, size-start)
				x.Copy(k.c.computeStream(), rt.C(to+done, rt.U8, n), rt.C(at+start, rt.U8, n))
				done += n
			}
		}
	}, out, j.options(k.r, &k.h))
	return out, err
}

// hashIndices puts integers made by hash in place of indices.
func (j *Job) hashIndices() error {
	hash := *j
	hash.indices = nil
	for rank := range j.indices {
		for i, s := range interp.InputSlots(j.pair.Forward) {
			if !s.Type.DType().IsInt() {
				continue
			}
			var err error
			if j.indices[rank][i], err = hash.hashed(i, s, rank); err != nil {
				return err
			}
		}
	}
	return nil
}

// filled is what numbers of an input are like.
type filled struct {
	dtype dtype.DType
	dims  int // as of fillrand
}

// The length of a pattern at most, how many there are at most, and how far apart two
// inputs begin in one: equal factors of a product would make it large.
const (
	patternBytes = 1 << 24
	mostPatterns = 8
	apartBytes   = 7919 * program.Align
)

// pattern leaves one at an offset of the program's arena.
func (k *meter) pattern(like filled, off, size int64) error {
	data := make([]byte, size)
	if err := fillrand.New(1, 0, k.r.Info().Rank, like.dims).Fill(data, like.dtype); err != nil {
		return err
	}
	at, err := k.r.In(k.c.module, rt.C(off, rt.U8, size))
	if err != nil {
		return err
	}
	return k.r.Upload(at, data)
}

// saveInputs copies the inputs that the program overwrites to where they are kept, or back.
// An input that is kept nowhere has offset 0, which is in the program's arena.
func (c *measuredProgram) saveInputs(x *rt.Exec, back bool) {
	for i, at := range c.keep {
		if at == 0 {
			continue
		}
		t := c.module.Inputs[i].Tensors[0]
		in, out := rt.C(t.Off, rt.U8, t.Bytes()), rt.C(at, rt.U8, t.Bytes())
		if back {
			in, out = out, in
		}
		x.Copy(c.computeStream(), out, in)
	}
}

// restoreInputs copies those inputs back, and lets every stream wait for that: without it
// collectives that need none of them would begin beside the copies.
func (c *measuredProgram) restoreInputs(x *rt.Exec) {
	c.saveInputs(x, true)
	if c.copies() == 0 {
		return
	}
	x.Record(c.computeStream(), c.ownEvent(0))
	for _, st := range c.p.Streams[1:] {
		x.Wait(st.Name, c.ownEvent(0))
	}
}

// copies is how many copies kept makes.
func (c *measuredProgram) copies() (n int) {
	for _, at := range c.keep {
		if at != 0 {
			n++
		}
	}
	return n
}

// resident are inputs that are in the arena.
func resident(inputs []rt.Value) []rt.Value {
	out := slices.Clone(inputs)
	for i := range out {
		out[i].Resident = true
	}
	return out
}
