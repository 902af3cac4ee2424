//go:build linux && cgo && (amd64 || arm64)

package cudnn

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/attention"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// warm compiles all kernels of all cases at once.
func (g *gpu) warm(t *testing.T, compiler *nvrtc.Compiler) {
	from := time.Now()
	stop := errors.New("compiled")
	var wg sync.WaitGroup
	for _, c := range cases() {
		at := driver.Ptr(0)
		tensor := func(style int, heads, n int64) library.Tensor {
			shape := []int64{c.b, heads, n, c.d}
			at += 1 << 30
			return library.Tensor{At: at, DType: c.typ, Shape: shape, Strides: c.styles[style].strides(shape)}
		}
		q, k, v, out := tensor(0, c.h, c.s), tensor(1, c.hk, c.t), tensor(2, c.hk, c.t), tensor(3, c.h, c.s)
		lse := library.Tensor{At: 256, DType: dtype.F32, Shape: []int64{c.b, c.h, c.s, 1}, Strides: packed([]int64{c.b, c.h, c.s, 1})}
		one := library.Tensor{At: 256, DType: dtype.I64, Shape: []int64{}, Strides: []int64{}}
		attrs := attr.List{}.With("causal", attr.Bool(c.causal))
		if c.scale != 0 {
			attrs = attrs.With("scale", attr.Float(c.scale))
		}
		calls := []*library.Call{
			{Op: attention.Forward, Attrs: attrs, Ins: []library.Tensor{q, k, v}, Outs: []library.Tensor{out, lse, one, one}},
			{Op: attention.Backward, Attrs: attrs, Ins: []library.Tensor{tensor(4, c.h, c.s), q, k, v, out, lse, one, one},
				Outs: []library.Tensor{tensor(5, c.h, c.s), tensor(6, c.hk, c.t), tensor(7, c.hk, c.t)}, WorkspaceBytes: workspace}}
		for _, call := range calls {
			wg.Go(func() {
				l, err := attention.Open(g.drv, g.rank, attention.Options{Compile: func(name, source string, options ...string) ([]byte, error) {
					if _, _, err := compiler.Compile(name, source, append(options, nvrtc.Arch(g.rank.Info.Major, g.rank.Info.Minor))); err != nil {
						return nil, err
					}
					return nil, stop
				}})
				if err == nil {
					_, err = l.Plan(call)
				}
				if !errors.Is(err, stop) {
					t.Errorf("%s of case %s: %v", call.Op, c.name, err)
				}
			})
		}
	}
	wg.Wait()
	fmt.Printf("BUILD all in %v\n", time.Since(from).Round(time.Millisecond))
}

// resources tells registers and stack of an image's kernels.
func resources(image []byte) string {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err.Error()
	}
	s := f.Section(".nv.info")
	if s == nil {
		return "no information"
	}
	data, err := s.Data()
	if err != nil {
		return err.Error()
	}
	names := map[byte]string{0x11: "frame", 0x12: "stack", 0x2f: "registers"}
	var out []string
	for len(data) >= 4 {
		attr, n := data[1], int(binary.LittleEndian.Uint16(data[2:]))
		if data[0] != 4 {
			n = 0
		}
		if n+4 > len(data) {
			break
		}
		if name := names[attr]; name != "" && n == 8 {
			out = append(out, fmt.Sprintf("%s %d", name, binary.LittleEndian.Uint32(data[8:])))
		}
		data = data[4+n:]
	}
	return strings.Join(out, ", ")
}

func (g *gpu) test(t *testing.T, c gpuCase, f form, space driver.Ptr) {
	q := g.place(t, c.typ, c.styles[0], 1, c.b, c.h, c.s, c.d)
	k := g.place(t, c.typ, c.styles[1], 1, c.b, c.hk, c.t, c.d)
	v := g.place(t, c.typ, c.styles[2], 1, c.b, c.hk, c.t, c.d)
	out := g.place(t, c.typ, c.styles[3], 0, c.b, c.h, c.s, c.d)
	lse := g.place(t, dtype.F32, dense, 0, c.b, c.h, c.s, 1)
	seed, offset := g.place(t, dtype.I64, dense, 0), g.place(t, dtype.I64, dense, 0)
	attrs := attr.List{}.With("causal", attr.Bool(c.causal))
	if c.scale != 0 {
		attrs = attrs.With("scale", attr.Float(c.scale))
	}
	fw := &library.Call{Op: attention.Forward, Attrs: attrs, Ins: []library.Tensor{q.Tensor, k.Tensor, v.Tensor},
		Outs: []library.Tensor{out.Tensor, lse.Tensor, seed.Tensor, offset.Tensor}, Workspace: space, WorkspaceBytes: workspace}
	step := g.plan(t, f, fw)
	if step == nil {
		return
	}
	data, differ := g.check(t, step, out, lse, seed, offset)
	outData, lseData := data[0], data[1]
	if !bytes.Equal(data[2], make([]byte, 8)) || !bytes.Equal(data[3], make([]byte, 8)) {
		t.Errorf("seed %v and offset %v", data[2], data[3])
	}
	g.result(t, c, step, differ, 0)
	group := c.h / c.hk
	sample := []int64{0, c.hk - 1}
	if c.hk == 1 || c.s >= 1024 { // the host takes seconds for a long head
		sample = sample[1:]
	}
	for _, kh := range sample {
		b, lo, hi := c.b-1, kh*group, (kh+1)*group
		ins := []hostops.Tensor{heads(q, q.bytes, b, lo, hi), heads(k, k.bytes, b, kh, kh+1), heads(v, v.bytes, b, kh, kh+1)}
		want := fresh(t, dtype.F32, 1, group, c.s, c.d, 1, group, c.s, 1)
		host(t, fw, ins, append(want, fresh(t, dtype.I64)[0], fresh(t, dtype.I64)[0])...)
		for i, r := range []hostops.Tensor{heads(out, outData, b, lo, hi), heads(lse, lseData, b, lo, hi)} {
			if e := distance(r, want[i]); !(e < []float64{c.limit(), 1e-4}[i]) {
				t.Errorf("%s of head %d: relative error %.2e", []string{"out", "lse"}[i], lo, e)
			} else {
				t.Logf("%s of head %d: relative error %.2e", []string{"out", "lse"}[i], lo, e)
			}
		}
	}
	if c.backward {
		g.backward(t, c, f, fw, []*placed{q, k, v, out, lse, seed, offset}, outData, lseData, sample)
	}
}

