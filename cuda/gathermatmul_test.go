//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/wgmma"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// gatherT is a matmul that gathers: rows of each rank, K and N, and how the right operand is.
type gatherT struct {
	d          dtype.DType
	rows, k, n int64
	trans      bool
	inPlace    bool // the own rows are where they are gathered
}

// matmulsT are libraries of matmuls for a world's ranks.
type matmulsT struct {
	*rigT
	g    *coll.Group
	libs []*wgmma.Library
}

func newMatmuls(r *rigT, g *coll.Group) *matmulsT {
	r.t.Helper()
	x := &matmulsT{rigT: r, g: g, libs: make([]*wgmma.Library, r.w.Size())}
	for _, k := range r.w.Local() {
		info := driver.DeviceInfo{Major: 9, SMs: 4} // the fake driver's devices are older
		if *onGPU {
			info = k.Info
			info.SMs /= r.w.Sharing()
		}
		lib, err := wgmma.Open(r.drv, k.Ctx, info, images(r.t))
		if errors.Is(err, library.ErrUnavailable) {
			r.t.Skip(err)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		x.libs[k.ID] = lib
	}
	return x
}

func (x *matmulsT) close() {
	for _, l := range x.libs {
		if l != nil {
			if err := l.Close(); err != nil {
				x.t.Error(err)
			}
		}
	}
}

// at is an address of a rank's memory.
func (x *matmulsT) at(rank int, off uint64) driver.Ptr { return x.rigT.w.Addr(rank, off) }

// tensor is a matrix there, row by row or column by column.
func (x *matmulsT) tensor(rank int, d dtype.DType, off uint64, rows, cols int64, trans bool) library.Tensor {
	t := library.Tensor{At: x.at(rank, off), DType: d, Shape: []int64{rows, cols}, Strides: []int64{cols, 1}}
	if trans {
		t.Strides = []int64{1, rows}
	}
	return t
}

// gathersT are the matmuls of a world's ranks, and where their tensors are in each.
type gathersT struct {
	*matmulsT
	s            gatherT
	own, w       uint64
	all, product uint64
	apart        uint64 // the product of the gathered rows by a matmul alone
}

const edge = 256 // bytes around results that nobody may write

func newGathers(r *rigT, g *coll.Group, s gatherT) *gathersT {
	r.t.Helper()
	n := int64(r.w.Size())
	x := &gathersT{matmulsT: newMatmuls(r, g), s: s}
	x.w, x.own = r.alloc(uint64(2*s.k*s.n)), r.alloc(uint64(2*s.rows*s.k))
	x.all = r.alloc(uint64(2*n*s.rows*s.k)+2*edge) + edge
	x.product = r.alloc(uint64(2*n*s.rows*s.n)+2*edge) + edge
	x.apart = r.alloc(uint64(2 * n * s.rows * s.n))
	return x
}

// ownRows is where a rank's rows are.
func (x *gathersT) ownRows(rank int) uint64 {
	if x.s.inPlace {
		return x.all + uint64(2*int64(rank)*x.s.rows*x.s.k)
	}
	return x.own
}

// prepare plans the call of a rank, and the matmul of what it gathers.
func (x *gathersT) prepare(m *coll.Member) (*coll.Prepared, library.Step, error) {
	s, rank, n := x.s, m.Rank.ID, int64(x.rigT.w.Size())
	w, all := x.tensor(rank, s.d, x.w, s.k, s.n, s.trans), x.tensor(rank, s.d, x.all, n*s.rows, s.k, false)
	alone, err := x.libs[rank].Plan(&library.Call{Op: "matmul", Ins: []library.Tensor{all, w}, Outs: []library.Tensor{x.tensor(rank, s.d, x.apart, n*s.rows, s.n, false)}})
	if err != nil {
		return nil, nil, err
	}
	p, err := m.PrepareOwn(kernels.AllGatherMatmul, func(a *kernels.Args, c *driver.Commands) error {
		st, err := x.libs[rank].PlanGather(&library.Call{Op: "all_gather_matmul", Ins: []library.Tensor{x.tensor(rank, s.d, x.ownRows(rank), s.rows, s.k, false), w},
			Outs: []library.Tensor{all, x.tensor(rank, s.d, x.product, n*s.rows, s.n, false)}}, a)
		if err == nil {
			st.AddTo(c)
		}
		return err
	})
	return p, alone, err
}

// data is a rank's rows of a round.
func (x *gathersT) data(rank, round int) []byte {
	return randomBytes(rand.New(rand.NewPCG(uint64(rank), uint64(round))), x.s.d, int(x.s.rows*x.s.k), false)
}

// fill gives all ranks their operands of a round, and poison for results.
func (x *gathersT) fill(round int) {
	n := int64(x.rigT.w.Size())
	poison := bytes.Repeat([]byte{0xff, 0x7f}, int(max(n*x.s.rows*x.s.k, n*x.s.rows*x.s.n)+edge))
	for _, rank := range x.local() {
		x.write(rank, x.w, randomBytes(rand.New(rand.NewPCG(99, uint64(rank))), x.s.d, int(x.s.k*x.s.n), false))
		x.write(rank, x.all-edge, poison[:2*n*x.s.rows*x.s.k+2*edge])
		x.write(rank, x.product-edge, poison[:2*n*x.s.rows*x.s.n+2*edge])
		x.write(rank, x.ownRows(rank), x.data(rank, round))
	}
}

// compare holds what a round has left against the rows of all ranks and the matmul of them.
func (x *gathersT) compare(round int, alone []library.Step) error {
	n := x.rigT.w.Size()
	var all []byte
	for rank := range n {
		all = append(all, x.data(rank, round)...)
	}
	for _, m := range x.g.Members() {
		rank := m.Rank.ID
		var c driver.Commands
		alone[rank].AddTo(&c)
		if err := x.drv.Run(m.Rank.Ctx, c.On(x.streams[rank])); err != nil {
			return err
		}
		around := bytes.Repeat([]byte{0xff, 0x7f}, edge/2)
		for _, r := range []struct {
			what string
			off  uint64
			want []byte
		}{{"the gathered rows", x.all, all}, {"the product", x.product, x.read(rank, x.apart, uint64(2*int64(n)*x.s.rows*x.s.n))}} {
			got := x.read(rank, r.off-edge, uint64(len(r.want)+2*edge))
			alike := same
			if r.off == x.product && strings.HasSuffix(alone[rank].String(), "x2") {
				alike = x.summed
			}
			if at := alike(x.s.d, got[edge:edge+len(r.want)], r.want); at >= 0 {
				return fmt.Errorf("rank %d: element %d of %s", rank, at, r.what)
			}
			if !bytes.Equal(got[:edge], around) || !bytes.Equal(got[edge+len(r.want):], around) {
				return fmt.Errorf("rank %d: what lies around %s has changed", rank, r.what)
			}
		}
	}
	return nil
}

// summed compares products that are summed in two orders: the first element that is off by more than a
// rounding to its type and what float32 loses in k steps from sums of about 32 * sqrt(k).
func (x *gathersT) summed(d dtype.DType, a, b []byte) int {
	ulp, noise := map[dtype.DType]float64{dtype.BF16: 1.0 / 128, dtype.F16: 1.0 / 1024}[d], 0x1p-18*math.Pow(float64(x.s.k), 1.5)
	for i := 0; i < len(a); i += 2 {
		g, w := dtype.LoadFloat(d, a[i:]), dtype.LoadFloat(d, b[i:])
		if !(math.Abs(g-w) <= math.Abs(w)*ulp+noise) {
			return i / 2
		}
	}
	return -1
}

// TestGatherMatmul gathers rows and multiplies them as they come: all results have the bits of a
// gather and our matmul, if that cuts no sums over blocks, in rounds that ranks begin in any order, and in replays.
func TestGatherMatmul(t *testing.T) {
	cases := []gatherT{
		{dtype.BF16, 40, 64, 72, false, false}, {dtype.F16, 128, 64, 64, true, true}, {dtype.BF16, 1, 8, 8, true, false}, {dtype.BF16, 40, 1024, 16, false, true},
		{dtype.BF16, 40, 4096, 16, false, false},
	}
	worlds := []int{2, 3, 8}
	if *onGPU {
		worlds = []int{2, 4}
		cases = append(cases, gatherT{dtype.BF16, 512, 4096, 1536, false, false}, gatherT{dtype.BF16, 512, 4096, 1536, true, true}, gatherT{dtype.F16, 1000, 1024, 3584, true, false},
			gatherT{dtype.BF16, 2048, 512, 4096, false, false}, gatherT{dtype.BF16, 136, 4096, 1024, false, false})
	}
	for _, n := range worlds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			n := ranksOf(n)
			for i, s := range cases {
				if !*onGPU && n > 2 && i > 0 { // as with fewer ranks
					continue
				}
				t.Run(fmt.Sprintf("%d rows of %d", s.rows, s.k), func(t *testing.T) {
					r := newRigBytes(t, n, 64<<20+uint64(16*int64(n)*s.rows*(s.k+s.n)+4*s.k*s.n))
					if f, ok := r.drv.(*fake.Driver); ok && n > 2 {
						f.Jitter(20 * time.Microsecond)
					}
					x := newGathers(r, r.g, s)
					t.Cleanup(x.close)
					if err := x.rounds(3); err != nil {
						t.Errorf("%+v: %v", s, err)
					}
				})
			}
		})
	}
}

