//go:build linux

package lt

import (
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// host stands in for cuBLASLt on a fake driver: it reads the same descriptors and
// multiplies on host memory. It has two algorithms of the same effect, the second of
// which needs a workspace.
type host struct {
	fn    cuda.CFunc
	mu    sync.Mutex
	next  uint64
	plans map[uint64]*hostPlan
}

type hostPlan struct {
	p         Problem
	workspace uint64
}

const hostWorkspace = 1 << 16

// hostLibrary is the stand-in for a fake driver, and nil for any other.
func hostLibrary(drv cuda.Driver) backend {
	if f, ok := drv.(*cuda.Fake); ok {
		return newHost(f)
	}
	return nil
}

func newHost(f *cuda.Fake) *host {
	h := &host{plans: map[uint64]*hostPlan{}}
	h.fn = f.RegisterCall(h.run)
	return h
}

func (h *host) version() uint64                   { return 1 }
func (h *host) create(cuda.Ctx) (uint64, error)   { return 1, nil }
func (h *host) destroy(cuda.Ctx, uint64) error    { return nil }
func (h *host) call() cuda.CFunc                  { return h.fn }
func (h *host) get(plan uint64) (*hostPlan, bool) { p, ok := h.plans[plan]; return p, ok }

func (h *host) plan(_ cuda.Ctx, _ uint64, p *Problem) (uint64, error) {
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

func (h *host) heuristics(_ cuda.Ctx, _, limit uint64, n int) ([]Algo, error) {
	list := []Algo{{ID: 0, SplitK: 1}, {ID: 1, SplitK: 2, Reduction: 2}}
	if limit < hostWorkspace {
		list = list[:1]
	}
	return list[:min(n, len(list))], nil
}

func (h *host) use(_ cuda.Ctx, plan uint64, a Algo) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.get(plan)
	if !ok || a.ID < 0 || a.ID > 1 {
		return 0, &StatusError{Call: "cublasLtMatmulAlgoCheck", Status: 15}
	}
	p.workspace = uint64(a.ID) * hostWorkspace
	return p.workspace, nil
}

// run is the call of a command buffer.
func (h *host) run(w []uint64) error {
	h.mu.Lock()
	l, ok := h.get(w[0])
	h.mu.Unlock()
	if !ok || len(w) != 6 {
		return errors.New("a product on the host: unknown plan")
	}
	if w[5] < l.workspace {
		return fmt.Errorf("a product on the host: workspace of %d bytes, %d needed", w[5], l.workspace)
	}
	return l.p.onHost(cuda.Ptr(w[1]), cuda.Ptr(w[2]), cuda.Ptr(w[3]))
}

// onHost multiplies on host memory, reading the descriptors as the library does.
func (p *Problem) onHost(x, y, d cuda.Ptr) error {
	size := func(m Matrix, rows, cols int64) int64 {
		if m.Trans {
			rows, cols = cols, rows
		}
		return (p.Batch-1)*m.Stride + (cols-1)*m.LD + rows
	}
	view := func(m Matrix, rows, cols int64, t hostops.Tensor, at cuda.Ptr) hostops.Tensor {
		t.Shape, t.Strides = []int64{p.Batch, rows, cols}, []int64{m.Stride, 1, m.LD}
		if m.Trans {
			t.Strides[1], t.Strides[2] = m.LD, 1
		}
		t.Data = cuda.FakeBytes(at, uint64(size(m, rows, cols))*uint64(t.DType.Size()))
		return t
	}
	in, out := hostops.Tensor{DType: p.Type}, hostops.Tensor{DType: p.Out}
	return hostops.Run("matmul", attr.List{}, []hostops.Tensor{view(p.D, p.M, p.N, out, d)},
		[]hostops.Tensor{view(p.X, p.M, p.K, in, x), view(p.Y, p.K, p.N, in, y)})
}
