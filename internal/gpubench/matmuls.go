package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// matmul is one that is tuned: shapes and strides of operands and result, bfloat16.
type matmul struct {
	Name                string
	A, AS, B, BS, O, OS []int64
}

// group are matmuls of one left operand; in the file, an object or a list of them.
type group []matmul

// UnmarshalJSON reads either form.
func (g *group) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]matmul)(g))
	}
	*g = group{{}}
	return json.Unmarshal(data, &(*g)[0])
}

// matmuls finds the algorithms of the matmuls in a file, on the first GPU, and writes them
// to the calibration file, which keeps what else it holds. Groups come after their
// members, which they are measured against.
func (b *bench) matmuls() (err error) {
	list, err := readMatmuls(b.shapes)
	if err != nil {
		return err
	}
	file, err := b.calibration()
	if err != nil {
		return err
	}
	infos, err := b.drv.Devices()
	if err != nil {
		return err
	}
	blas, err := lt.Open(b.drv, b.blas)
	if err != nil {
		return err
	}
	known, err := lt.TuningOf(file)
	if err != nil {
		return err
	}
	if known == nil || !known.Fits(infos[0].Name, blas.Version()) {
		known = lt.NewTuning(infos[0].Name, blas.Version())
	}
	rtc, err := nvrtc.Open(b.nvrtc, "")
	if err != nil {
		return err
	}
	arch := nvrtc.Arch(infos[0].Major, infos[0].Minor)
	h, err := blas.NewHandle(b.w.Rank(0).Ctx, lt.Options{Tuning: known, Compile: func(name, source string) ([]byte, error) {
		image, _, err := rtc.Compile(name, source, []string{arch, "--std=c++17"})
		return image, err
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := b.fill(b.max/2, b.max, 7); err != nil {
		return err
	}
	for _, g := range list {
		if err := b.tune(h, g); err != nil {
			return err
		}
	}
	if file.Machine == "" {
		file.Machine = infos[0].Name
	}
	file.Matmuls = known.Matmuls()
	return b.write(file)
}

func readMatmuls(name string) ([]group, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var singles, groups []group
	for d := json.NewDecoder(f); ; {
		var g group
		if err := d.Decode(&g); errors.Is(err, io.EOF) {
			return append(singles, groups...), nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: byte %d: %w", name, d.InputOffset(), err)
		}
		for _, m := range g {
			singles = append(singles, group{m})
		}
		if len(g) > 1 {
			groups = append(groups, g)
		}
	}
}

// tune measures one matmul, or a group against its members.
func (b *bench) tune(h *lt.Handle, g group) error {
	problems := make([]lt.Problem, len(g))
	name, flops := "", 0.0
	in, out := uint64(0), uint64(0)
	at := make([][3]uint64, len(g)) // of one set, from where the pools begin
	for i, m := range g {
		x, y, o := bf16(m.A, m.AS), bf16(m.B, m.BS), bf16(m.O, m.OS)
		p, err := lt.ProblemOf(x, y, o, lt.Config{})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		problems[i], name, flops = p, name+" "+m.Name, flops+p.Flops()
		if i == 0 {
			in = room(x)
		}
		at[i] = [3]uint64{0, in, out}
		in, out = in+room(y), out+room(o)
	}
	var sets [][]lt.Operands
	for i := range min(b.max/in, b.max/out, 256<<20/in+2, 64) { // more than the cache holds
		set := make([]lt.Operands, len(g))
		for k, a := range at {
			src, dst := b.addr(0, b.src)+i*in, b.addr(0, b.dst)+i*out
			set[k] = lt.Operands{A: driver.Ptr(src + a[0]), B: driver.Ptr(src + a[1]), Out: driver.Ptr(dst + a[2])}
		}
		sets = append(sets, set)
	}
	if len(sets) == 0 {
		return fmt.Errorf("%s: does not fit into -max=%d", name, b.max)
	}
	var best lt.Algo
	var all []lt.Timing
	var err error
	if len(g) > 1 {
		best, all, err = h.TuneGroup(context.Background(), b.streams[0], problems, sets, lt.TuneOptions{Kernels: 32, Time: 1})
	} else {
		o := lt.TuneOptions{Kernels: 10}
		for _, s := range sets {
			o.Sets = append(o.Sets, s[0])
		}
		best, all, err = h.Tune(context.Background(), b.streams[0], problems[0], o)
	}
	if err != nil {
		return err
	}
	if len(all) == 0 { // nothing to compute
		return nil
	}
	fmt.Printf("%s: %.2f us (%.3f of the first suggestion's, in turns), %.0f TFLOP/s: %v\n", name[1:], all[0].Microseconds, all[0].Ratio, flops/all[0].Microseconds/1e6, best)
	for _, t := range all {
		if t.Err != nil {
			fmt.Printf("    %v: %v\n", t.Algo, t.Err)
		}
	}
	return nil
}

func bf16(shape, strides []int64) lt.Operand {
	return lt.Operand{Type: dtype.BF16, Shape: shape, Strides: strides}
}

// room is the bytes of an operand, to where the next one may begin.
func room(o lt.Operand) uint64 {
	n := int64(1)
	for i, d := range o.Shape {
		n += (d - 1) * o.Strides[i]
	}
	return (uint64(n)*uint64(o.Type.Size()) + 1023) &^ 1023
}

// write writes the calibration file.
func (b *bench) write(file *calibration.File) error {
	f, err := os.Create(b.tuning)
	if err != nil {
		return err
	}
	_, err = file.WriteTo(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Printf("%s: digest %s\n", b.tuning, file.Digest)
	return nil
}
