//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestBehind4GiB runs all protocols where the offsets of tensors and of the group's own
// memory need more than 32 bits.
func TestBehind4GiB(t *testing.T) {
	const n, pad = 2, 5 << 30
	r := newRigBytes(t, n, pad+64<<20)
	r.alloc(pad)
	g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), smallGroup(r.w.Shares(), n))
	if err != nil {
		t.Fatal(err)
	}
	if g.Scratch().Ctl < 1<<32 || g.Scratch().Flagged < 1<<32 || g.Scratch().Staging < 1<<32 {
		t.Fatalf("the group's memory is not behind the others: %+v", g.Scratch())
	}
	if err := r.g.Close(); err != nil {
		t.Fatal(err)
	}
	r.g = g
	rng := rand.New(rand.NewPCG(22, 22))
	ran := 0
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
		for _, algo := range []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
			for _, beside := range []bool{false, true} {
				c := caseT{kind: kind, t: dtype.F32, algo: algo, counts: []int{20001, 7}, beside: beside}
				err := r.runCase(c, rng)
				var plan *kernels.PlanError
				if errors.As(err, &plan) && algo != kernels.Auto {
					continue
				}
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				ran++
			}
		}
	}
	for _, c := range []rootedT{{kind: kernels.Broadcast}, {kind: kernels.Reduce}, {kind: kernels.Permute, pairs: [][2]int{{0, 1}, {1, 0}}}} {
		c.t, c.counts = dtype.F32, []int{3001}
		if err := r.runRooted(c, rng); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
	}
	if ran < 34 {
		t.Errorf("only %d cases ran", ran)
	}
}

// A piece of more than 2 GiB that no unit divides, so that counts, offsets and results
// leave 32 bits.
const bigPiece = 2<<30 + 4100

var onBig = flag.Bool("big", false, "run the broadcast of more than 2 GiB on the fake driver, which takes 5 GiB of memory")

// TestBigTensor runs collectives whose tensors have more than 2 GiB, and results twice as
// much. On the fake driver it is one broadcast, mostly of memory that was never written,
// and only where it is asked for.
func TestBigTensor(t *testing.T) {
	const n = 2
	if !*onGPU {
		if !*onBig {
			t.Skip("needs -gpu or -big")
		}
		bigBroadcast(t)
		return
	}
	r := newRigBytes(t, n, 2*n*bigPiece+bigStaging+128<<20)
	r.g = r.bigGroup()
	b := &bigT{rigT: r, src: r.alloc(n*bigPiece+2*guard) + guard, dst: r.alloc(n*bigPiece+2*guard) + guard, wrong: r.alloc(256)}
	ran := map[kernels.Algo]int{}
	for i, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
		for j, algo := range []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
			err := b.run(kind, algo, uint32(10*i+j+1))
			var plan *kernels.PlanError
			if errors.As(err, &plan) && algo != kernels.Auto {
				continue
			}
			if err != nil {
				t.Fatalf("%v by %v: %v", kind, algo, err)
			}
			ran[algo]++
		}
	}
	for algo, least := range map[kernels.Algo]int{kernels.Auto: 4, kernels.Direct: 4, kernels.Push: 2, kernels.Engine: 3} {
		if ran[algo] < least {
			t.Errorf("%d collectives by %v ran, want %d", ran[algo], algo, least)
		}
	}
}

// bigStaging keeps the rounds of copy engines so few that the driver queues all of a call:
// one thread enqueues a rank's call before the next rank's, and would wait for room that
// only its peers make.
const bigStaging = 512 << 20

