//go:build linux

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/kernels"
)

var onGPU = flag.Bool("gpu", false, "run the conformance cases on the GPUs of this machine instead of the fake driver")

// imagesDir has NAME.cubin files that are tested in place of the checked-in images. It is
// in the environment because the processes of a test need it too.
var imagesDir = os.Getenv("CONCERT_TEST_IMAGES")

var imageSet = sync.OnceValues(func() (*kernels.Set, error) {
	set, err := kernels.NewSet()
	if err != nil || imagesDir == "" {
		return set, err
	}
	for _, name := range set.Manifest.Names() {
		b, err := os.ReadFile(filepath.Join(imagesDir, name+".cubin"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		set.Replace(name, b)
	}
	return set, nil
})

// rigT is a world with one group of all ranks and a stream for each rank of this process.
type rigT struct {
	t       testing.TB
	drv     driver.Driver
	w       *symm.World
	g       *coll.Group
	streams []driver.Stream // by rank
	comms   sync.Map        // what comm has made
	sw      *switched       // what the world runs on, if it was opened so
}

// switched is a driver in whose place a test may put another while nothing runs.
type switched struct{ driver.Driver }

// ctl is the address of a member's control page.
func ctl(m *coll.Member) driver.Ptr { return m.Rank.World.Addr(m.Rank.ID, m.Group.Control()) }

// comm is a member's collectives without a program.
func (r *rigT) comm(m *coll.Member) *eager.Comm {
	c, ok := r.comms.Load(m)
	if !ok {
		c, _ = r.comms.LoadOrStore(m, eager.New(m))
	}
	return c.(*eager.Comm)
}

func images(t testing.TB) *kernels.Set {
	t.Helper()
	set, err := imageSet()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newDriverOf gives the driver under test, with that many devices if it is the fake.
func newDriverOf(t testing.TB, devices int) driver.Driver {
	t.Helper()
	if *onGPU {
		d, err := driver.Open("")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before := leak.Now()
	f := fake.New(devices)
	t.Cleanup(func() {
		if l := before.More(); l != "" && !t.Failed() {
			t.Error(l)
		}
		if l := f.Leaks().String(); l != "" && !t.Failed() {
			t.Errorf("not released: %s", l)
		}
	})
	return f
}

// newDriver gives the driver under test and a device for every rank.
func newDriver(t testing.TB, ranks int) (driver.Driver, []int, bool) {
	t.Helper()
	d := newDriverOf(t, ranks)
	devs := seqInts(ranks)
	if !*onGPU {
		return d, devs, false
	}
	infos, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	share := len(infos) < ranks
	for i := range devs {
		devs[i] = i % len(infos)
	}
	return d, devs, share
}

func smallGroup(share bool, ranks int) coll.GroupOptions {
	tune := kernels.DefaultTuning(ranks)
	tune.Blocks, tune.PushBlocks = 4, 4
	tune.EngineMove, tune.EngineReduce, tune.EngineInPlace = 0, 0, 0
	tune.EngineChunks = 3
	tune.OverlappedMove, tune.OverlappedReduce, tune.OverlappedPiece, tune.CoresidentReduce = 4<<10, 4<<10, 256, 64<<10
	return coll.GroupOptions{Timeout: plenty, Region: 512 << 10, Flagged: max(1<<20, uint64(ranks)<<17), Staging: uint64(ranks) * 4 * kernels.PushDepth * 32768, Tuning: &tune}
}

// newRigT opens a world of that many ranks in this process, or with one rank here if each
// rank has a process.
func newRigT(t testing.TB, ranks int) *rigT {
	t.Helper()
	return newRigBytes(t, ranks, 16<<20+uint64(ranks)<<22)
}

// newRigBytes is newRigT with that much symmetric memory for each rank.
func newRigBytes(t testing.TB, ranks int, bytes uint64) *rigT {
	t.Helper()
	o := symm.WorldOptions{Bytes: bytes, Images: images(t), Measure: true}
	if process != nil {
		sw, w := process.world(t, ranks, o)
		r := newRigIn(t, sw.Driver, w)
		r.sw = sw
		return r
	}
	drv, devs, share := newDriver(t, ranks)
	o.ShareDevice = share
	sw := &switched{drv}
	r := newRigOn(t, sw, devs, o)
	r.drv, r.sw = drv, sw
	return r
}

// newRigOn opens a rank on each of devs.
func newRigOn(t testing.TB, drv driver.Driver, devs []int, o symm.WorldOptions) *rigT {
	t.Helper()
	o.Measure = true
	w, err := symm.NewLocalWorld(drv, devs, o)
	if err != nil {
		t.Fatal(err)
	}
	return newRigIn(t, drv, w)
}

// newRigIn makes the group and the streams in a world, which the rig closes.
func newRigIn(t testing.TB, drv driver.Driver, w *symm.World) *rigT {
	t.Helper()
	r := &rigT{t: t, drv: drv, w: w, streams: make([]driver.Stream, w.Size())}
	t.Cleanup(r.close)
	var err error
	if r.g, err = coll.NewGroup(t.Context(), w, seqInts(w.Size()), smallGroup(w.Shares(), w.Size())); err != nil {
		t.Fatal(err)
	}
	for _, k := range w.Local() {
		if r.streams[k.ID], err = drv.StreamCreate(k.Ctx); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// close gives everything back. The other processes have to be done with this one's memory,
// which they are not if a test fails here only: then they hear that it gave up.
func (r *rigT) close() {
	if r.g != nil {
		if r.t.Failed() && process != nil {
			for _, m := range r.g.Members() {
				m.Abort(errors.New("a test failed"))
			}
		}
		for _, k := range r.w.Local() {
			if err := r.drv.StreamDestroy(k.Ctx, r.streams[k.ID]); err != nil {
				r.t.Error(err)
			}
		}
		if err := r.w.Barrier(context.Background()); err != nil {
			r.t.Error(err)
		}
		if err := r.g.Close(); err != nil {
			r.t.Error(err)
		}
	}
	if err := r.w.Close(); err != nil {
		r.t.Error(err)
	}
}

// member is a rank of this process in the group of all.
func (r *rigT) member(rank int) *coll.Member {
	for _, m := range r.g.Members() {
		if m.Rank.ID == rank {
			return m
		}
	}
	r.t.Fatalf("rank %d is in another process", rank)
	return nil
}

// local lists the ranks that this process drives.
func (r *rigT) local() []int {
	var out []int
	for _, k := range r.w.Local() {
		out = append(out, k.ID)
	}
	return out
}

func (r *rigT) alloc(bytes uint64) uint64 {
	r.t.Helper()
	off, err := r.w.Alloc(bytes, 256)
	if err != nil {
		r.t.Fatal(err)
	}
	return off
}

// write puts b into the memory of a rank, which its own process does.
func (r *rigT) write(rank int, off uint64, b []byte) {
	r.t.Helper()
	if r.w.Rank(rank) == nil {
		return
	}
	if err := r.drv.CopyIn(r.w.Rank(rank).Ctx, r.streams[rank], r.w.Addr(rank, off), b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rigT) read(rank int, off, n uint64) []byte {
	r.t.Helper()
	b := make([]byte, n)
	if err := r.drv.CopyOut(r.w.Rank(rank).Ctx, r.streams[rank], b, r.w.Addr(rank, off)); err != nil {
		r.t.Fatal(err)
	}
	return b
}

// run enqueues op on every rank of this process and waits for all.
func (r *rigT) run(op func(rank int) coll.Op) error {
	for _, m := range r.g.Members() {
		if err := m.Enqueue(r.streams[m.Rank.ID], op(m.Rank.ID)); err != nil {
			return err
		}
	}
	return r.check()
}

func (r *rigT) check() error {
	var first error
	for _, m := range r.g.Members() {
		if err := m.Check(r.t.Context(), r.streams[m.Rank.ID]); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// randomBytes makes count elements of t: small values, now and then a NaN, an
// infinity, a negative zero or the word that marks missing packets.
func randomBytes(rng *rand.Rand, t dtype.DType, count int, special bool) []byte {
	b := make([]byte, 0, count*int(t.Size())+8)
	if !t.IsFloat() {
		for len(b) < count*int(t.Size()) {
			b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
		}
		return b[:count*int(t.Size())]
	}
	for i := 0; i < count; i++ {
		v := float64(int32(rng.Uint32())) / (1 << 28)
		if special {
			switch rng.IntN(16) {
			case 0:
				v = math.NaN()
			case 1:
				v = math.Inf(1 - 2*rng.IntN(2))
			case 2:
				v = math.Copysign(0, -1)
			}
		}
		switch t {
		case dtype.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		case dtype.F32:
			w := math.Float32bits(float32(v))
			if special && rng.IntN(16) == 0 {
				w = kernels.Poison
			}
			b = binary.LittleEndian.AppendUint32(b, w)
		case dtype.BF16, dtype.F16:
			w := dtype.BF16FromF32(float32(v))
			if t == dtype.F16 {
				w = dtype.F16FromF32(float32(v))
			}
			if special && rng.IntN(4) == 0 {
				w = 0xffff
			}
			b = binary.LittleEndian.AppendUint16(b, w)
		}
	}
	return b
}

// want folds element by element in rank order: the reference of all reductions.
//
//go:norace
func want(t dtype.DType, red kernels.Reduction, in [][]byte) []byte {
	size := t.Size()
	out := make([]byte, len(in[0]))
	for at := 0; at < len(out); at += size {
		switch {
		case t == dtype.F64:
			s := math.Float64frombits(binary.LittleEndian.Uint64(in[0][at:]))
			for _, x := range in[1:] {
				s = reduced(red, s, math.Float64frombits(binary.LittleEndian.Uint64(x[at:])))
			}
			if red == kernels.Avg {
				s /= float64(len(in))
			}
			binary.LittleEndian.PutUint64(out[at:], math.Float64bits(s))
		case t.IsFloat():
			s := float32(dtype.LoadFloat(t, in[0][at:]))
			for _, x := range in[1:] {
				s = reduced(red, s, float32(dtype.LoadFloat(t, x[at:])))
			}
			if red == kernels.Avg {
				s /= float32(len(in))
			}
			storeSum(t, out[at:], s)
		default:
			s := dtype.LoadInt(t, in[0][at:])
			for _, x := range in[1:] {
				s = reduced(red, s, dtype.LoadInt(t, x[at:]))
			}
			dtype.StoreInt(t, out[at:], s)
		}
	}
	return out
}

// same compares bits, and takes any NaN for any other where nan is set: f64 NaNs
// and moved data keep their payload, sums of narrow floats have one form.
func same(t dtype.DType, a, b []byte) int {
	if string(a) == string(b) {
		return -1
	}
	size := t.Size()
	for at := 0; at < len(a); at += size {
		if string(a[at:at+size]) == string(b[at:at+size]) {
			continue
		}
		if t == dtype.F64 {
			x, y := math.Float64frombits(binary.LittleEndian.Uint64(a[at:])), math.Float64frombits(binary.LittleEndian.Uint64(b[at:]))
			if x != x && y != y {
				continue
			}
		}
		return at / size
	}
	return -1
}

// reduced combines two operands; an average is a sum that is divided at the end.
func reduced[T float32 | float64 | int64](red kernels.Reduction, a, b T) T {
	switch red {
	case kernels.Prod:
		return a * b
	case kernels.Min:
		return min(a, b)
	case kernels.Max:
		return max(a, b)
	}
	return a + b
}

// storeSum rounds to t. A NaN takes the one form that devices give it.
func storeSum(t dtype.DType, b []byte, v float32) {
	switch {
	case v == v:
		dtype.StoreFloat(t, b, float64(v))
	case t == dtype.F32:
		binary.LittleEndian.PutUint32(b, 0x7fffffff)
	default:
		binary.LittleEndian.PutUint16(b, 0x7fff)
	}
}
