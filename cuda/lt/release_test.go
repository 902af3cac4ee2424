//go:build linux

package lt

import (
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// A step that is released takes the library's plan along if it is the last that has it;
// plans that the handle gave out stay.
func TestRelease(t *testing.T) {
	if *onGPU {
		t.Skip("looks into the fake's library")
	}
	b := newBench(t, Options{})
	srv, err := b.lib.Serve(b.ctx, Options{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	live := func() int { return len(b.lib.lib.(*host).plans) }
	before := live()
	plan := func(n int64, at driver.Ptr) library.Releaser {
		t.Helper()
		mat := library.Tensor{At: at, DType: dtype.F32, Shape: []int64{n, n}, Strides: []int64{n, 1}}
		st, err := srv.Plan(&library.Call{Op: "matmul", Ins: []library.Tensor{mat, mat}, Outs: []library.Tensor{mat}, WorkspaceBytes: srv.h.opts.Workspace})
		if err != nil {
			t.Fatal(err)
		}
		return st.(library.Releaser)
	}
	release := func(st library.Releaser, want int) {
		t.Helper()
		if err := st.Release(); err != nil {
			t.Fatal(err)
		}
		if got := live() - before; got != want {
			t.Errorf("the library has %d plans, want %d", got, want)
		}
	}
	first, second, other := plan(16, 4096), plan(16, 8192), plan(24, 4096)
	release(first, 2) // the second has the same problem
	release(other, 1)
	release(second, 0)
	if len(srv.h.plans) != 0 {
		t.Errorf("the handle has %d plans", len(srv.h.plans))
	}
	third := plan(16, 4096)
	problem := third.(*step).plan.problem
	given, err := srv.Handle().Plan(problem)
	if err != nil {
		t.Fatal(err)
	}
	if third.(*step).plan != given {
		t.Fatal("the handle made a plan of its own")
	}
	release(third, 1)
	if again, err := srv.Handle().Plan(problem); err != nil || again != given {
		t.Errorf("the handle made the plan anew, %v", err)
	}
	replaced := plan(24, 4096)
	srv.Handle().Adopt(replaced.(*step).plan.problem, Algo{ID: 1, SplitK: 2, Reduction: 2})
	if len(srv.h.old) != 1 {
		t.Errorf("%d plans were replaced", len(srv.h.old))
	}
	release(replaced, 1)
	if len(srv.h.old) != 0 {
		t.Errorf("%d replaced plans are kept", len(srv.h.old))
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if live() != before {
		t.Errorf("%d plans are left", live()-before)
	}
}
