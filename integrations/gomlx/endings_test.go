package gomlx

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// difference is a computation of two inputs, of which neither's place is taken.
func (h harness) difference() compute.Executable {
	h.t.Helper()
	n := h.b.Builder("difference")
	f := n.Main()
	x, y := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2), nil)), h.must(f.Parameter("y", shapes.Make(dtypes.Float32, 2), nil))
	h.check(f.Return([]compute.Value{h.must(f.ReduceSum(h.must(f.Sub(x, y))))}, nil))
	return h.compile(n)
}

// A computation goes on where one of the same text has left its inputs, until the last of the two is
// finalized; a third, which takes other inputs, moves no results of theirs.
func TestGoesOn(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		sum := func() compute.Executable {
			n := h.b.Builder("sum")
			f := n.Main()
			x, y := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2), nil)), h.must(f.Parameter("y", shapes.Make(dtypes.Float32, 2), nil))
			h.check(f.Return([]compute.Value{h.must(f.Add(x, y))}, nil))
			return h.compile(n)
		}
		a, b, other := sum(), sum(), sum()
		x, y := h.buffer(0, []float32{7, 5}, 2), h.buffer(0, []float32{1, 2}, 2)
		var all []compute.Buffer
		run := func(e compute.Executable, x compute.Buffer) *Buffer {
			t.Helper()
			u := h.run(e, nil, x, y)[0].(*Buffer)
			all = append(all, u)
			return u
		}
		first := run(a, x)
		program := first.at.l
		second := run(b, first)
		third := run(other, x)
		if second.at == nil || second.at.l != program || third.at.l == program {
			t.Errorf("device=%s: the second computation has a program of its own, or the third one has not", device)
		}
		a.Finalize()
		if _, err := a.Execute([]compute.Buffer{x, y}, nil, 0); err == nil {
			t.Errorf("device=%s: a finalized computation runs", device)
		}
		fourth := run(b, second)
		if fourth.at.l != program {
			t.Errorf("device=%s: the program went with the first computation", device)
		}
		b.Finalize()
		if fourth.at != nil {
			t.Errorf("device=%s: the program is there when both computations are finalized", device)
		}
		run(sum(), fourth)
		for i, want := range [][]float32{{8, 7}, {9, 9}, {8, 7}, {10, 11}, {11, 13}} {
			h.want(device, all[i], want...)
		}
	}
}

// What has come stays for the next runs and does not come again, but where somebody was given its
// memory, as GoMLX is of all inputs where buffers are shared.
func TestInputsStay(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		if h.b.HasSharedBuffers() {
			t.Errorf("device=%s: buffers are shared", device)
		}
		e := h.difference()
		x, y := h.buffer(0, []float32{7, 5}, 2), h.buffer(0, []float32{1, 2}, 2)
		h.want("device="+device, h.run(e, nil, x, y)[0], 9)
		x.(*Buffer).flat.([]float32)[0]++ // which nobody may do
		h.want("device="+device+", again", h.run(e, nil, x, y)[0], 9)
		flat, err := x.Data()
		h.check(err)
		flat.([]float32)[1]++
		h.want("device="+device+", given", h.run(e, nil, x, y)[0], 11)
	}
}

// A run that fails before it begins has not brought its inputs, and the next one does.
func TestInputsOfFailedRuns(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		e := h.difference()
		x, y, gone := h.buffer(0, []float32{7, 5}, 2), h.buffer(0, []float32{1, 2}, 2), h.buffer(0, []float32{1, 2}, 2)
		h.check(gone.Finalize())
		if _, err := e.Execute([]compute.Buffer{x, gone}, nil, 0); !errors.Is(err, errGone) {
			t.Fatalf("device=%s, a finalized buffer: %v", device, err)
		}
		h.want("difference", h.run(e, nil, x, y)[0], 9)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		h.b.SetContext(ctx)
		z := h.buffer(0, []float32{3, 4}, 2)
		if _, err := e.Execute([]compute.Buffer{z, x}, nil, 0); !errors.Is(err, context.Canceled) {
			t.Fatalf("device=%s, a context that has ended: %v", device, err)
		}
		h.b.SetContext(context.Background())
		h.want("difference", h.run(e, nil, z, x)[0], -5)
	}
}

// Whoever runs computations while the backend is finalized gets numbers or an error that says so.
func TestClosedWhileRunning(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		e := h.difference()
		x, y := h.buffer(0, []float32{7, 5}, 2), h.buffer(0, []float32{1, 2}, 2)
		var begun, ended sync.WaitGroup
		for range 4 {
			begun.Add(1)
			ended.Go(func() {
				for first := true; ; first = false {
					outs, err := e.Execute([]compute.Buffer{x, y}, nil, 0)
					if first {
						begun.Done()
					}
					if err != nil {
						if !errors.Is(err, errFinalized) {
							t.Errorf("device=%s: %v", device, err)
						}
						return
					}
					got := make([]float32, 1)
					if err := outs[0].ToFlatData(got); err == nil && got[0] != 9 || err != nil && !errors.Is(err, errFinalized) {
						t.Errorf("device=%s: %v, %v", device, got, err)
					}
				}
			})
		}
		begun.Wait()
		h.b.Finalize()
		ended.Wait()
	}
}
