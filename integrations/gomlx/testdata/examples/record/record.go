// Examples of GoMLX get this file for TestExamples: their one change. Backend "record" is another
// one, of which it writes down what training steps return.
package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	_ "github.com/seed-ee968945/concert/integrations/gomlx"
)

func init() { compute.Register("record", newRecorder) }

// recorder is a backend whose training steps write a line of JSON each, of the scalars that they
// return, and take the rows of their batches in another order if there is a seed.
type recorder struct {
	compute.Backend
	out  *os.File
	seed uint64
}

// newRecorder takes FILE;SEED;BACKEND.
func newRecorder(config string) (compute.Backend, error) {
	f := strings.SplitN(config, ";", 3)
	out, err := os.Create(f[0])
	if err != nil {
		return nil, err
	}
	seed, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return nil, err
	}
	b, err := compute.NewWithConfig(f[2])
	return &recorder{b, out, seed}, err
}

// buffer says of a buffer that it is the recorder's.
type buffer struct {
	compute.Buffer
	r *recorder
}

func (u *buffer) Backend() compute.Backend { return u.r }

func (u *buffer) CopyToDevice(d compute.DeviceNum) (compute.Buffer, error) {
	c, err := u.Buffer.CopyToDevice(d)
	return u.r.wrap(c), err
}

func (r *recorder) wrap(u compute.Buffer) compute.Buffer {
	if u == nil {
		return nil
	}
	return &buffer{u, r}
}

func (r *recorder) BufferFromFlatData(d compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	u, err := r.Backend.BufferFromFlatData(d, flat, shape)
	return r.wrap(u), err
}

func (r *recorder) NewSharedBuffer(d compute.DeviceNum, shape shapes.Shape) (compute.Buffer, any, error) {
	u, flat, err := r.Backend.NewSharedBuffer(d, shape)
	return r.wrap(u), flat, err
}

func (r *recorder) Builder(name string) compute.Builder {
	return &builder{r.Backend.Builder(name), r}
}

type builder struct {
	compute.Builder
	r *recorder
}

func (b *builder) Compile() (compute.Executable, error) {
	x, err := b.Builder.Compile()
	if err != nil {
		return nil, err
	}
	names, ins := x.Inputs()
	return &executable{x, b.r, names, ins, x.Outputs()}, nil
}

type executable struct {
	compute.Executable
	r         *recorder
	names     []string
	ins, outs []shapes.Shape
}

// trains reports whether this is a training step.
func (x *executable) trains() bool {
	for _, n := range x.names {
		if strings.HasSuffix(n, "/global_step") {
			for _, m := range x.names {
				if strings.HasPrefix(m, "arg") {
					return true
				}
			}
		}
	}
	return false
}

func (x *executable) Execute(inputs []compute.Buffer, donate []bool, d compute.DeviceNum) ([]compute.Buffer, error) {
	in := make([]compute.Buffer, len(inputs))
	for i, u := range inputs {
		in[i] = u.(*buffer).Buffer
	}
	trains := x.trains()
	if trains && x.r.seed != 0 {
		if err := x.permute(in, d); err != nil {
			return nil, err
		}
	}
	outs, err := x.Executable.Execute(in, donate, d)
	if err != nil {
		return nil, err
	}
	if trains {
		var scalars []float64
		for i, s := range x.outs {
			if !s.IsScalar() || !s.DType.IsFloat() {
				continue
			}
			v, err := scalar(outs[i], s)
			if err != nil {
				return nil, err
			}
			scalars = append(scalars, v)
		}
		if err := json.NewEncoder(x.r.out).Encode(scalars); err != nil {
			return nil, err
		}
	}
	for i := range outs {
		outs[i] = x.r.wrap(outs[i])
	}
	return outs, nil
}

func scalar(u compute.Buffer, s shapes.Shape) (float64, error) {
	flat := dtypes.MakeAnySlice(s.DType, 1)
	if err := u.ToFlatData(flat); err != nil {
		return 0, err
	}
	if v, ok := flat.([]float64); ok {
		return v[0], nil
	}
	return float64(flat.([]float32)[0]), nil
}

// permute gives all of the batch the same other order of rows.
func (x *executable) permute(in []compute.Buffer, d compute.DeviceNum) error {
	var order []int
	for i, s := range x.ins {
		if strings.HasPrefix(x.names[i], "/") || s.Rank() == 0 {
			continue
		}
		if order == nil {
			order = rand.New(rand.NewPCG(x.r.seed, 0)).Perm(s.Dimensions[0])
		}
		from, to := dtypes.MakeAnySlice(s.DType, s.Size()), dtypes.MakeAnySlice(s.DType, s.Size())
		if err := in[i].ToFlatData(from); err != nil {
			return err
		}
		a, b := dtypes.UnsafeByteSliceFromAny(from), dtypes.UnsafeByteSliceFromAny(to)
		n := len(a) / len(order)
		for k, o := range order {
			copy(b[k*n:(k+1)*n], a[o*n:(o+1)*n])
		}
		var err error
		if in[i], err = x.r.Backend.BufferFromFlatData(d, to, s); err != nil {
			return err
		}
	}
	return nil
}
