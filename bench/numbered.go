package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
)

// This file reads recordings whose tensors are numbered, as those beside StableHLO programs
// are: 000, 001, ... for the arguments or results of @main.

// numbered reads NAME.WHAT.safetensors, or NAME.WHAT.rankR.safetensors, for every rank. What
// the program says itself is left empty.
func (j *Job) numbered(dir, what string, slots []interp.Slot) ([][]interp.Tensor, error) {
	out := make([][]interp.Tensor, j.pair.World())
	for r := range out {
		path := filepath.Join(dir, fmt.Sprintf("%s.%s.rank%d.safetensors", j.pair.Name, what, r))
		file, err := safetensors.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && len(out) == 1 {
			path = filepath.Join(dir, fmt.Sprintf("%s.%s.safetensors", j.pair.Name, what))
			file, err = safetensors.ReadFile(path)
		}
		if err != nil {
			return nil, err
		}
		k := 0
		for i, s := range slots {
			if what == "in" && j.StableHLO.Constants[i] != nil {
				out[r] = append(out[r], interp.Tensor{})
				continue
			}
			t, ok := file.Get(fmt.Sprintf("%03d", k))
			if !ok {
				return nil, fmt.Errorf("%s has no tensor %03d", path, k)
			}
			typed, err := asSlot(interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data}, s.Type)
			if err != nil {
				return nil, fmt.Errorf("%s: tensor %03d: %w", path, k, err)
			}
			out[r] = append(out[r], typed)
			k++
		}
	}
	return out, nil
}

// asSlot gives a recorded tensor the type of an input or result: scalars are recorded with one
// element, and types that a file does not have as wider ones.
func asSlot(t interp.Tensor, want ir.Type) (interp.Tensor, error) {
	shape, _ := want.Shape().Static()
	if !slices.Equal(t.Shape, shape) {
		if len(shape) != 0 || !slices.Equal(t.Shape, []int64{1}) {
			return t, fmt.Errorf("is %s%v, want %s", t.DType, t.Shape, want)
		}
		t.Shape = shape
	}
	if t.DType == want.DType() {
		return t, nil
	}
	return t.Convert(want.DType())
}

// constants fills in what the program says of inputs.
func (j *Job) constants() error {
	if j.inputs == nil {
		if !slices.ContainsFunc(j.StableHLO.Constants, notNil) {
			return nil
		}
		var err error
		if j.inputs, err = j.allInputs(); err != nil {
			return err
		}
	}
	for _, in := range j.inputs {
		for i, l := range j.StableHLO.Constants {
			if l != nil {
				in[i] = interp.Tensor{DType: l.DType, Shape: l.Shape, Data: l.Expand()}
			}
		}
	}
	return nil
}

func notNil[T any](p *T) bool { return p != nil }

// numberedBounds are how far results may be from what another implementation recorded: more
// where the function computes in types of 16 bits.
func numberedBounds(f *ir.Func) (floats, others step.Bound) {
	floats.Rel, others.Bits = 1e-4, true
	for _, n := range f.Order() {
		for _, v := range n.Results() {
			if t := v.Type(); !t.IsAsync() && t.DType().IsFloat() && t.DType().Size() == 2 {
				floats.Rel = 2e-2
			}
		}
	}
	return floats, others
}
