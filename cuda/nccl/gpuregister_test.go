//go:build linux && cgo && (amd64 || arm64)

package nccl

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/drivertest"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// TestRegistered runs the cases, a graph and an all_gather on registered memory, with one
// process per GPU: as ranks of one host, where NCCL then reads and writes it directly, and as two hosts,
// between which sockets cannot; these also lose a rank. NVLink multicast must be off, and
// what NCCL prints must not name it: see RATIONALE.md for where NCCL's source makes sure of that.
func TestRegistered(t *testing.T) {
	drivertest.GPUs(t, *onGPU, 2)
	if os.Getenv("NCCL_NVLS_ENABLE") != "0" {
		t.Skip("registered memory could reach NVLink multicast: set NCCL_NVLS_ENABLE=0")
	}
	env := func(more func(int) []string) func(int) []string {
		return func(rank int) []string {
			return append(more(rank), ownRegistrations+"=0", "NCCL_NVLS_ENABLE=0", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,REG,NVLS")
		}
	}
	native := func(rank int) []string { // NCCL registers what is captured
		return append(env(func(int) []string { return nil })(rank), ownRegistrations+"=1")
	}
	for _, tc := range []struct {
		name, do string
		env      func(int) []string
	}{{"one host", "registered", env(func(int) []string { return nil })}, {"two hosts", "registered", env(apart)},
		{"late on two hosts", "registered late", env(apart)},
		{"other memory at the same addresses", "remapped", env(func(int) []string { return nil })},
		{"natively", "remapped natively", native}} {
		t.Run(tc.name, func(t *testing.T) {
			for rank, out := range runChildren(t, tc.do, tc.env) {
				if strings.Contains(out, "Multicast group") {
					t.Errorf("rank %d: NCCL made an NVLink multicast object", rank)
				}
				// NCCL's lines tear where it writes them from several threads: a sum says little.
				t.Logf("rank %d: NCCL tells of %d registrations, %d of them for a peer's direct access", rank, strings.Count(out, "register comm "), strings.Count(out, "IPC register buffer"))
			}
		})
	}
}

// remapped runs a graph, gives its memory back, maps other memory to its addresses, and runs
// another graph there.
func remapped(t *testing.T, c *Comm, g *gpu, dev int) error {
	bytes := uint64(128 << 20) // for which no protocol but NCCL's simple one is fast, and only that uses registrations
	if !*onGPU {
		bytes = 1 << 16
	}
	at, size, err := reserve(g, dev, 2*bytes)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = g.drv.Unreserve(g.c, at, size) })
	op := Op{Kind: AllReduce, DType: dtype.I32, Tensors: []Tensor{{Src: uintptr(at), Dst: uintptr(at) + uintptr(bytes), Bytes: bytes}}}
	for round := range 3 {
		unmap, err := back(g, dev, at, size)
		if err != nil {
			return errors.Join(err, unmap())
		}
		err = c.Register(op.Tensors[0].Src, 2*bytes)
		if err == nil {
			err = sumInGraph(t, c, g, op, int64(round))
		}
		// Nobody's kernel uses this rank's memory, and then nobody's registration has it.
		err = errors.Join(err, c.g.Barrier(t.Context(), fmt.Sprint("summed ", round)))
		err = errors.Join(err, c.Deregister(op.Tensors[0].Src), c.g.Barrier(t.Context(), fmt.Sprint("deregistered ", round)), unmap())
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// sumInGraph captures an all_reduce, replays it on numbers of a round, and checks all of the result.
func sumInGraph(t *testing.T, c *Comm, g *gpu, op Op, round int64) error {
	n := int(op.Tensors[0].Bytes / 4)
	in := make([]byte, 4*n)
	for i := range n {
		dtype.StoreInt(dtype.I32, in[4*i:], round*1000+int64(i%997)+int64(c.Rank()))
	}
	// Ranks connect at the first run, on the memory's first use.
	if err := errors.Join(g.put(op.Tensors[0].Src, in), c.Run(t.Context(), g.stream, op), c.Wait(t.Context(), "first run", g.done)); err != nil {
		return err
	}
	if err := g.put(op.Tensors[0].Dst, make([]byte, 4*n)); err != nil {
		return err
	}
	graph, x, err := g.captured(func() error { return c.Run(t.Context(), g.stream, op) })
	if err != nil {
		return err
	}
	if err := errors.Join(g.drv.GraphLaunch(g.c, x, g.s), c.Wait(t.Context(), "replay", g.done)); err != nil {
		return err
	}
	got, err := g.get(op.Tensors[0].Dst, 4*n)
	if err != nil {
		return err
	}
	wrong := 0
	for i := range n {
		if dtype.LoadInt(dtype.I32, got[4*i:]) != 2*(round*1000+int64(i%997))+1 {
			wrong++
		}
	}
	if err := errors.Join(g.drv.ExecDestroy(g.c, x), g.drv.GraphDestroy(g.c, graph)); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d elements are wrong", wrong, n)
	}
	return nil
}

