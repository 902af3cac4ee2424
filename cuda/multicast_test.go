//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestHasMulticast: by default no group has multicast, and to ask is no error.
func TestHasMulticast(t *testing.T) {
	r := newRigT(t, 2)
	var me *symm.MulticastError
	if err := r.g.Multicast(); r.g.HasMulticast() || !errors.Is(err, driver.ErrNoMulticast) || !errors.As(err, &me) || me.Rank != -1 {
		t.Errorf("has multicast: %v, %v", r.g.HasMulticast(), err)
	}
	for _, m := range r.g.Members() {
		if m.HasMulticast() {
			t.Errorf("rank %d has multicast", m.Rank.ID)
		}
		_, err := m.Prepare(coll.Op{Kind: kernels.AllGather, DType: dtype.F32, Symmetric: true, Algo: kernels.Multicast,
			Tensors: []coll.Tensor{{Src: r.w.Addr(m.Rank.ID, 0), Dst: r.w.Addr(m.Rank.ID, 4096), Bytes: 16}}})
		if pe := (*kernels.PlanError)(nil); !errors.As(err, &pe) {
			t.Errorf("an all_gather through multicast was planned: %v", err)
		}
	}
}

// fakeOnly skips on GPUs: multicast can take the host's fabric down.
func fakeOnly(t *testing.T) {
	if *onGPU {
		t.Skip("multicast never runs on a GPU")
	}
}

// multicastWorld opens a world of n ranks with the switch on, on a fake that has multicast.
func multicastWorld(t *testing.T, n int, prepare func(*fake.Driver)) (*fake.Driver, *symm.World) {
	t.Helper()
	fakeOnly(t)
	o := symm.WorldOptions{Bytes: 16<<20 + uint64(n)<<22, Images: images(t), PTX: true, Multicast: true}
	if process != nil && process.rank >= n {
		process.worlds++
		t.Skipf("rank %d has no part in a world of %d", process.rank, n)
	}
	f := newDriverOf(t, n).(*fake.Driver)
	f.HaveMulticast()
	if prepare != nil {
		prepare(f)
	}
	if process != nil {
		process.worlds++
		return f, process.worldOn(t, f, n, o)
	}
	w, err := symm.NewLocalWorld(f, seqInts(n), o)
	if err != nil {
		t.Fatal(err)
	}
	return f, w
}

// always makes groups go through multicast wherever they can.
func always(n int) coll.GroupOptions {
	o := smallGroup(false, n)
	o.Tuning.MulticastReduce, o.Tuning.MulticastGather = 1, 1
	return o
}