func (g *gpu) backward(t *testing.T, c gpuCase, f form, fw *library.Call, x []*placed, outData, lseData []byte, sample []int64) {
	q, k, v, out, lse := x[0], x[1], x[2], x[3], x[4]
	grad := g.place(t, c.typ, c.styles[4], 1, c.b, c.h, c.s, c.d)
	dq := g.place(t, c.typ, c.styles[5], 0, q.Shape...)
	dk := g.place(t, c.typ, c.styles[6], 0, k.Shape...)
	dv := g.place(t, c.typ, c.styles[7], 0, v.Shape...)
	bw := &library.Call{Op: attention.Backward, Attrs: fw.Attrs, Outs: []library.Tensor{dq.Tensor, dk.Tensor, dv.Tensor},
		Ins:       []library.Tensor{grad.Tensor, q.Tensor, k.Tensor, v.Tensor, out.Tensor, lse.Tensor, x[5].Tensor, x[6].Tensor},
		Workspace: fw.Workspace, WorkspaceBytes: fw.WorkspaceBytes}
	step := g.plan(t, f, bw)
	if step == nil {
		return
	}
	if strings.Contains(step.String(), "simple") && c.b*c.h*c.s*c.t > 1<<21 {
		t.Logf("%v left out: too slow", step)
		return
	}
	data, differ := g.check(t, step, dq, dk, dv)
	if differ != 0 && !f.exact {
		t.Logf("%d of %d runs differ", differ, *repeats)
		differ = 0
	}
	g.result(t, c, step, differ, 1)
	group := c.h / c.hk
	for _, kh := range sample {
		b, lo, hi := c.b-1, kh*group, (kh+1)*group
		i64 := fresh(t, dtype.I64)[0]
		ins := []hostops.Tensor{heads(grad, grad.bytes, b, lo, hi), heads(q, q.bytes, b, lo, hi), heads(k, k.bytes, b, kh, kh+1),
			heads(v, v.bytes, b, kh, kh+1), heads(out, outData, b, lo, hi), heads(lse, lseData, b, lo, hi), i64, i64}
		want := fresh(t, dtype.F32, 1, group, c.s, c.d, 1, 1, c.t, c.d, 1, 1, c.t, c.d)
		host(t, bw, ins, want...)
		for i, r := range []hostops.Tensor{heads(dq, data[0], b, lo, hi), heads(dk, data[1], b, kh, kh+1), heads(dv, data[2], b, kh, kh+1)} {
			e := distance(r, want[i])
			t.Logf("%s of head %d: relative error %.2e", []string{"dq", "dk", "dv"}[i], lo, e)
			if !(e < 1.5*c.limit()) {
				t.Errorf("%s of head %d: relative error %.2e", []string{"dq", "dk", "dv"}[i], lo, e)
			}
		}
	}
}

// plan plans a call, or says that the form does not serve it.
func (g *gpu) plan(t *testing.T, f form, c *library.Call) library.Step {
	g.mu.Lock()
	defer g.mu.Unlock()
	free, _, _ := g.drv.MemInfo(g.rank.Ctx)
	from := time.Now()
	s, err := f.lib.Plan(c)
	if errors.Is(err, library.ErrNotServed) && f.name != "own" {
		t.Logf("%s not served: %v", c.Op, err)
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", c.Op, err)
	}
	after, _, _ := g.drv.MemInfo(g.rank.Ctx)
	t.Logf("%v, planned in %v, %d KiB of the device", s, time.Since(from).Round(time.Millisecond), (int64(free)-int64(after))>>10)
	return s
}

func (g *gpu) result(t *testing.T, c gpuCase, s library.Step, differ, back int) {
	if differ != 0 {
		t.Errorf("%v: %d of %d runs differ", s, differ, *repeats)
	}
	if c.timed {
		g.mu.Lock()
		defer g.mu.Unlock()
		ms := g.milliseconds(t, s)
		work := []float64{4, 10}[back] * float64(c.b*c.h*c.s*c.t*c.d)
		if c.causal {
			work /= 2
		}
		fmt.Printf("TIME %-24s %-50s %.4f ms %5.0f TFLOP/s\n", t.Name(), s, ms, work/ms/1e9)
	}
}

// fresh gives zero tensors of four dimensions, or one scalar without any.
func fresh(t *testing.T, typ dtype.DType, dims ...int64) (out []hostops.Tensor) {
	for {
		n := min(len(dims), 4)
		x, err := hostops.New(typ, dims[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
		if dims = dims[n:]; len(dims) == 0 {
			return out
		}
	}
}

func host(t *testing.T, c *library.Call, ins []hostops.Tensor, outs ...hostops.Tensor) {
	t.Helper()
	if err := hostops.Run(c.Op, c.Attrs, outs, ins); err != nil {
		t.Fatal(err)
	}
}
