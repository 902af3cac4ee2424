package symm

import (
	"context"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// openOne opens a world of which this process has one rank, and closes it if it fails.
func openOne(w *World, rank, dev int, o *WorldOptions) (*World, error) {
	if err := checkWorld(w.drv, w.n, o, w.single); err != nil {
		return nil, err
	}
	if rank < 0 || rank >= w.n {
		return nil, Invalid("rank", "it must be in [0, %d), got %d", w.n, rank)
	}
	if err := w.open([]int{rank}, []int{dev}, o); err != nil {
		w.Close() // the first error matters
		return nil, err
	}
	return w, nil
}

// NewSingleRankWorld builds one rank's part of a world of n ranks whose memory no other rank
// reaches: on GPUs without access to each other, or on several hosts. Addresses of
// other ranks name nothing, and it has no groups: what the ranks tell each other goes another
// way. n may be far beyond what a host has.
func NewSingleRankWorld(drv driver.Driver, rank, n, dev int, o WorldOptions) (_ *World, err error) {
	w := newWorld(drv, n)
	w.single = true
	w, err = openOne(w, rank, dev, &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.Close() // the first error matters
		}
	}()
	if err := w.begin(context.Background(), &o); err != nil {
		return nil, err
	}
	return w, nil
}