// multicastRig is a rig whose group goes through multicast wherever it can.
func multicastRig(t *testing.T, n int, prepare func(*fake.Driver)) (*fake.Driver, *rigT) {
	t.Helper()
	f, w := multicastWorld(t, n, prepare)
	r := newRigIn(t, f, w)
	g, err := coll.NewGroup(t.Context(), w, seqInts(n), always(n))
	if err != nil {
		t.Fatal(err)
	}
	small := r.g
	r.g = g
	t.Cleanup(func() { // before the rig's, which closes the new group
		if err := small.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, r
}

// through reports whether c goes through multicast.
func (r *rigT) through(c caseT, areas []areaT) bool {
	m := r.g.Members()[0]
	p, err := m.Prepare(r.op(c, areas, m.Rank.ID))
	return err == nil && p.Launch() != nil && p.Launch().Algo == kernels.Multicast
}

// runThrough is runCase for a group with multicast, whose sums are the fake's: from the last
// rank to the first where tensors are whole, in rank order elsewhere.
func (r *rigT) runThrough(c caseT, rng *rand.Rand) (through bool, err error) {
	areas, inputs, free := r.place(c, func(_, count int) []byte { return randomBytes(rng, c.t, count, c.special) })
	defer free()
	through = r.through(c, areas)
	if err := r.run(func(rank int) coll.Op { return r.op(c, areas, rank) }); err != nil {
		return through, err
	}
	for i, a := range areas {
		in := inputs[i]
		if through && c.kind == kernels.AllReduce && (a.src|a.dst|a.in)%16 == 0 {
			in = slices.Clone(in)
			slices.Reverse(in)
		}
		for _, rank := range r.local() {
			got, err := r.guarded(rank, a.dst, a.out)
			if err != nil {
				return through, fmt.Errorf("tensor %d rank %d: %w", i, rank, err)
			}
			if at := same(c.t, got, expect(c, in, rank)); at >= 0 {
				return through, fmt.Errorf("tensor %d rank %d: element %d is wrong", i, rank, at)
			}
		}
	}
	return through, nil
}

// multicastCases are calls that go through multicast: whole tensors, cut and shifted ones,
// buckets of both, in place or not, one element and many tiles.
func multicastCases() (out []caseT) {
	for _, t := range moved() {
		for i, counts := range [][]int{{1}, {64}, {4096}, {8200}, {333}, {4097}, {16, 8192, 3, 64}, {70000}} {
			c := caseT{kind: kernels.AllGather, t: t, algo: kernels.Multicast, counts: counts, special: true, shift: uint64(i % 2 * t.Size())}
			out = append(out, c)
			c.shift = 0
			out = append(out, c)
			if t == dtype.F32 || t == dtype.BF16 || t == dtype.F16 {
				c.kind, c.inPlace = kernels.AllReduce, i%3 == 0
				out = append(out, c)
				c.inPlace, c.shift = !c.inPlace, uint64(i%2*t.Size())
				out = append(out, c)
			}
		}
	}
	return out
}

// TestMulticastCollectives runs all kinds, types and protocols with the switch on, and all
// that can goes through multicast.
func TestMulticastCollectives(t *testing.T) {
	fakeOnly(t)
	for _, n := range []int{2, 3, 4, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if process != nil && n > process.n {
				t.Skipf("%d ranks, %d processes", n, process.n)
			}
			if sampled() && n > 2 {
				t.Skip("takes seconds")
			}
			_, r := multicastRig(t, n, nil)
			if !r.g.HasMulticast() || r.g.Multicast() != nil {
				t.Fatalf("no multicast: %v", r.g.Multicast())
			}
			rng := rand.New(rand.NewPCG(9, uint64(n)))
			ran, went := map[kernels.Algo]int{}, 0
			cases := multicastCases()
			all := n == 2
			for _, c := range allCases(n) { // those that name another protocol are as ever
				if all && !testing.Short() && process == nil || c.algo == kernels.Auto {
					cases = append(cases, c)
				}
			}
			for _, c := range cases {
				through, err := r.runThrough(c, rng)
				if plan := (*kernels.PlanError)(nil); errors.As(err, &plan) && c.algo != kernels.Auto && c.algo != kernels.Multicast {
					continue
				}
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				if c.algo == kernels.Multicast && !through {
					t.Fatalf("%v has not gone through multicast", c)
				}
				if ran[c.algo]++; through {
					went++
				}
			}
			least := map[kernels.Algo]int{kernels.Multicast: 192, kernels.Auto: 220}
			if len(cases) > 1000 {
				least[kernels.LL], least[kernels.Direct], least[kernels.Engine] = 216, 216, 400
			}
			if went < 192+25 { // by itself: sums of three types, and gathers of nine
				t.Errorf("%d calls went through multicast", went)
			}
			for algo, want := range least {
				if ran[algo] < want {
					t.Errorf("%d cases of %v ran, want at least %d", ran[algo], algo, want)
				}
			}
		})
	}
}

// TestMulticastOff: with the switch off nothing that concerns multicast reaches the driver,
// though the devices have it and the tuning asks for it.
func TestMulticastOff(t *testing.T) {
	fakeOnly(t)
	f := newDriverOf(t, 2).(*fake.Driver)
	f.HaveMulticast()
	r := newRigOn(t, f, seqInts(2), symm.WorldOptions{Bytes: 24 << 20, Images: images(t), PTX: true})
	g, err := coll.NewGroup(t.Context(), r.w, seqInts(2), always(2))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	small := r.g
	r.g = g
	defer func() { r.g = small }()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather} {
		if err := r.runCase(caseT{kind: kind, t: dtype.BF16, counts: []int{4096}}, rng); err != nil {
			t.Error(err)
		}
	}
	for _, name := range images(t).Manifest.Names() {
		off := kernels.UsesMulticast(name) || kernels.IsMatmul(name) // a library loads those
		if _, err := r.w.Rank(0).Func(name, "none"); off == (err == nil || !strings.Contains(err.Error(), "no image")) {
			t.Errorf("image %s: %v", name, err)
		}
	}
	if n := f.MulticastCalls(); n != 0 || g.HasMulticast() {
		t.Errorf("%d calls concern multicast", n)
	}
}

// onlyDriver hides what a driver has besides.
type onlyDriver struct{ driver.Driver }

