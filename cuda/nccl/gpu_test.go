//go:build linux && cgo && (amd64 || arm64)

package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/drivertest"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// gpu is one rank's device for the tests that need one.
type gpu struct {
	device
	drv driver.Driver
	c   driver.Ctx
	s   driver.Stream
}

// captured is what run enqueues in the stream, as a graph.
func (g *gpu) captured(run func() error) (graph driver.Graph, x driver.Exec, err error) {
	if err = g.drv.CaptureBegin(g.c, g.s); err == nil {
		err = run()
	}
	if err == nil {
		graph, err = g.drv.CaptureEnd(g.c, g.s)
	}
	if err == nil {
		x, err = g.drv.GraphInstantiate(g.c, graph)
	}
	return graph, x, err
}

func openGPU(dev int) (*gpu, error) {
	drv, err := driver.Open("")
	if err != nil {
		return nil, err
	}
	return openDriver(drv, dev)
}

func openDriver(drv driver.Driver, dev int) (*gpu, error) {
	c, err := drv.CtxRetain(dev)
	if err != nil {
		return nil, err
	}
	s, err := drv.StreamCreate(c)
	if err != nil {
		return nil, err
	}
	return &gpu{drv: drv, c: c, s: s, device: device{ctx: uintptr(c), stream: uintptr(s),
		alloc: func(n int) (uintptr, error) { p, err := drv.MemAlloc(c, uint64(n)); return uintptr(p), err },
		put: func(at uintptr, b []byte) error {
			if len(b) == 0 {
				return nil
			}
			return drv.CopyIn(c, s, driver.Ptr(at), b)
		},
		get: func(at uintptr, n int) ([]byte, error) {
			b := make([]byte, n)
			if n == 0 {
				return b, nil
			}
			return b, drv.CopyOut(c, s, b, driver.Ptr(at))
		},
		done: func() (bool, error) { return drv.StreamQuery(c, s) }}}, nil
}

// A child of TestProcesses is one rank. The environment says which, and what to do.
const (
	childRank = "CONCERT_TEST_NCCL_RANK"
	childJob  = "CONCERT_TEST_NCCL_JOB"
	childDo   = "CONCERT_TEST_NCCL_DO"
)

// TestProcesses runs the cases with one process per GPU: as ranks of one host, and
// as two hosts, which NCCL then connects by sockets over loopback.
func TestProcesses(t *testing.T) {
	drivertest.GPUs(t, *onGPU, 2)
	together := func(int) []string { return nil }
	for _, tc := range []struct {
		name, do string
		env      func(int) []string
	}{{"one host", "conform", together}, {"two hosts", "conform", apart}, {"speed on one host", "speed", together}, {"speed on two hosts", "speed", apart},
		{"capture", "capture", together}, {"capture on two hosts", "capture", apart},
		{"late on one host", "late", together}, {"late on two hosts", "late", apart},
		{"killed on one host", "killed", together}, {"killed on two hosts", "killed", apart}} {
		t.Run(tc.name, func(t *testing.T) { runChildren(t, tc.do, tc.env) })
	}
}

// apart makes a rank a host of its own for NCCL, which then connects by sockets over loopback.
func apart(rank int) []string {
	return []string{fmt.Sprintf("NCCL_HOSTID=host%d", rank), "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_IB_DISABLE=1"}
}

