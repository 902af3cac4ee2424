package cli

import (
	"testing"

	"github.com/seed-ee968945/concert/cuda/nccl"
)

// The last line of topo says which NCCL carries groups across hosts, and what it lacks.
func TestBetweenHosts(t *testing.T) {
	whole, old := nccl.NewHost(nccl.Machine{}), nccl.NewHost(nccl.Machine{})
	old.Lacks = &nccl.LackError{Version: 22304}
	for _, tc := range []struct {
		lib  nccl.Library
		err  error
		want string
	}{
		{nil, nccl.ErrNoLibrary, "between hosts: nothing: no usable NCCL"},
		{old, nil, "between hosts: NCCL 2.28.0, which copies through its own buffers: NCCL 2.23.4 does not use registered memory on the network, 2.24.0 does"},
		{whole, nil, "between hosts: NCCL 2.28.0, which copies through its own buffers, or none where each rank is on a host of its own and adapters can use the arena"},
	} {
		if got := betweenHosts(tc.lib, tc.err); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
