//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// scatterT is a matmul that scatters: rows of each rank's result, K and N, and how the operands are.
type scatterT struct {
	d              dtype.DType
	rows, k, n     int64
	transA, transB bool
	red            kernels.Reduction
}

// scattersT are the matmuls of a world's ranks, and where their tensors are in each.
type scattersT struct {
	*matmulsT
	s              scatterT
	a, w           uint64
	product, out   uint64
	whole, reduced uint64 // a product of a matmul alone, and what a reduce_scatter makes of it
}

func newScatters(r *rigT, g *coll.Group, s scatterT) *scattersT {
	r.t.Helper()
	n := int64(r.w.Size())
	x := &scattersT{matmulsT: newMatmuls(r, g), s: s}
	x.a, x.w = r.alloc(uint64(2*n*s.rows*s.k)), r.alloc(uint64(2*s.k*s.n))
	x.product, x.whole = r.alloc(uint64(2*n*s.rows*s.n)), r.alloc(uint64(2*n*s.rows*s.n))
	x.out = r.alloc(uint64(2*s.rows*s.n)+2*edge) + edge
	x.reduced = r.alloc(uint64(2 * s.rows * s.n))
	return x
}

// scattering is a rank's calls: a matmul that sends and the reduction of what came, and a matmul and a reduce_scatter.
type scattering struct {
	send, alone      library.Step
	reduction, apart *coll.Prepared
}

func (p *scattering) addTo(c *driver.Commands) {
	p.send.AddTo(c)
	p.reduction.AddTo(c)
}

func (p *scattering) addApart(c *driver.Commands) {
	p.alone.AddTo(c)
	p.apart.AddTo(c)
}

// prepare plans the calls of a rank.
func (x *scattersT) prepare(m *coll.Member) (p scattering, err error) {
	s, rank, n := x.s, m.Rank.ID, int64(x.rigT.w.Size())
	ins := []library.Tensor{x.tensor(rank, s.d, x.a, n*s.rows, s.k, s.transA), x.tensor(rank, s.d, x.w, s.k, s.n, s.transB)}
	call := func(out uint64) *library.Call {
		return &library.Call{Op: "matmul", Ins: ins, Outs: []library.Tensor{x.tensor(rank, s.d, out, n*s.rows, s.n, false)}}
	}
	piece := uint64(2 * s.rows * s.n)
	own := x.at(rank, x.product+uint64(rank)*piece)
	op := coll.Op{Kind: kernels.ReduceScatter, Red: s.red, DType: s.d, Algo: kernels.Sent, Tensors: []coll.Tensor{{Src: own, Dst: x.at(rank, x.out), Bytes: piece}}}
	if p.reduction, err = m.Prepare(op); err != nil {
		return p, err
	}
	op.Algo, op.Symmetric, op.Kernels, op.Tensors = kernels.Auto, true, true, []coll.Tensor{{Src: x.at(rank, x.whole), Dst: x.at(rank, x.reduced), Bytes: piece}}
	if p.apart, err = m.Prepare(op); err != nil {
		return p, err
	}
	if p.alone, err = x.libs[rank].Plan(call(x.whole)); err != nil {
		return p, err
	}
	p.send, err = x.libs[rank].PlanScatter(call(x.product), m.SentTo(own, piece), m.Index)
	return p, err
}

// fill gives all ranks their operands of a round, and poison for results.
func (x *scattersT) fill(round int) {
	n := int64(x.rigT.w.Size())
	rng := func(rank int) *rand.Rand { return rand.New(rand.NewPCG(uint64(rank), uint64(round))) }
	poison := bytes.Repeat([]byte{0xff, 0x7f}, int(n*x.s.rows*x.s.n)+edge)
	for _, rank := range x.local() {
		x.write(rank, x.a, randomBytes(rng(rank), x.s.d, int(n*x.s.rows*x.s.k), false))
		x.write(rank, x.w, randomBytes(rng(rank+99), x.s.d, int(x.s.k*x.s.n), false))
		x.write(rank, x.product, poison[:2*n*x.s.rows*x.s.n])
		x.write(rank, x.out-edge, poison[:2*x.s.rows*x.s.n+2*edge])
	}
}

