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
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// randomSizes makes the sizes of an uneven all_to_all, by sender and receiver: a third of
// the pieces is empty.
func randomSizes(rng *rand.Rand, n int, most uint64) [][]uint64 {
	sizes := make([][]uint64, n)
	for i := range sizes {
		for range n {
			size := uint64(0)
			if rng.IntN(3) > 0 {
				size = rng.Uint64N(most)
			}
			sizes[i] = append(sizes[i], size)
		}
	}
	return sizes
}

// unevenT is an uneven all_to_all with known inputs.
type unevenT struct {
	r        *rigT
	g        *coll.Group
	send     [][]coll.Piece // by rank
	recv     [][]coll.Piece
	data     [][][]byte // by sender and receiver
	src, dst uint64     // areas of all pieces
}

// newUneven places the pieces of every rank one after the other, at offsets that shift
// says, with guards around each that is received.
func (r *rigT) newUneven(g *coll.Group, sizes [][]uint64, rng *rand.Rand, shift uint64) *unevenT {
	n := len(sizes)
	u := &unevenT{r: r, g: g, send: make([][]coll.Piece, n), recv: make([][]coll.Piece, n), data: make([][][]byte, n)}
	var in, out uint64
	for i := range n {
		var a, b uint64
		for j := range n {
			a, b = a+sizes[i][j]+shift, b+sizes[j][i]+2*guard+shift
		}
		in, out = max(in, a), max(out, b)
	}
	src, dst := r.alloc(in+16), r.alloc(out+16)
	for i := range n {
		a, b := src, dst
		for j := range n {
			d := randomBytes(rng, dtype.U8, int(sizes[i][j]), false)
			u.data[i] = append(u.data[i], d)
			u.send[i] = append(u.send[i], coll.Piece{At: r.w.Addr(i, a), Bytes: sizes[i][j]})
			r.write(i, a, d)
			u.recv[i] = append(u.recv[i], coll.Piece{At: r.w.Addr(i, b+guard), Bytes: sizes[j][i]})
			r.write(i, b, bytes.Repeat([]byte{0xa5}, int(sizes[j][i])+2*guard))
			a, b = a+sizes[i][j]+shift, b+sizes[j][i]+2*guard+shift
		}
	}
	u.src, u.dst = src, dst
	return u
}

func (u *unevenT) free() error {
	return errors.Join(u.r.w.Free(u.src), u.r.w.Free(u.dst))
}

// check compares what every rank of this process got, guards included.
func (u *unevenT) check() error {
	for _, rank := range u.r.local() {
		for from, p := range u.recv[rank] {
			got, err := u.r.guarded(rank, uint64(p.At-u.r.w.Addr(rank, 0)), p.Bytes)
			if err != nil {
				return fmt.Errorf("rank %d, piece of rank %d: %w", rank, from, err)
			}
			if !bytes.Equal(got, u.data[from][rank]) {
				at := 0
				for got[at] == u.data[from][rank][at] {
					at++
				}
				return fmt.Errorf("rank %d, piece of rank %d: byte %d of %d is wrong", rank, from, at, p.Bytes)
			}
		}
	}
	return nil
}

// runUneven runs an uneven all_to_all of the rig's group.
func (r *rigT) runUneven(sizes [][]uint64, rng *rand.Rand, shift uint64) error {
	u := r.newUneven(r.g, sizes, rng, shift)
	for _, m := range r.g.Members() {
		p, err := m.PrepareAllToAllV(u.send[m.Index], u.recv[m.Index])
		if err != nil {
			return err
		}
		if err := p.Enqueue(r.streams[m.Rank.ID]); err != nil {
			return err
		}
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("sizes %v: %w", sizes, err)
	}
	if err := u.check(); err != nil {
		return fmt.Errorf("sizes %v: %w", sizes, err)
	}
	return u.free()
}