// bigGroup takes the place of the rig's group.
func (r *rigT) bigGroup() *coll.Group {
	r.t.Helper()
	o := smallGroup(r.w.Shares(), r.w.Size())
	o.Staging = bigStaging
	if !*onGPU {
		o.Timeout = 5 * time.Minute // memory may be slow to come
	}
	g, err := coll.NewGroup(r.t.Context(), r.w, seqInts(r.w.Size()), o)
	if err == nil {
		err = r.g.Close()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

type bigT struct {
	*rigT
	src, dst, wrong uint64
}

// run fills the operands on the devices, runs a collective and checks every element there.
func (b *bigT) run(kind kernels.Collective, algo kernels.Algo, seed uint32) error {
	t, elems := dtype.BF16, uint64(bigPiece/2)
	in, out := sizes(kind, b.w.Size(), int(elems))
	for _, rank := range b.local() {
		args := pack(uint64(b.w.Addr(rank, b.src)), uint64(in), uint32(t), seed, uint32(rank))
		if err := b.launch(rank, "fill", args); err != nil {
			return err
		}
		b.write(rank, b.wrong, make([]byte, 4))
		for _, at := range []uint64{b.dst - guard, b.dst + 2*uint64(out)} {
			b.write(rank, at, bytes.Repeat([]byte{0xa5}, guard))
		}
	}
	err := b.rigT.run(func(rank int) coll.Op {
		return coll.Op{Kind: kind, DType: t, Symmetric: true, Algo: algo,
			Tensors: []coll.Tensor{{Src: b.w.Addr(rank, b.src), Dst: b.w.Addr(rank, b.dst), Bytes: bigPiece}}}
	})
	if err != nil {
		return err
	}
	for _, rank := range b.local() {
		number := map[kernels.Collective]uint32{kernels.AllReduce: 0, kernels.AllGather: 1, kernels.ReduceScatter: 2, kernels.AllToAll: 3}[kind]
		args := pack(uint64(b.w.Addr(rank, b.dst)), uint64(out), uint32(t), seed, uint32(rank), uint32(b.w.Size()), number, uint32(0),
			elems, uint64(b.w.Addr(rank, b.wrong)))
		if err := b.launch(rank, "check", args); err != nil {
			return err
		}
		if wrong := binary.LittleEndian.Uint32(b.read(rank, b.wrong, 4)); wrong != 0 {
			return fmt.Errorf("rank %d: %d of %d elements are wrong", rank, wrong, out)
		}
		for _, at := range []uint64{b.dst - guard, b.dst + 2*uint64(out)} {
			if !bytes.Equal(b.read(rank, at, guard), bytes.Repeat([]byte{0xa5}, guard)) {
				return fmt.Errorf("rank %d: bytes outside the result were written", rank)
			}
		}
	}
	return b.w.Barrier(b.t.Context()) // the operands are filled anew
}

// launch runs a kernel of the bench image and waits for it.
func (b *bigT) launch(rank int, name string, args []byte) error {
	k := b.w.Rank(rank)
	f, err := k.Func("bench", name)
	if err != nil {
		return err
	}
	if err := b.drv.Launch(k.Ctx, b.streams[rank], f, 512, 256, 0, args); err != nil {
		return err
	}
	return b.drv.StreamSync(k.Ctx, b.streams[rank])
}

// pack lays out the parameters of a kernel, which are words of 4 and 8 bytes.
func pack(words ...any) (b []byte) {
	for _, w := range words {
		switch w := w.(type) {
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, w)
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	return b
}

// bigBroadcast sends a tensor of which every 100 MB a few words are known, and its ends.
func bigBroadcast(t *testing.T) {
	const n, root, every = 2, 1, 100_000_004
	r := newRigBytes(t, n, bigPiece+bigStaging+64<<20)
	r.g = r.bigGroup()
	at := r.alloc(bigPiece+2*guard) + guard
	known := map[uint64][]byte{}
	for off := uint64(0); off < bigPiece-8; off += every {
		known[off] = []byte(fmt.Sprintf("%8d", off/every))
	}
	known[bigPiece-8] = []byte("the last")
	for rank := range n {
		r.write(rank, at-guard, bytes.Repeat([]byte{0xa5}, guard))
		r.write(rank, at+bigPiece, bytes.Repeat([]byte{0xa5}, guard))
	}
	for off, b := range known {
		r.write(root, at+off, b)
	}
	err := r.run(func(rank int) coll.Op {
		return coll.Op{Kind: kernels.Broadcast, DType: dtype.U8, Symmetric: true, Root: root, Algo: kernels.Engine,
			Tensors: []coll.Tensor{{Src: r.w.Addr(rank, at), Dst: r.w.Addr(rank, at), Bytes: bigPiece}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range n {
		for off, want := range known {
			if got := r.read(rank, at+off, 8); !bytes.Equal(got, want) {
				t.Errorf("rank %d: %q at %d, want %q", rank, got, off, want)
			}
		}
		for _, off := range []uint64{at - guard, at + bigPiece} {
			if !bytes.Equal(r.read(rank, off, guard), bytes.Repeat([]byte{0xa5}, guard)) {
				t.Errorf("rank %d: bytes outside the tensor were written", rank)
			}
		}
	}
}