// rounds runs the calls on their own and as replays of a capture by turns, with delays on some ranks; what
// they give has to have the bits of a matmul and a reduce_scatter.
func (x *scattersT) rounds(rounds int) (failed error) {
	n := x.rigT.w.Size()
	plans, execs := make([]scattering, n), make([]driver.Exec, n)
	var made lifo
	defer func() { failed = errors.Join(failed, made.undo()) }()
	for _, m := range x.g.Members() {
		var err error
		i := m.Rank.ID
		if plans[i], err = x.prepare(m); err != nil {
			return err
		}
		var c driver.Commands
		for range 3 { // the next call's tiles go where this one's are
			plans[i].addTo(&c)
		}
		if execs[i], err = made.graph(x.rigT, m, &c); err != nil {
			return err
		}
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
			if *onGPU {
				x.delay(i, x.streams[i], time.Duration(rng.IntN(200))*time.Microsecond)
			}
			var err error
			if round%2 == 0 {
				err = x.run(m, plans[i].addTo)
			} else {
				err = x.drv.GraphLaunch(m.Rank.Ctx, execs[i], x.streams[i])
			}
			if err := errors.Join(err, x.run(m, plans[i].addApart)); err != nil {
				return err
			}
		}
		for _, m := range x.g.Members() {
			if err := m.Check(x.t.Context(), x.streams[m.Rank.ID]); err != nil {
				return err
			}
		}
		if err := x.compare(); err != nil {
			return fmt.Errorf("round %d, %v: %w", round, plans[x.local()[0]].send, err)
		}
		if err := x.rigT.w.Barrier(x.t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// run adds calls to a rank's stream.
func (x *scattersT) run(m *coll.Member, add func(*driver.Commands)) error {
	var c driver.Commands
	add(&c)
	return x.drv.Run(m.Rank.Ctx, c.On(x.streams[m.Rank.ID]))
}

func (x *scattersT) compare() error {
	bytesOf := uint64(2 * x.s.rows * x.s.n)
	around := bytes.Repeat([]byte{0xff, 0x7f}, edge/2)
	for _, rank := range x.local() {
		got, want := x.read(rank, x.out-edge, bytesOf+2*edge), x.read(rank, x.reduced, bytesOf)
		if at := same(x.s.d, got[edge:edge+bytesOf], want); at >= 0 {
			return fmt.Errorf("rank %d: element %d", rank, at)
		}
		if !bytes.Equal(got[:edge], around) || !bytes.Equal(got[edge+bytesOf:], around) {
			return fmt.Errorf("rank %d: what lies around the result has changed", rank)
		}
	}
	return nil
}

// TestScatterMatmul multiplies and sends what belongs to peers: results have the bits of our matmul and a
// reduce_scatter, in rounds that ranks begin in any order, and in replays.
func TestScatterMatmul(t *testing.T) {
	cases := []scatterT{
		{dtype.BF16, 40, 64, 72, false, false, kernels.Sum}, {dtype.F16, 128, 64, 64, false, true, kernels.Avg}, {dtype.BF16, 8, 8, 8, true, false, kernels.Sum},
		{dtype.BF16, 40, 1024, 16, true, true, kernels.Sum}, {dtype.BF16, 1, 4096, 16, false, false, kernels.Sum},
	}
	worlds := []int{2, 4, 8}
	if *onGPU {
		worlds = []int{2, 4}
		cases = append(cases, scatterT{dtype.BF16, 512, 1024, 4096, false, false, kernels.Sum}, scatterT{dtype.BF16, 512, 3584, 4096, false, true, kernels.Sum},
			scatterT{dtype.F16, 1000, 1024, 3584, false, true, kernels.Avg}, scatterT{dtype.BF16, 2048, 512, 4096, true, false, kernels.Sum},
			scatterT{dtype.BF16, 136, 4096, 1024, false, false, kernels.Sum}, scatterT{dtype.F16, 264, 2048, 1536, true, true, kernels.Sum})
	}
	for _, n := range worlds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			n := ranksOf(n)
			for i, s := range cases {
				if !*onGPU && n > 2 && i > 0 { // as with fewer ranks
					continue
				}
				t.Run(fmt.Sprintf("%v %d rows of %d to %d", s.d, s.rows, s.k, s.n), func(t *testing.T) {
					r := newRigBytes(t, n, 64<<20+uint64(16*int64(n)*s.rows*(s.k+s.n)+4*s.k*s.n))
					if f, ok := r.drv.(*fake.Driver); ok && n > 2 {
						f.Jitter(20 * time.Microsecond)
					}
					x := newScatters(r, newStaged(r, uint64(8*int64(n)*s.rows*s.n)), s)
					t.Cleanup(x.close)
					rounds := 3
					if *onGPU {
						rounds = 8
					}
					if err := x.rounds(rounds); err != nil {
						t.Errorf("%+v: %v", s, err)
					}
				})
			}
		})
	}
}

