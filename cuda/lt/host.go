package lt

import (
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// host stands in for cuBLASLt on a fake driver: it reads the same descriptors and
// multiplies on host memory. It has two algorithms of the same effect, the second of
// which needs a workspace.
type host struct {
	fn   driver.CFunc
	thin driver.CFunc // instead of skinny.cu
	near driver.CFunc // instead of prefetch.cu: it does nothing
	// wrong is the number of an algorithm that is listed third and leaves out the last
	// product of every sum, for tests; zero is none.
	wrong int32
	mu    sync.Mutex
	next  uint64
	plans map[uint64]*hostPlan
}

type hostPlan struct {
	p         Problem
	workspace uint64
	wrong     bool
}

const hostWorkspace = 1 << 16

// hostLibrary is the stand-in for a driver on the host, and nil for any other.
func hostLibrary(drv driver.Driver) backend {
	if d, ok := drv.(driver.HostDriver); ok {
		return newHost(d)
	}
	return nil
}

// onHost reports whether the driver's memory is the host's.
func onHost(drv driver.Driver) bool {
	_, ok := drv.(driver.HostDriver)
	return ok
}

func newHost(d driver.HostDriver) *host {
	h := &host{plans: map[uint64]*hostPlan{}}
	h.fn = d.RegisterCall(h.run)
	h.thin = d.RegisterCall(runSkinny)
	h.near = d.RegisterCall(func([]uint64) error { return nil })
	return h
}

func (h *host) version() uint64                   { return 1 }
func (h *host) create(driver.Ctx) (uint64, error) { return 1, nil }
func (h *host) destroy(driver.Ctx, uint64) error  { return nil }
func (h *host) call() driver.CFunc                { return h.fn }
func (h *host) get(plan uint64) (*hostPlan, bool) { p, ok := h.plans[plan]; return p, ok }

func (h *host) skinny() driver.CFunc { return h.thin }
func (h *host) fetch() driver.CFunc  { return h.near }

func (h *host) plan(_ driver.Ctx, _ uint64, p *Problem) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	h.plans[h.next] = &hostPlan{p: *p}
	return h.next, nil
}

func (h *host) free(plan uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.plans, plan)
}

func (h *host) heuristics(_ driver.Ctx, _, limit uint64, n int) ([]Algo, error) {
	list := []Algo{{ID: 0, SplitK: 1}, {ID: 1, SplitK: 2, Reduction: 2}}
	if limit < hostWorkspace {
		list = list[:1]
	}
	if h.wrong != 0 {
		list = append(list, Algo{ID: h.wrong, SplitK: 1})
	}
	return list[:min(n, len(list))], nil
}

func (h *host) use(_ driver.Ctx, plan uint64, a Algo) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.get(plan)
	wrong := h.wrong != 0 && a.ID == h.wrong
	if !ok || a.ID < 0 || a.ID > 1 && !wrong {
		return 0, &StatusError{Call: "cublasLtMatmulAlgoCheck", Status: 15}
	}
	p.wrong, p.workspace = wrong, 0
	if a.ID == 1 {
		p.workspace = hostWorkspace
	}
	return p.workspace, nil
}

// run is the call of a command buffer.
func (h *host) run(w []uint64) error {
	h.mu.Lock()
	l, ok := h.get(w[0])
	h.mu.Unlock()
	if !ok || len(w) != 6 {
		return errors.New("a matmul on the host: unknown plan")
	}
	if w[5] < l.workspace {
		return fmt.Errorf("a matmul on the host: workspace of %d bytes, %d needed", w[5], l.workspace)
	}
	if l.wrong {
		p := l.p
		p.K--
		return p.onHost(driver.Ptr(w[1]), driver.Ptr(w[2]), driver.Ptr(w[3]))
	}
	return l.p.onHost(driver.Ptr(w[1]), driver.Ptr(w[2]), driver.Ptr(w[3]))
}

// onHost multiplies on host memory, reading the descriptors as the library does.
func (p *Problem) onHost(x, y, d driver.Ptr) error {
	size := func(m Matrix, rows, cols int64) int64 {
		if m.Trans {
			rows, cols = cols, rows
		}
		return (p.Batch-1)*m.Stride + (cols-1)*m.LD + rows
	}
	view := func(m Matrix, rows, cols int64, t hostops.Tensor, at driver.Ptr) hostops.Tensor {
		t.Shape, t.Strides = []int64{p.Batch, rows, cols}, []int64{m.Stride, 1, m.LD}
		if m.Trans {
			t.Strides[1], t.Strides[2] = m.LD, 1
		}
		t.Data = driver.HostBytes(at, uint64(size(m, rows, cols))*uint64(t.DType.Size()))
		return t
	}
	in, out := hostops.Tensor{DType: p.Type}, hostops.Tensor{DType: p.Out}
	op, ins := "matmul", []hostops.Tensor{view(p.X, p.M, p.K, in, x), view(p.Y, p.K, p.N, in, y)}
	if p.Bias != 0 {
		bias := out
		bias.Shape, bias.Strides = []int64{p.Batch, p.M, p.N}, []int64{0, 1, 0}
		bias.Data = driver.HostBytes(p.Bias, uint64(p.M)*uint64(p.Out.Size()))
		op, ins = "addmm", append([]hostops.Tensor{bias}, ins...)
	}
	return hostops.Run(op, attr.List{}, []hostops.Tensor{view(p.D, p.M, p.N, out, d)}, ins)
}

// sampleOnHost does the work of check.cu on host memory.
func (p *Problem) sampleOnHost(n int64, x, y, d driver.Ptr) ([]sample, error) {
	read := func(at driver.Ptr, m Matrix, t dtype.DType) func(z, r, c int64) float64 {
		size := int64(t.Size())
		return func(z, r, c int64) float64 {
			if m.Trans {
				r, c = c, r
			}
			return dtype.LoadFloat(t, driver.HostBytes(at+driver.Ptr((z*m.Stride+r+c*m.LD)*size), uint64(size)))
		}
	}
	fx, fy, fd := read(x, p.X, p.Type), read(y, p.Y, p.Type), read(d, p.D, p.Out)
	total := uint64(p.M) * uint64(p.N) * uint64(p.Batch)
	out := make([]sample, n)
	for i := range out {
		at := int64(uint64(i) * 0x9e3779b97f4a7c15 % total)
		if i == 0 {
			at = int64(total - 1)
		}
		r, c, z := at%p.M, at/p.M%p.N, at/p.M/p.N
		for k := range p.K {
			v := fx(z, r, k) * fy(z, k, c)
			out[i].want += v
			out[i].squares += v * v
		}
		out[i].got = fd(z, r, c)
	}
	return out, nil
}

// runSkinny reads struct args of skinny.cu.
func runSkinny(w []uint64) error {
	low := func(v uint64) int64 { return int64(uint32(v)) }
	high := func(v uint64) int64 { return int64(v >> 32) }
	if len(w) < 9 || (len(w)-4)%5 != 0 {
		return fmt.Errorf("a matmul of few rows: %d parameters", len(w))
	}
	for m := w[4:]; len(m) > 0; m = m[5:] {
		p := Problem{Type: dtype.BF16, Out: dtype.BF16, M: low(m[4]), N: low(w[2]), K: high(w[2]), Batch: 1, Swapped: true,
			X: Matrix{Trans: true, LD: int64(m[2])}, Y: Matrix{LD: int64(w[1])}, D: Matrix{LD: int64(m[3])}}
		if err := p.onHost(driver.Ptr(m[0]), driver.Ptr(w[0]), driver.Ptr(m[1])); err != nil {
			return err
		}
	}
	return nil
}