// arena makes memory as the device's arena is, which NCCL can share: cuMemAlloc's it cannot.
// It is given back behind the test.
func arena(t *testing.T, g *gpu, dev int) func(n int) (uintptr, error) {
	return func(n int) (uintptr, error) {
		at, size, err := reserve(g, dev, uint64(n))
		if err != nil {
			return 0, err
		}
		t.Cleanup(func() { _ = g.drv.Unreserve(g.c, at, size) }) // on a GPU whose context died it fails
		unmap, err := back(g, dev, at, size)
		t.Cleanup(func() { _ = unmap() })
		return uintptr(at), err
	}
}

// made is how the device makes its arena for several hosts.
func made(g *gpu, dev int) (driver.Sharing, error) {
	infos, err := g.drv.Devices()
	if err == nil && infos[dev].Network {
		return driver.ByFD | driver.Network, nil
	}
	return driver.ByFD, err
}

// reserve takes addresses for n bytes of such memory, rounded up.
func reserve(g *gpu, dev int, n uint64) (at driver.Ptr, size uint64, err error) {
	how, err := made(g, dev)
	if err != nil {
		return 0, 0, err
	}
	unit, err := g.drv.Granularity(g.c, dev, how)
	if err != nil {
		return 0, 0, err
	}
	size = (n + unit - 1) / unit * unit
	at, err = g.drv.Reserve(g.c, size, 0)
	return at, size, err
}

// back maps new memory to addresses; what it gives undoes that.
func back(g *gpu, dev int, at driver.Ptr, size uint64) (unmap func() error, err error) {
	unmap = func() error { return nil }
	how, err := made(g, dev)
	if err != nil {
		return unmap, err
	}
	m, err := g.drv.MemCreate(g.c, dev, size, how)
	if err != nil {
		return unmap, err
	}
	unmap = func() error { return g.drv.MemRelease(g.c, m) }
	if err := g.drv.Map(g.c, at, size, m); err != nil {
		return unmap, err
	}
	unmap = func() error { return errors.Join(g.drv.Unmap(g.c, at, size), g.drv.MemRelease(g.c, m)) }
	return unmap, g.drv.Allow(g.c, at, size, []int{dev})
}

// registering registers all memory with c, while it works.
func registering(t *testing.T, c *Comm, g *gpu, dev int) func(n int) (uintptr, error) {
	plain := arena(t, g, dev)
	return func(n int) (uintptr, error) {
		at, err := plain(n)
		if err == nil && c.Err() == nil {
			err = c.Register(at, uint64(n))
		}
		return at, err
	}
}

// onRegistered times an all_gather before and after its memory is registered, and runs the
// cases and a graph on registered memory.
func onRegistered(t *testing.T, c *Comm, g *gpu, dev int) error {
	if err := c.Registers(); err != nil {
		return err
	}
	part := uint64(64 << 20)
	if !*onGPU {
		part = 1 << 16
	}
	at, err := arena(t, g, dev)(int(3 * part))
	if err != nil {
		return err
	}
	op := Op{Kind: AllGather, DType: dtype.BF16, Tensors: []Tensor{{Src: at, Dst: at + uintptr(part), Bytes: part}}}
	for _, what := range []string{"plain", "registered", "deregistered"} {
		switch what {
		case "registered":
			err = c.Register(at, 3*part)
		case "deregistered":
			err = c.Deregister(at)
		}
		if err != nil {
			return err
		}
		us, err := timed(t, c, g, op)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.Logf("all_gather of %d KiB a rank, %s: %.1f us", part>>10, what, us)
	}
	g.alloc = registering(t, c, g, dev)
	return errors.Join(conform(t.Context(), c, g.device), capture(t.Context(), c, g))
}

// timed is what an operation takes on the device, in microseconds: the mean of ten, after two.
func timed(t *testing.T, c *Comm, g *gpu, op Op) (float64, error) {
	var at [2]driver.Event
	for i := range at {
		var err error
		if at[i], err = g.drv.EventCreate(g.c, true); err != nil {
			return 0, err
		}
	}
	for i := range 12 {
		if i == 2 {
			if err := g.drv.EventRecord(g.c, at[0], g.s); err != nil {
				return 0, err
			}
		}
		if err := c.Run(t.Context(), g.stream, op); err != nil {
			return 0, err
		}
	}
	if err := g.drv.EventRecord(g.c, at[1], g.s); err != nil {
		return 0, err
	}
	if err := c.Wait(t.Context(), "timed", g.done); err != nil {
		return 0, err
	}
	ms, err := g.drv.EventElapsed(g.c, at[0], at[1])
	return float64(ms) * 1e3 / 10, err
}
