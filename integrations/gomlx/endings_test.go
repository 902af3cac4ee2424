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
