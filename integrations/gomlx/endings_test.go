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

// Computations of one text have one program in a world, until the last of them is finalized.
func TestOneProgram(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		a, b := h.difference(), h.difference()
		x, y := h.buffer(0, []float32{7, 5}, 2), h.buffer(0, []float32{1, 2}, 2)
		first := h.run(a, nil, x, y)[0]
		second := h.run(b, nil, y, x)[0] // where the first was
		w := h.b.worlds["[0]"]
		programs := func(when string, want int) {
			t.Helper()
			if len(w.loaded) != want {
				t.Errorf("device=%s: %d programs %s, want %d", device, len(w.loaded), when, want)
			}
		}
		programs("of two computations", 1)
		a.Finalize()
		if _, err := a.Execute([]compute.Buffer{x, y}, nil, 0); err == nil {
			t.Errorf("device=%s: a finalized computation runs", device)
		}
		programs("of the one that is left", 1)
		third := h.run(b, nil, x, x)[0]
		b.Finalize()
		programs("when both are finalized", 0)
		fourth := h.run(h.difference(), nil, x, y)[0]
		programs("of a third computation", 1)
		for i, u := range []compute.Buffer{first, second, third, fourth} {
			h.want(device, u, []float32{9, -9, 0, 9}[i])
		}
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