// TestMulticastAbsent: with the switch on, what is missing is no error.
func TestMulticastAbsent(t *testing.T) {
	fakeOnly(t)
	broken, err := kernels.NewSet()
	if err != nil {
		t.Fatal(err)
	}
	broken.Replace("allreduce_multicast", []byte("of a driver that does not take it"))
	for _, c := range []struct {
		name  string
		have  bool
		o     symm.WorldOptions
		devs  []int
		hide  bool
		step  string
		cause error
		most  int // calls of multicast
	}{
		{name: "devices", o: symm.WorldOptions{PTX: true}, step: "kernels"},
		{name: "driver", have: true, hide: true, step: "driver"},
		{name: "images", have: true, o: symm.WorldOptions{Images: broken}, step: "kernels", cause: &driver.Error{Code: 218}},
		{name: "one device", have: true, o: symm.WorldOptions{ShareDevice: true}, devs: []int{1, 1}, step: "devices", cause: symm.ErrSharedDevice, most: 3},
		{name: "granularity", have: true, o: symm.WorldOptions{Bytes: 24<<20 + fake.Granularity}, step: "granularity", most: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newDriverOf(t, 2).(*fake.Driver)
			if c.have {
				f.HaveMulticast()
			}
			c.o.PTX, c.o.Multicast = true, true
			if c.o.Images == nil {
				c.o.Images = images(t)
			}
			if c.o.Bytes == 0 {
				c.o.Bytes = 24 << 20
			}
			if c.devs == nil {
				c.devs = seqInts(2)
			}
			drv := driver.Driver(f)
			if c.hide {
				drv = onlyDriver{f}
			}
			r := newRigOn(t, drv, c.devs, c.o)
			var me *symm.MulticastError
			err := r.g.Multicast()
			if r.g.HasMulticast() || !errors.As(err, &me) || me.Step != c.step || c.cause != nil && !errors.Is(err, c.cause) || f.MulticastCalls() > c.most {
				t.Errorf("%v, %d calls", err, f.MulticastCalls())
			}
			if err := r.runCase(caseT{kind: kernels.AllReduce, t: dtype.BF16, counts: []int{4096}}, rand.New(rand.NewPCG(1, 1))); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMulticastRefused has one rank refuse at each step. No rank has multicast then, all
// know why, and all work without; and the next group has it.
func TestMulticastRefused(t *testing.T) {
	fakeOnly(t)
	const n = 3
	rng := rand.New(rand.NewPCG(5, 5))
	for _, c := range []struct {
		call, step string
		each       bool // rank makes the call, else rank 0, or the one of a process
		processes  bool // only where there are several
	}{
		{call: "cuDeviceGetAttribute", step: "driver", each: true},
		{call: "cuMulticastGetGranularity", step: "granularity", each: true},
		{call: "cuMulticastCreate", step: "creation"},
		{call: "cuMemExportToShareableHandle", step: "export", processes: true},
		{call: "cuMemImportFromShareableHandle", step: "import", each: true, processes: true},
		{call: "cuMulticastAddDevice", step: "adding the device", each: true},
		{call: "cuMulticastBindMem", step: "binding", each: true},
		{call: "cuMemMap", step: "mapping", each: process != nil},
		{call: "cuMemSetAccess", step: "access", each: process != nil},
	} {
		for rank := range n {
			if !c.each && rank > 0 || c.processes && (process == nil || c.call == "cuMemImportFromShareableHandle" && rank == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c.call, rank), func(t *testing.T) {
				f, w := multicastWorld(t, n, nil)
				switch {
				case process == nil:
					f.RefuseMulticast(c.call, rank+1)
				case process.rank == rank:
					f.RefuseMulticast(c.call, 1)
				}
				r := newRigIn(t, f, w)
				err := r.g.Multicast()
				var me *symm.MulticastError
				if r.g.HasMulticast() || !errors.As(err, &me) || me.Rank != rank || me.Step != c.step || !strings.Contains(err.Error(), c.call) {
					t.Errorf("has multicast: %v, %v", r.g.HasMulticast(), err)
				}
				if err := r.runCase(caseT{kind: kernels.AllReduce, t: dtype.F32, counts: []int{4096}}, rng); err != nil {
					t.Error(err)
				}
				again, err := coll.NewGroup(t.Context(), w, seqInts(n), always(n))
				if err != nil {
					t.Fatal(err)
				}
				if !again.HasMulticast() {
					t.Errorf("the next group has no multicast: %v", again.Multicast())
				}
				if err := w.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
				if err := again.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestMulticastGroups: each group has an object of its own, whoever is in it, also where
// the first rank is not the first of the world and processes without a part look on.
func TestMulticastGroups(t *testing.T) {
	fakeOnly(t)
	const n = 3
	_, r := multicastRig(t, n, nil)
	rng := rand.New(rand.NewPCG(6, 6))
	for _, ranks := range [][]int{{0, 1}, {1, 2}, {2, 1}, {2, 0, 1}} {
		g, err := coll.NewGroup(t.Context(), r.w, ranks, always(len(ranks)))
		if err != nil {
			t.Fatal(err)
		}
		if !g.HasMulticast() {
			t.Errorf("%v has no multicast: %v", ranks, g.Multicast())
		}
		const count = 1024
		src, dst := r.alloc(4*count), r.alloc(4*count*n)
		in := make([][]byte, n) // by world rank
		for rank := range in {
			in[rank] = randomBytes(rng, dtype.F32, count, true)
			r.write(rank, src, in[rank])
			r.write(rank, dst, make([]byte, 4*count*n))
		}
		var ref []byte
		for _, rank := range ranks {
			ref = append(ref, in[rank]...)
		}
		for _, m := range g.Members() {
			err := m.Enqueue(r.streams[m.Rank.ID], coll.Op{Kind: kernels.AllGather, DType: dtype.F32, Symmetric: true, Algo: kernels.Multicast,
				Tensors: []coll.Tensor{{Src: r.w.Addr(m.Rank.ID, src), Dst: r.w.Addr(m.Rank.ID, dst), Bytes: 4 * count}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range g.Members() {
			if err := m.Check(t.Context(), r.streams[m.Rank.ID]); err != nil {
				t.Error(err)
			}
		}
		if err := r.w.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, rank := range r.local() {
			w := ref
			if !slices.Contains(ranks, rank) {
				w = make([]byte, len(ref))
			}
			if got := r.read(rank, dst, uint64(len(ref))); string(got) != string(w) {
				t.Errorf("%v: rank %d has wrong bytes", ranks, rank)
			}
		}
		if err := r.w.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMulticastOrder: bits of sums through multicast are the same on all ranks, but not
// those of rank order; and a group that demands rank order never gets others.
func TestMulticastOrder(t *testing.T) {
	const n, count = 4, 1024
	_, r := multicastRig(t, n, nil)
	o := always(n)
	plain := o.Digest()
	if o.RankOrder = true; o.Digest() == plain {
		t.Error("groups that demand rank order have the digest of those that do not")
	}
	strict, err := coll.NewGroup(t.Context(), r.w, seqInts(n), o)
	if err != nil {
		t.Fatal(err)
	}
	loose := r.g
	defer func() { r.g = loose; strict.Close() }()
	rng := rand.New(rand.NewPCG(7, 7))
	c := caseT{kind: kernels.AllReduce, t: dtype.F32, counts: []int{count}}
	areas, in, free := r.place(c, func(_, count int) []byte { return randomBytes(rng, c.t, count, false) })
	defer free()
	for _, g := range []*coll.Group{loose, strict} {
		r.g = g
		if err := r.run(func(rank int) coll.Op { return r.op(c, areas, rank) }); err != nil {
			t.Fatal(err)
		}
		first := r.read(0, areas[0].dst, areas[0].out)
		for rank := range n {
			if got := r.read(rank, areas[0].dst, areas[0].out); string(got) != string(first) {
				t.Errorf("rank %d has other bits than rank 0", rank)
			}
		}
		if inOrder := same(c.t, first, expect(c, in[0], 0)) < 0; inOrder != (g == strict) {
			t.Errorf("the sum is that of rank order: %v", inOrder)
		}
		if through := r.through(c, areas); through != (g == loose) {
			t.Errorf("the sum goes through multicast: %v", through)
		}
	}
	c.algo = kernels.Multicast
	if pe := (*kernels.PlanError)(nil); !errors.As(r.run(func(rank int) coll.Op { return r.op(c, areas, rank) }), &pe) {
		t.Error("a group that demands rank order was given a sum through multicast")
	}
	c.kind, c.algo = kernels.AllGather, kernels.Auto
	if moved, _, free := r.place(c, func(_, count int) []byte { return randomBytes(rng, c.t, count, false) }); !r.through(c, moved) {
		t.Error("all_gather needs no order")
	} else {
		free()
	}
}