func TestUnevenAllToAll(t *testing.T) {
	r := newRigT(t, ranksOf(4))
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 20 {
		if err := r.runUneven(randomSizes(rng, r.w.Size(), 700), rng, uint64(round%3)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// TestUnevenSizes runs pieces around the limits of packets and chunks, and of several
// rounds of chunks, in scratch of the default size and in small scratch.
func TestUnevenSizes(t *testing.T) {
	numbersOnly(t)
	for _, want := range []int{2, 3, 4, 16} {
		for _, flagged := range []uint64{0, 16 << 10} {
			if testing.Short() && want != 3 || want == 16 && flagged == 0 {
				continue
			}
			if want == 16 {
				flagged = 128 << 10
			}
			t.Run(fmt.Sprintf("%d ranks, %d KiB", want, flagged>>10), func(t *testing.T) { testUnevenSizes(t, want, flagged) })
		}
	}
}

func testUnevenSizes(t *testing.T, n int, flagged uint64) {
	if n > ranksOf(n) {
		t.Skip("no more processes")
	}
	needsQueues(t, n, 4)
	o := symm.WorldOptions{Bytes: 128<<20 + uint64(n)<<22, Images: images(t)}
	var r *rigT
	if process != nil {
		drv, w := process.world(t, n, o)
		r = newRigIn(t, drv, w)
	} else {
		drv, devs, share := newDriver(t, n)
		o.ShareDevice = share
		r = newRigOn(t, drv, devs, o)
	}
	if f, ok := r.drv.(*fake.Driver); ok {
		f.Jitter(20_000)
	}
	small := smallGroup(r.w.Shares(), n)
	small.Flagged = flagged
	g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), small)
	if err != nil {
		t.Fatal(err)
	}
	rig := r.g
	r.g = g
	defer func() {
		r.g = rig
		r.barrier()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	packets, chunk := g.Scratch().AllToAllV(n)
	if chunk == 0 {
		t.Fatal("slots are too small for chunks")
	}
	round := uint64(chunk) * uint64(min(32, 256/n))
	rng := rand.New(rand.NewPCG(7, uint64(n)+flagged))
	edges := []uint64{0, 1, 7, 8, 9, 4096, packets - 1, packets, packets + 1, packets + 16, 2*packets + 5, round - 1, round, round + 1,
		4 * round, 4*round + 3, 9*round + uint64(chunk) + 1, 1<<20 + 1, min(5<<20+11, 40*round)}
	for i := range 5 {
		sizes := randomSizes(rng, n, 3)
		for _, row := range sizes {
			for d := range row {
				if rng.IntN(4) > 0 {
					row[d] = edges[rng.IntN(len(edges))]
				}
			}
		}
		if i == 0 { // one rank sends much to one, nobody else anything
			sizes = make([][]uint64, n)
			for s := range sizes {
				sizes[s] = make([]uint64, n)
			}
			sizes[0][n-1] = 9 * round
		}
		if err := r.replayUneven(sizes, rng, []uint64{16, 0, 1, 4}[i%4]); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

// replayUneven runs an uneven all_to_all once, and then three times in a graph.
func (r *rigT) replayUneven(sizes [][]uint64, rng *rand.Rand, shift uint64) error {
	u := r.newUneven(r.g, sizes, rng, shift)
	execs := make([]driver.Exec, r.w.Size())
	ready := make([]*coll.Prepared, r.w.Size())
	for _, m := range r.g.Members() { // graphs are made before anything waits for a peer
		c, s := m.Rank.Ctx, r.streams[m.Rank.ID]
		p, err := m.PrepareAllToAllV(u.send[m.Index], u.recv[m.Index])
		if err != nil {
			return err
		}
		if err := r.drv.CaptureBegin(c, s); err != nil {
			return err
		}
		enqueued := p.Enqueue(s)
		graph, err := r.drv.CaptureEnd(c, s)
		if err := errors.Join(enqueued, err); err != nil {
			return err
		}
		defer r.drv.GraphDestroy(c, graph)
		if execs[m.Index], err = r.drv.GraphInstantiate(c, graph); err != nil {
			return err
		}
		defer r.drv.ExecDestroy(c, execs[m.Index])
		ready[m.Index] = p
	}
	for _, m := range r.g.Members() {
		if err := ready[m.Index].Enqueue(r.streams[m.Rank.ID]); err != nil {
			return err
		}
	}
	for range 3 {
		for _, m := range r.g.Members() {
			if err := r.drv.GraphLaunch(m.Rank.Ctx, execs[m.Index], r.streams[m.Rank.ID]); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(r.check(), u.check()); err != nil {
		return fmt.Errorf("sizes %v: %w", sizes, err)
	}
	return u.free()
}

// TestUnevenLeftOut leaves a rank out of an all_to_all in chunks, so that the others time out with
// some chunks in their scratch. After a rejoin that must not change the results of the group.
func TestUnevenLeftOut(t *testing.T) {
	const n = 4
	r := newRigT(t, n)
	o := smallGroup(r.w.Shares(), n)
	g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	rng := rand.New(rand.NewPCG(17, 1))
	packets, chunk := g.Scratch().AllToAllV(n)
	sizes := randomSizes(rng, n, packets)
	sizes[0][1], sizes[1][0], sizes[2][0] = 7*32*uint64(chunk), 9*32*uint64(chunk)+5, packets+1
	for round := range 3 {
		absent := []int{1, n - 1, -1}[round]
		if g.SetTimeout(plenty); absent >= 0 {
			g.SetTimeout(100 * time.Millisecond)
		}
		u := r.newUneven(g, sizes, rng, 16)
		for _, m := range g.Members() {
			if m.Index == absent {
				continue
			}
			p, err := m.PrepareAllToAllV(u.send[m.Index], u.recv[m.Index])
			if err != nil && absent >= 0 && gaveUp(err) { // where this takes its time
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Enqueue(r.streams[m.Index]); err != nil && (absent < 0 || !gaveUp(err)) {
				t.Fatal(err)
			}
		}
		for _, m := range g.Members() {
			err := m.Check(t.Context(), r.streams[m.Index])
			var late *symm.TimeoutError
			switch {
			case absent < 0 || m.Index == absent && err == nil:
				if err != nil {
					t.Fatal(err)
				}
			case errors.As(err, &late) && late.Rank == m.Index:
				if late.Op != kernels.AllToAllV.String() {
					t.Errorf("rank %d: %+v", m.Index, *late)
				}
			case !errors.Is(err, symm.ErrCanceled):
				t.Errorf("rank %d: %v", m.Index, err)
			}
		}
		if absent >= 0 {
			if err := g.Rejoin(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else if err := u.check(); err != nil {
			t.Error(err)
		}
		if err := u.free(); err != nil {
			t.Error(err)
		}
	}
}

// Ranks that disagree on the size of a piece end with an error that says so, however it travels, and
// the one that expects less finds nothing behind it.
func TestUnevenDisagrees(t *testing.T) {
	const n = 2
	r := newRigT(t, n)
	g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), smallGroup(r.w.Shares(), n))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	packets, chunk := g.Scratch().AllToAllV(n)
	large := 9 * 32 * uint64(chunk)
	rng := rand.New(rand.NewPCG(19, 1))
	for _, c := range []struct{ sent, expected uint64 }{
		{100, 96}, {96, 100}, {0, 8}, {8, 0}, {packets, packets + 1}, {packets + 1, packets}, {large, large + 1}, {large + 16, large}, {large, 0}, {0, large}, {3, 3},
	} {
		u := r.newUneven(g, [][]uint64{{5, 700}, {max(c.sent, c.expected), 9}}, rng, 16)
		u.send[1][0].Bytes, u.recv[0][1].Bytes = c.sent, c.expected
		u.data[1][0] = u.data[1][0][:c.expected]
		for _, m := range g.Members() {
			p := got(m.PrepareAllToAllV(u.send[m.Index], u.recv[m.Index]))(t)
			if err := p.Enqueue(r.streams[m.Index]); err != nil && !errors.Is(err, symm.ErrMismatch) && !gaveUp(err) {
				t.Fatal(err)
			}
		}
		var errs [n]error
		for _, m := range g.Members() {
			errs[m.Index] = m.Check(t.Context(), r.streams[m.Index])
		}
		if c.sent == c.expected {
			if err := errors.Join(errors.Join(errs[:]...), u.check()); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		var differ *symm.MismatchError
		want := fmt.Sprintf("rank 0: all_to_all_uneven: bytes from rank 1 to rank 0 differ: %d expected on rank 0, %d sent on rank 1", c.expected, c.sent)
		if !errors.As(errs[0], &differ) || differ.Error() != want {
			t.Errorf("%+v: rank 0: %v, want %s", c, errs[0], want)
		}
		if errs[1] != nil && !errors.Is(errs[1], symm.ErrMismatch) {
			t.Errorf("%+v: rank 1: %v", c, errs[1])
		}
		if err := g.Rejoin(t.Context()); err != nil {
			t.Fatal(err)
		}
		piece := u.recv[0][1]
		after := r.read(0, uint64(piece.At-r.w.Addr(0, 0))+c.expected, max(c.sent, c.expected)-c.expected)
		if !bytes.Equal(after, bytes.Repeat([]byte{0xa5}, len(after))) {
			t.Errorf("%+v: bytes behind the piece were written", c)
		}
		if err := u.free(); err != nil {
			t.Error(err)
		}
	}
}
