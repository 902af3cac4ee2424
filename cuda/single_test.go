//go:build linux

package cuda

import (
	"bytes"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
)

// A single-rank world of any size has memory of its rank alone, and gives it back.
func TestSingleRankWorld(t *testing.T) {
	f := fake.New(1)
	w, err := symm.NewSingleRankWorld(f, 70, 100, 0, symm.WorldOptions{Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	off, err := w.Alloc(4096, 256)
	if err != nil {
		t.Fatal(err)
	}
	r, at, want := w.Rank(70), w.Addr(70, off), bytes.Repeat([]byte{7}, 4096)
	if r == nil || w.Rank(0) != nil || len(w.Local()) != 1 {
		t.Fatalf("ranks %v", w.Local())
	}
	got := make([]byte, len(want))
	if err := f.CopyIn(r.Ctx, r.Setup(), at, want); err != nil {
		t.Fatal(err)
	}
	if err := f.CopyOut(r.Ctx, r.Setup(), got, at); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v %v", err, got[:8])
	}
	if err := w.Barrier(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := coll.NewGroup(t.Context(), w, []int{70, 71}, coll.GroupOptions{}); err == nil {
		t.Error("a group of a single-rank world")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	failed := 0
	for { // every call may fail, and nothing is left
		f.FailCall(failed+1, nil)
		w, err := symm.NewSingleRankWorld(f, 0, 2, 0, symm.WorldOptions{Bytes: 1 << 20})
		f.FailCall(0, nil)
		if err == nil {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			break
		}
		failed++
	}
	if failed < 5 {
		t.Errorf("only %d calls could fail", failed)
	}
	if l := f.Leaks().String(); l != "" {
		t.Errorf("not released: %s", l)
	}
	if _, err := symm.NewSingleRankWorld(f, 2, 2, 0, symm.WorldOptions{}); err == nil {
		t.Error("rank 2 of 2")
	}
}