// runChildren runs a process for each of two ranks, and gives what they print.
func runChildren(t *testing.T, do string, env func(int) []string) (printed [2]string) {
	job := rendezvous.NewJob("")
	cx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	errs := ranks(2, func(rank int) error {
		cmd := exec.CommandContext(cx, os.Args[0], "-test.run=^TestChild$", "-test.v", "-gpu", "-nccl="+*libPath)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Env = append(append(os.Environ(), env(rank)...), childRank+"="+strconv.Itoa(rank), childJob+"="+job.Token(), childDo+"="+do)
		out, err := cmd.CombinedOutput()
		printed[rank] = string(out)
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "gpu_test.go") || strings.Contains(line, "gpuregister_test.go") {
				t.Logf("rank %d: %s", rank, strings.TrimSpace(line))
			}
		}
		if err != nil && !(do == "killed" && rank == 1) {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	noErrors(t, errs)
	return printed
}

// TestChild is one rank of TestProcesses or TestRegistered.
func TestChild(t *testing.T) {
	text, ok := os.LookupEnv(childRank)
	if !ok {
		t.Skip("is run by TestProcesses")
	}
	rank, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := Open(*libPath)
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGPU(rank)
	if err != nil {
		t.Fatal(err)
	}
	st, err := rendezvous.ParseJob(os.Getenv(childJob))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c, err := Join(t.Context(), lib, member(t, st, rank, 2), "g", g.ctx, Options{Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := lib.Version()
	t.Logf("NCCL %s joined in %v", VersionText(v), time.Since(start).Round(time.Millisecond))
	switch do := os.Getenv(childDo); do {
	case "conform":
		err = conform(t.Context(), c, g.device)
	case "speed":
		err = speed(t, c, g)
	case "capture":
		err = capture(t.Context(), c, g)
	case "registered":
		err = onRegistered(t, c, g, rank)
	case "remapped":
		err = remapped(t, c, g, rank)
	case "remapped natively":
		t.Logf("rank %d, with NCCL's own registrations: %v", rank, remapped(t, c, g, rank))
		return // whatever became of it
	case "late", "killed", "registered late":
		if do == "registered late" {
			g.alloc = registering(t, c, g, rank)
		}
		err = lose(t, lib, st, c, g, do == "killed")
		if err != nil {
			t.Fatal(err)
		}
		return
	default:
		err = fmt.Errorf("unknown %q", do)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOneProcess runs two ranks of one process.
func TestOneProcess(t *testing.T) {
	drivertest.GPUs(t, *onGPU, 2)
	lib, err := Open(*libPath)
	if err != nil {
		t.Fatal(err)
	}
	st := rendezvous.NewLocal()
	noErrors(t, ranks(2, func(rank int) error {
		g, err := openGPU(rank)
		if err != nil {
			return err
		}
		c, err := Join(t.Context(), lib, member(t, st, rank, 2), "g", g.ctx, Options{Timeout: 20 * time.Second})
		if err != nil {
			return err
		}
		return errors.Join(conform(t.Context(), c, g.device), c.Close(t.Context()))
	}))
}

// speed logs what an all_reduce takes, and what the host spends to enqueue it.
func speed(t *testing.T, c *Comm, g *gpu) error {
	at, err := g.alloc(256 << 20)
	if err != nil {
		return err
	}
	from, err := g.drv.EventCreate(g.c, true)
	if err != nil {
		return err
	}
	to, err := g.drv.EventCreate(g.c, true)
	if err != nil {
		return err
	}
	for _, size := range []uint64{1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20} {
		op := Op{Kind: AllReduce, DType: dtype.BF16, Tensors: []Tensor{{Src: at, Dst: at, Bytes: size}}}
		calls := 200
		if size > 1<<20 {
			calls = 10
		}
		var device, host []float64
		for range 6 {
			if err := g.drv.EventRecord(g.c, from, g.s); err != nil {
				return err
			}
			start := time.Now()
			for range calls {
				if err := c.Run(t.Context(), g.stream, op); err != nil {
					return err
				}
			}
			host = append(host, float64(time.Since(start).Nanoseconds())/1e3/float64(calls))
			if err := g.drv.EventRecord(g.c, to, g.s); err != nil {
				return err
			}
			if err := c.Wait(t.Context(), "all_reduce", g.done); err != nil {
				return err
			}
			ms, err := g.drv.EventElapsed(g.c, from, to)
			if err != nil {
				return err
			}
			device = append(device, float64(ms)*1e3/float64(calls))
		}
		slices.Sort(device)
		slices.Sort(host)
		t.Logf("all_reduce bf16 %9d bytes: %.1f us per call, host %.2f us per call (median of 6 x %d)", size, device[3], host[3], calls)
	}
	return nil
}

// capture records ops in a graph and replays it.
func capture(cx context.Context, c *Comm, g *gpu) error {
	const n = 1000
	at, err := g.alloc(8 * n * 4)
	if err != nil {
		return err
	}
	a := func(k int) uintptr { return at + uintptr(k*n*4) }
	ops := []Op{{Kind: AllReduce, DType: dtype.I32, Tensors: []Tensor{{Src: a(0), Dst: a(1), Bytes: n * 4}, {Src: a(0), Dst: a(2), Bytes: n * 4}}},
		{Kind: Permute, DType: dtype.I32, Pairs: []int{0, 1}, Tensors: []Tensor{{Src: a(1), Dst: a(3), Bytes: n * 4}}},
		{Kind: AllToAll, DType: dtype.I32, Tensors: []Tensor{{Src: a(2), Dst: a(2), Bytes: n * 2}}, Scratch: a(6), ScratchBytes: 2 * n * 4}}
	runAll := func() error {
		for _, op := range ops {
			if err := c.Run(cx, g.stream, op); err != nil {
				return err
			}
		}
		return nil
	}
	if err := runAll(); err != nil { // connects the ranks
		return err
	}
	if err := c.Wait(cx, "first run", g.done); err != nil {
		return err
	}
	graph, x, err := g.captured(runAll)
	if err != nil {
		return err
	}
	for replay := range 20 {
		in := make([]byte, n*4)
		for i := range n {
			dtype.StoreInt(dtype.I32, in[4*i:], int64(replay*1000+i+c.Rank()))
		}
		if err := g.put(a(0), in); err != nil {
			return err
		}
		if err := g.drv.GraphLaunch(g.c, x, g.s); err != nil {
			return err
		}
		if err := c.Wait(cx, "replay", g.done); err != nil {
			return err
		}
		for _, k := range []int{1, 2, 3} {
			got, err := g.get(a(k), n*4)
			if err != nil {
				return err
			}
			for i := range n {
				want := int64(2*(replay*1000+i) + 1)
				switch {
				case k == 2: // halves exchanged: rank 0 keeps its first half, gets the peer's first
					want = int64(2*(replay*1000+c.Rank()*n/2+i%(n/2)) + 1)
				case k == 3 && c.Rank() == 0:
					want = 0
				}
				if v := dtype.LoadInt(dtype.I32, got[4*i:]); v != want {
					return fmt.Errorf("replay %d, tensor %d, element %d: %d, want %d", replay, k, i, v, want)
				}
			}
		}
	}
	return errors.Join(g.drv.ExecDestroy(g.c, x), g.drv.GraphDestroy(g.c, graph))
}

// lose drops out on rank 1, by not calling or by dying, while rank 0 waits. Rank 0
// gets a typed error, its context lives, and what is left of the ranks forms a new
// group.
func lose(t *testing.T, lib Library, st *rendezvous.Job, c *Comm, g *gpu, kill bool) error {
	at, err := g.alloc(1 << 20)
	if err != nil {
		return err
	}
	op := Op{Kind: AllReduce, DType: dtype.F32, Tensors: []Tensor{{Src: at, Dst: at, Bytes: 1 << 20}}}
	for range 10 {
		if err := c.Run(t.Context(), g.stream, op); err != nil {
			return err
		}
	}
	if err := c.Wait(t.Context(), "warm", g.done); err != nil {
		return err
	}
	c.timeout = 2 * time.Second
	start := time.Now()
	if c.Rank() == 1 {
		if kill {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		<-c.broken
		err = c.Err()
		var b *rendezvous.CanceledError
		if !errors.As(err, &b) || b.Origin != 0 {
			return fmt.Errorf("rank 1: %v", err)
		}
	} else {
		if err = c.Run(t.Context(), g.stream, op); err == nil {
			err = c.Wait(t.Context(), "all_reduce", g.done)
		}
		if !errors.Is(err, rendezvous.ErrTimeout) && !errors.Is(err, rendezvous.ErrCanceled) {
			return fmt.Errorf("rank 0: %v", err)
		}
	}
	t.Logf("rank %d after %v: %v", c.Rank(), time.Since(start).Round(time.Millisecond), err)
	if err := g.drv.StreamSync(g.c, g.s); err != nil {
		return fmt.Errorf("the context died: %w", err)
	}
	if err := c.Close(t.Context()); err != nil {
		return err
	}
	n := 2
	if kill {
		n = 1
	}
	next, err := Join(t.Context(), lib, member(t, st, c.Rank(), n), "next", g.ctx, Options{Timeout: plenty})
	if err != nil {
		return fmt.Errorf("joining anew: %w", err)
	}
	return errors.Join(conform(t.Context(), next, g.device), next.Close(t.Context()))
}