// TestScatterMatmulAmongOthers mixes matmuls that scatter with other calls that go through staging, in an order of
// its own in each round: each finds staging free, whatever was before it, while ranks come late.
func TestScatterMatmulAmongOthers(t *testing.T) {
	s, rounds := scatterT{dtype.BF16, 40, 64, 72, false, false, kernels.Sum}, 20
	if *onGPU {
		s, rounds = scatterT{dtype.BF16, 256, 512, 1024, false, true, kernels.Sum}, 400
	}
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			n := ranksOf(n)
			r := newRigBytes(t, n, 64<<20+uint64(64*int64(n)*s.rows*(s.k+s.n)+4*s.k*s.n))
			if f, ok := r.drv.(*fake.Driver); ok {
				f.Jitter(20 * time.Microsecond)
			}
			x := newScatters(r, newStaged(r, uint64(8*int64(n)*s.rows*s.n)), s)
			t.Cleanup(x.close)
			if err := x.among(rounds); err != nil {
				t.Error(err)
			}
		})
	}
}

// among runs so many rounds of five calls: matmuls that scatter, and reductions of the product of a matmul.
func (x *scattersT) among(rounds int) error {
	piece := uint64(2 * x.s.rows * x.s.n)
	outs := make([]uint64, 5)
	for i := range outs {
		outs[i] = x.alloc(piece)
	}
	x.fill(0)
	// By member and call, the sending form and reductions by pushes and otherwise.
	forms, firsts := make([][][3]func(*driver.Commands), len(x.g.Members())), make([]scattering, len(x.g.Members()))
	for j, m := range x.g.Members() {
		rank := m.Rank.ID
		for _, out := range outs {
			x.out = out
			p, err := x.prepare(m)
			if err != nil {
				return err
			}
			list := [3]func(*driver.Commands){p.addTo}
			for i, algo := range []kernels.Algo{kernels.Push, kernels.Direct} {
				r, err := m.Prepare(coll.Op{Kind: kernels.ReduceScatter, Red: x.s.red, DType: x.s.d, Algo: algo, Symmetric: true,
					Tensors: []coll.Tensor{{Src: x.at(rank, x.whole), Dst: x.at(rank, out), Bytes: piece}}})
				if err != nil {
					return err
				}
				list[1+i] = r.AddTo
			}
			forms[j], firsts[j] = append(forms[j], list), p
		}
	}
	// The product, and what all calls have to give. All are planned: a kernel that waits for a peer keeps the
	// driver from loading code.
	for j, m := range x.g.Members() {
		if err := x.run(m, firsts[j].addApart); err != nil {
			return err
		}
	}
	rng := rand.New(rand.NewPCG(11, 11))
	for round := range rounds {
		calls := make([]int, len(outs))
		for i := range calls {
			calls[i] = rng.IntN(3)
		}
		for j, m := range x.g.Members() {
			if *onGPU {
				x.delay(m.Rank.ID, x.streams[m.Rank.ID], time.Duration(rng.IntN(50))*time.Microsecond)
			}
			for i, form := range calls {
				if err := x.run(m, forms[j][i][form]); err != nil {
					return err
				}
			}
		}
		for _, m := range x.g.Members() {
			if err := m.Check(x.t.Context(), x.streams[m.Rank.ID]); err != nil {
				return err
			}
		}
		for _, rank := range x.local() {
			want := x.read(rank, x.reduced, piece)
			for i, out := range outs {
				if at := same(x.s.d, x.read(rank, out, piece), want); at >= 0 {
					return fmt.Errorf("round %d of %v, call %d, rank %d: element %d", round, calls, i, rank, at)
				}
				x.write(rank, out, bytes.Repeat([]byte{0xff, 0x7f}, int(piece/2)))
			}
		}
		if err := x.rigT.w.Barrier(x.t.Context()); err != nil { // nobody is written to before it has looked
			return err
		}
	}
	return nil
}

// newStaged is a group with so much staging.
func newStaged(r *rigT, bytes uint64) *coll.Group {
	r.t.Helper()
	o := smallGroup(r.w.Shares(), r.w.Size())
	o.Staging = max(o.Staging, bytes)
	return r.groupOf(o)
}

// enqueue runs the calls on all ranks but one.
func (x *scattersT) enqueue(absent int) {
	plans := map[*coll.Member]scattering{}
	for _, m := range x.g.Members() {
		p, err := x.prepare(m)
		if err != nil {
			x.t.Fatal(err)
		}
		plans[m] = p
	}
	for _, m := range x.g.Members() {
		if m.Rank.ID == absent {
			continue
		}
		p := plans[m]
		err := x.run(m, p.send.AddTo)
		if err == nil {
			err = p.reduction.Enqueue(x.streams[m.Rank.ID])
		}
		if err != nil && !gaveUp(err) { // where this takes its time
			x.t.Fatal(err)
		}
	}
}