// rounds runs the call on its own and as replays of a capture by turns.
func (x *gathersT) rounds(rounds int) (failed error) {
	n := x.rigT.w.Size()
	plans, alone, execs := make([]*coll.Prepared, n), make([]library.Step, n), make([]driver.Exec, n)
	for _, m := range x.g.Members() {
		i, k := m.Rank.ID, m.Rank
		var err error
		if plans[i], alone[i], err = x.prepare(m); err != nil {
			return err
		}
		if err := x.drv.CaptureBegin(k.Ctx, x.streams[i]); err != nil {
			return err
		}
		err = errors.Join(plans[i].Enqueue(x.streams[i]), plans[i].Enqueue(x.streams[i]))
		g, end := x.drv.CaptureEnd(k.Ctx, x.streams[i])
		if err := errors.Join(err, end); err != nil {
			return err
		}
		if execs[i], err = x.drv.GraphInstantiate(k.Ctx, g); err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, x.drv.ExecDestroy(k.Ctx, execs[i]), x.drv.GraphDestroy(k.Ctx, g)) }()
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range rounds {
		x.fill(round)
		if err := x.rigT.w.Barrier(x.t.Context()); err != nil { // no rank writes to one that fills
			return err
		}
		for _, j := range rng.Perm(len(x.g.Members())) {
			m := x.g.Members()[j]
			i := m.Rank.ID
			var err error
			if round%2 == 0 {
				err = plans[i].Enqueue(x.streams[i])
			} else {
				err = x.drv.GraphLaunch(m.Rank.Ctx, execs[i], x.streams[i])
			}
			if err != nil {
				return err
			}
		}
		for _, m := range x.g.Members() {
			if err := m.Check(x.t.Context(), x.streams[m.Rank.ID]); err != nil {
				return err
			}
		}
		if err := x.compare(round, alone); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := x.rigT.w.Barrier(x.t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// enqueue runs the call on all ranks but one. All are planned before: a kernel that waits for a peer
// keeps the driver from loading code.
func (x *gathersT) enqueue(absent int) {
	plans := map[*coll.Member]*coll.Prepared{}
	for _, m := range x.g.Members() {
		p, _, err := x.prepare(m)
		if err != nil {
			x.t.Fatal(err)
		}
		plans[m] = p
	}
	for _, m := range x.g.Members() {
		if m.Rank.ID == absent {
			continue
		}
		if err := plans[m].Enqueue(x.streams[m.Rank.ID]); err != nil && !gaveUp(err) { // where this takes its time
			x.t.Fatal(err)
		}
	}
}
