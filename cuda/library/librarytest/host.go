package librarytest

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// Host serves every operation by the host's kernels, on the fake driver only: for programs
// of tests that are about something else than what computes them.
type Host struct{ Driver driver.HostDriver }

// Plan implements library.Library.
func (h Host) Plan(c *library.Call) (library.Step, error) {
	if !hostops.Has(c.Op) {
		return nil, fmt.Errorf("%w: no kernel of the host is called %s", library.ErrNotServed, c.Op)
	}
	return library.OnHost(h.Driver, "host", c), nil
}

// Close implements library.Library.
func (h Host) Close() error { return nil }
