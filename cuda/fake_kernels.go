//go:build linux

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// The Go forms of the kernels follow the device sources step by step: the same
// packets, epochs, counters and chunks at the same addresses, with the blocks of a
// grid run one after the other and the threads of a block as loops. Words that
// ranks share are accessed atomically.
type fakeBlock struct {
	f         *Fake
	a         *kernels.Args
	bid, grid uint32
}

var errFakeAborted = fmt.Errorf("gave up")

// fakeKernel decodes the arguments and gives the work of one launch.
func fakeKernel(f *Fake, name string, grid int, buf []byte) (func() error, error) {
	if name == "all_to_all_uneven_ll" {
		a, t, err := kernels.UnpackTable(buf)
		if err != nil {
			return nil, err
		}
		return blocks(f, a, grid, heeding(name, func(b *fakeBlock) error { return b.uneven(t) })), nil
	}
	body, ok := fakeBody(name)
	if !ok {
		return nil, fmt.Errorf("kernel %s has no Go form", name)
	}
	segs := 1
	if strings.HasSuffix(name, "_segs") {
		segs = kernels.MaxSegs
	}
	a, err := kernels.Unpack(buf, segs)
	if err != nil {
		return nil, err
	}
	return blocks(f, a, grid, heeding(name, body)), nil
}

// heeding is body for a kernel that gives up at once in a group that is aborted. Those
// that wait for nobody go on.
func heeding(name string, body func(*fakeBlock) error) func(*fakeBlock) error {
	if name == "signal" || strings.HasPrefix(name, "staged") || strings.HasPrefix(name, "guest") {
		return body
	}
	return func(b *fakeBlock) error {
		if b.aborted() {
			return errFakeAborted
		}
		return body(b)
	}
}

// fakeBody finds the Go form of a kernel by its name.
func fakeBody(name string) (func(*fakeBlock) error, bool) {
	switch name {
	case "barrier":
		return func(b *fakeBlock) error { return b.channel(true, true) }, true
	case "signal":
		return func(b *fakeBlock) error { return b.channel(true, false) }, true
	case "wait":
		return func(b *fakeBlock) error { return b.channel(false, true) }, true
	}
	for _, k := range []struct {
		prefix string
		body   func(*fakeBlock) error
	}{
		{"all_reduce_oneshot", func(b *fakeBlock) error { return b.oneshot(false) }},
		{"reduce_scatter_oneshot", func(b *fakeBlock) error { return b.oneshot(true) }},
		{"all_reduce_twoshot", (*fakeBlock).twoshot},
		{"all_reduce_ll", func(b *fakeBlock) error { return b.flagged(kernels.AllReduce) }},
		{"reduce_scatter_ll", func(b *fakeBlock) error { return b.flagged(kernels.ReduceScatter) }},
		{"all_gather_ll", func(b *fakeBlock) error { return b.flagged(kernels.AllGather) }},
		{"all_to_all_ll", func(b *fakeBlock) error { return b.flagged(kernels.AllToAll) }},
		{"all_reduce_direct", func(b *fakeBlock) error { return b.direct(kernels.AllReduce) }},
		{"reduce_scatter_direct", func(b *fakeBlock) error { return b.direct(kernels.ReduceScatter) }},
		{"all_gather_direct", func(b *fakeBlock) error { return b.direct(kernels.AllGather) }},
		{"all_to_all_direct", func(b *fakeBlock) error { return b.direct(kernels.AllToAll) }},
		{"all_reduce_push", func(b *fakeBlock) error { return b.pushAll(true) }},
		{"reduce_scatter_push", func(b *fakeBlock) error { return b.pushAll(false) }},
		{"staged_any", func(b *fakeBlock) error { return b.staged(8) }},
		{"staged", func(b *fakeBlock) error { return b.staged(16) }},
		{"guest_fold", func(b *fakeBlock) error { return b.staged(16) }},
		{"guest_copy", (*fakeBlock).guestCopy},
	} {
		if strings.HasPrefix(name, k.prefix) {
			return k.body, true
		}
	}
	return nil, false
}

func blocks(f *Fake, a *kernels.Args, grid int, body func(*fakeBlock) error) func() error {
	return func() error {
		for i := 0; i < grid; i++ {
			b := &fakeBlock{f: f, a: a, bid: uint32(i), grid: uint32(grid)}
			f.pause()
			if err := body(b); err == errFakeAborted {
				if a.Host != 0 {
					setWord(a.Host+kernels.CtlLeft, 1)
				}
				return nil // the host finds out from the record and its own page
			} else if err != nil {
				return err
			}
		}
		return nil
	}
}

func word(at uint64) uint32       { return load32(uintptr(at)) }
func setWord(at uint64, v uint32) { store32(uintptr(at), v) }
func addWord(at uint64, v uint32) { atomic.AddUint32((*uint32)(pointer(uintptr(at))), v) }
func long(at uint64) uint64       { return atomic.LoadUint64((*uint64)(pointer(uintptr(at)))) }
func setLong(at, v uint64)        { atomic.StoreUint64((*uint64)(pointer(uintptr(at))), v) }

func (b *fakeBlock) aborted() bool { return word(b.a.Ctl+kernels.CtlAbort) != 0 }

func (b *fakeBlock) peerCtl(k uint32) uint64 { return b.a.Ctl - b.a.Peer[0] + b.a.Peer[k] }

func (b *fakeBlock) rankAt(k uint32) uint32 { return (b.a.Rank + k) % b.a.N }

func (b *fakeBlock) toPeer(k uint32, at uint64) uint64 { return at - b.a.Peer[0] + b.a.Peer[k] }

// poll calls ready until it holds, the group is aborted or the deadline passes.
func (b *fakeBlock) poll(peer, want uint32, ready func() (bool, uint32)) error {
	var start time.Time
	for spins := 0; ; spins++ {
		ok, seen := ready()
		if ok {
			return nil
		}
		if spins < 64 {
			runtime.Gosched()
			continue
		}
		time.Sleep(time.Microsecond)
		b.f.pause()
		if b.aborted() {
			return errFakeAborted
		}
		if start.IsZero() {
			start = time.Now()
		}
		elapsed := uint64(time.Since(start))
		host := b.a.Host != 0 && word(b.a.Host+kernels.CtlAbort) != 0
		if !host && (b.a.Timeout == 0 || elapsed <= b.a.Timeout) {
			continue
		}
		if !host && atomic.CompareAndSwapUint32((*uint32)(pointer(uintptr(b.a.Ctl+kernels.CtlRecord))), 0, 1) {
			b.report(peer, want, seen, elapsed)
		}
		for k := uint32(0); k < b.a.N; k++ {
			setWord(b.peerCtl(k)+kernels.CtlAbort, 1)
		}
		return errFakeAborted
	}
}

func (b *fakeBlock) report(peer, want, seen uint32, elapsed uint64) {
	for _, at := range []uint64{b.a.Ctl, b.a.Host} {
		if at == 0 {
			continue
		}
		r := at + kernels.CtlRecord
		for i, v := range []uint32{1, b.a.Seq, b.a.Op, b.a.Rank, peer, b.bid, want, seen, 0, uint32(elapsed), uint32(elapsed >> 32)} {
			setWord(r+4+4*uint64(i), v)
		}
		setWord(r, 2)
	}
}

func (b *fakeBlock) waitCounter(at uint64, want, peer uint32) error {
	return b.poll(peer, want, func() (bool, uint32) {
		v := word(at)
		return int32(v-want) >= 0, v
	})
}

func nextEpoch(e uint32) uint32 {
	if e == math.MaxUint32 {
		return 2
	}
	return e + 1
}

func (b *fakeBlock) epoch() (uint32, uint64) {
	e := nextEpoch(word(b.a.Ctl + kernels.CtlEpoch + 4*uint64(b.bid)))
	half := b.a.Scratch
	if e&1 == 1 {
		half += b.a.Half
	}
	return e, half
}

func (b *fakeBlock) setEpoch(which uint64, e uint32) {
	for c := b.bid; c < kernels.MaxBlocks; c += b.grid {
		setWord(b.a.Ctl+which+4*uint64(c), e)
	}
}

// channel is signal, wait or both for the chosen peers.
func (b *fakeBlock) channel(signal, wait bool) error {
	at := uint64(kernels.CtlChannel) + 128*uint64(b.a.Per)
	for k := uint32(0); k < b.a.N; k++ {
		if signal && b.a.Units>>b.rankAt(k)&1 == 1 {
			addWord(b.peerCtl(k)+at+4*uint64(b.a.Rank), 1)
		}
	}
	for r := uint32(0); wait && r < b.a.N; r++ {
		if b.a.Units>>r&1 == 0 {
			continue
		}
		mine := b.a.Ctl + at + 4*uint64(r)
		want := word(mine+64) + 1
		if err := b.waitCounter(mine, want, r); err != nil {
			return err
		}
		setWord(mine+64, want)
	}
	return nil
}

// load and store move a unit of at most 16 bytes; beyond the segment are zeros.
func (b *fakeBlock) load(seg int, base, off uint64, size uint64) (v [16]byte) {
	n := min(size, b.a.Segs[seg].Bytes-off)
	copy(v[:n], bytesAt(Ptr(base+off), n))
	return v
}

func (b *fakeBlock) store(seg int, base, off uint64, size uint64, v [16]byte) {
	n := min(size, b.a.Segs[seg].Bytes-off)
	copy(bytesAt(Ptr(base+off), n), v[:n])
}

func (b *fakeBlock) sendPoisoned(at uint64, v [16]byte) {
	for i := uint64(0); i < 4; i++ {
		w := binary.LittleEndian.Uint32(v[4*i:])
		if w == kernels.Poison {
			w = 0x7fff7fff
		}
		setWord(at+4*i, w)
	}
}

func (b *fakeBlock) receivePoisoned(at uint64, peer uint32) (v [16]byte, err error) {
	for i := uint64(0); i < 4; i++ {
		err := b.poll(peer, 0, func() (bool, uint32) {
			w := word(at + 4*i)
			binary.LittleEndian.PutUint32(v[4*i:], w)
			return w != kernels.Poison, w
		})
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

func (b *fakeBlock) poison(at uint64) {
	for i := uint64(0); i < 4; i++ {
		setWord(at+4*i, kernels.Poison)
	}
}

// gather receives unit i from all peers, with mine in its place, and re-poisons.
func (b *fakeBlock) gather(at uint64, mine [16]byte) ([][16]byte, error) {
	v := make([][16]byte, b.a.N)
	for r := uint32(0); r < b.a.N; r++ {
		if r == b.a.Rank {
			v[r] = mine
			continue
		}
		var err error
		if v[r], err = b.receivePoisoned(at+uint64(r)*b.a.Slot, r); err != nil {
			return nil, err
		}
		b.poison(at + uint64(r)*b.a.Slot)
	}
	return v, nil
}

// oneshot is all_reduce_oneshot, or reduce_scatter_oneshot when slices differ.
func (b *fakeBlock) oneshot(scatter bool) error {
	a := b.a
	e, half := b.epoch()
	from := func(s kernels.Seg, r uint32) uint64 {
		if scatter {
			return s.Src + uint64(r)*s.Bytes
		}
		return s.Src
	}
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 16)
		for k := uint32(1); k < a.N; k++ {
			v := b.load(seg, from(a.Segs[seg], b.rankAt(k)), off, 16)
			b.sendPoisoned(a.Peer[k]+half+uint64(a.Rank)*a.Slot+uint64(i)*16, v)
		}
	}
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 16)
		v, err := b.gather(a.Peer[0]+half+uint64(i)*16, b.load(seg, from(a.Segs[seg], a.Rank), off, 16))
		if err != nil {
			return err
		}
		b.store(seg, a.Segs[seg].Dst, off, 16, reduce(a, v))
	}
	b.setEpoch(kernels.CtlEpoch, e)
	return nil
}

func (b *fakeBlock) twoshot() error {
	a := b.a
	e, half := b.epoch()
	for i := b.bid; i < a.Per; i += b.grid {
		for k := uint32(1); k < a.N; k++ {
			unit := b.rankAt(k)*a.Per + i
			if unit >= a.Units {
				continue
			}
			seg, off := a.Find(unit, 16)
			b.sendPoisoned(a.Peer[k]+half+uint64(a.Rank)*a.Slot+uint64(i)*16, b.load(seg, a.Segs[seg].Src, off, 16))
		}
	}
	for i := b.bid; i < a.Per && a.Rank*a.Per+i < a.Units; i += b.grid {
		seg, off := a.Find(a.Rank*a.Per+i, 16)
		v, err := b.gather(a.Peer[0]+half+uint64(i)*16, b.load(seg, a.Segs[seg].Src, off, 16))
		if err != nil {
			return err
		}
		s := reduce(a, v)
		for k := uint32(1); k < a.N; k++ {
			b.sendPoisoned(a.Peer[k]+half+a.Region+uint64(a.Rank)*a.Slot+uint64(i)*16, s)
		}
		b.store(seg, a.Segs[seg].Dst, off, 16, s)
	}
	for i := b.bid; i < a.Per; i += b.grid {
		for r := uint32(0); r < a.N; r++ {
			unit := r*a.Per + i
			if r == a.Rank || unit >= a.Units {
				continue
			}
			at := a.Peer[0] + half + a.Region + uint64(r)*a.Slot + uint64(i)*16
			v, err := b.receivePoisoned(at, r)
			if err != nil {
				return err
			}
			b.poison(at)
			seg, off := a.Find(unit, 16)
			b.store(seg, a.Segs[seg].Dst, off, 16, v)
		}
	}
	b.setEpoch(kernels.CtlEpoch, e)
	return nil
}

func (b *fakeBlock) sendFlagged(at uint64, v [16]byte, e uint32) {
	setLong(at, uint64(binary.LittleEndian.Uint32(v[:]))|uint64(e)<<32)
	setLong(at+8, uint64(binary.LittleEndian.Uint32(v[4:]))|uint64(e)<<32)
}

func (b *fakeBlock) receiveFlagged(at uint64, peer, e uint32) (v [16]byte, err error) {
	for i := uint64(0); i < 2; i++ {
		err := b.poll(peer, e, func() (bool, uint32) {
			w := long(at + 8*i)
			binary.LittleEndian.PutUint32(v[4*i:], uint32(w))
			return uint32(w>>32) == e, uint32(w >> 32)
		})
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// flagged is every *_ll kernel with segments.
func (b *fakeBlock) flagged(kind kernels.Collective) error {
	a := b.a
	e, half := b.epoch()
	src := func(s kernels.Seg, r uint32) uint64 {
		if kind == kernels.ReduceScatter || kind == kernels.AllToAll {
			return s.Src + uint64(r)*s.Bytes
		}
		return s.Src
	}
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 8)
		for k := uint32(1); k < a.N; k++ {
			v := b.load(seg, src(a.Segs[seg], b.rankAt(k)), off, 8)
			b.sendFlagged(a.Peer[k]+half+uint64(a.Rank)*a.Slot+uint64(i)*16, v, e)
		}
	}
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 8)
		s := a.Segs[seg]
		v := make([][16]byte, a.N)
		for r := uint32(0); r < a.N; r++ {
			if r == a.Rank {
				v[r] = b.load(seg, src(s, r), off, 8)
				continue
			}
			var err error
			if v[r], err = b.receiveFlagged(a.Peer[0]+half+uint64(r)*a.Slot+uint64(i)*16, r, e); err != nil {
				return err
			}
		}
		if kind == kernels.AllReduce || kind == kernels.ReduceScatter {
			b.store(seg, s.Dst, off, 8, reduce(a, v))
			continue
		}
		for r := range v {
			b.store(seg, s.Dst+uint64(r)*s.Bytes, off, 8, v[r])
		}
	}
	b.setEpoch(kernels.CtlEpoch, e)
	return nil
}

func (b *fakeBlock) uneven(t kernels.Table) error {
	a := b.a
	e, half := b.epoch()
	move := func(bytes, i uint64) uint64 { return min(8, bytes-min(bytes, i*8)) }
	for k := uint32(0); k < a.N; k++ {
		d := b.rankAt(k)
		for i := uint64(b.bid); i*8 < t.Send[d] || i == 0; i += uint64(b.grid) {
			var v [16]byte
			n := move(t.Send[d], i)
			copy(v[:n], bytesAt(Ptr(t.Src[d]+i*8), n))
			if k == 0 {
				copy(bytesAt(Ptr(t.Dst[d]+i*8), n), v[:n])
			} else {
				b.sendFlagged(a.Peer[k]+half+uint64(a.Rank)*a.Slot+i*16, v, e)
			}
		}
	}
	for k := uint32(1); k < a.N; k++ {
		r := b.rankAt(k)
		for i := uint64(b.bid); i*8 < t.Recv[r] || i == 0; i += uint64(b.grid) {
			v, err := b.receiveFlagged(a.Peer[0]+half+uint64(r)*a.Slot+i*16, r, e)
			if err != nil {
				return err
			}
			n := move(t.Recv[r], i)
			copy(bytesAt(Ptr(t.Dst[r]+i*8), n), v[:n])
		}
	}
	b.setEpoch(kernels.CtlEpoch, e)
	return nil
}

func (b *fakeBlock) enter() (uint32, error) {
	e := word(b.a.Ctl+kernels.CtlDirect+4*uint64(b.bid)) + 1
	for k := uint32(0); b.bid == 0 && k < b.a.N; k++ {
		addWord(b.peerCtl(k)+kernels.CtlEntry+4*uint64(b.a.Rank), 1)
	}
	for r := uint32(0); r < b.a.N; r++ {
		if err := b.waitCounter(b.a.Ctl+kernels.CtlEntry+4*uint64(r), e, r); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (b *fakeBlock) leave(e uint32) error {
	at := func(r uint32) uint64 { return kernels.CtlExit + 4*(uint64(b.bid)*kernels.MaxRanks+uint64(r)) }
	for k := uint32(0); k < b.a.N; k++ {
		setWord(b.peerCtl(k)+at(b.a.Rank), e)
	}
	for r := uint32(0); r < b.a.N; r++ {
		if err := b.waitCounter(b.a.Ctl+at(r), e, r); err != nil {
			return err
		}
	}
	b.setEpoch(kernels.CtlDirect, e)
	return nil
}

func (b *fakeBlock) direct(kind kernels.Collective) error {
	a := b.a
	e, err := b.enter()
	if err != nil {
		return err
	}
	lo, hi := uint32(0), a.Units
	if kind == kernels.AllReduce {
		lo, hi = min(a.Rank*a.Per, a.Units), min((a.Rank+1)*a.Per, a.Units)
	}
	for i := lo + b.bid; i < hi; i += b.grid {
		seg, off := a.Find(i, 16)
		s := a.Segs[seg]
		switch kind {
		case kernels.AllReduce, kernels.ReduceScatter:
			v := make([][16]byte, a.N)
			src := s.Src
			if kind == kernels.ReduceScatter {
				src += uint64(a.Rank) * s.Bytes
			}
			for k := uint32(0); k < a.N; k++ {
				v[b.rankAt(k)] = b.load(seg, b.toPeer(k, src), off, 16)
			}
			w := reduce(a, v)
			for k := uint32(0); k < a.N && (k == 0 || kind == kernels.AllReduce); k++ {
				b.store(seg, b.toPeer(k, s.Dst), off, 16, w)
			}
		default:
			for k := uint32(0); k < a.N; k++ {
				src := s.Src
				if kind == kernels.AllToAll {
					src += uint64(b.rankAt(k)) * s.Bytes
				}
				b.store(seg, b.toPeer(k, s.Dst+uint64(a.Rank)*s.Bytes), off, 16, b.load(seg, src, off, 16))
			}
		}
	}
	return b.leave(e)
}

// pushAll is all_reduce_push, or reduce_scatter_push when it does not gather.
func (b *fakeBlock) pushAll(gather bool) error {
	a := b.a
	e := word(a.Ctl+kernels.CtlDirect+4*uint64(b.bid)) + 1
	done := word(a.Ctl + kernels.CtlChunks + 4*uint64(b.bid))
	for k := uint32(0); b.bid == 0 && k < a.N; k++ {
		addWord(b.peerCtl(k)+kernels.CtlEntry+4*uint64(a.Rank), 1)
	}
	all := a.Units
	if gather {
		all = a.Per
	}
	chunks := (all + kernels.PushUnits - 1) / kernels.PushUnits
	mine := uint32(0)
	if b.bid < chunks {
		mine = (chunks - b.bid + b.grid - 1) / b.grid
	}
	for t := uint32(0); t <= mine; t++ {
		if t < mine {
			if err := b.await(kernels.CtlCredit, done+t-kernels.PushDepth+1); err != nil {
				return err
			}
			b.pushChunk(gather, b.bid+t*b.grid, (done+t)%kernels.PushDepth)
			b.raise(kernels.CtlPushed, done+t+1)
		}
		if t > 0 {
			if err := b.await(kernels.CtlPushed, done+t); err != nil {
				return err
			}
			b.foldChunk(gather, b.bid+(t-1)*b.grid, (done+t-1)%kernels.PushDepth)
			b.raise(kernels.CtlCredit, done+t)
		}
	}
	setWord(a.Ctl+kernels.CtlChunks+4*uint64(b.bid), done+mine)
	return b.leave(e)
}

func (b *fakeBlock) raise(which uint64, count uint32) {
	for k := uint32(1); k < b.a.N; k++ {
		setWord(b.peerCtl(k)+which+4*(uint64(b.bid)*kernels.MaxRanks+uint64(b.a.Rank)), count)
	}
}

func (b *fakeBlock) await(which uint64, count uint32) error {
	for k := uint32(1); k < b.a.N; k++ {
		r := b.rankAt(k)
		if err := b.waitCounter(b.a.Ctl+which+4*(uint64(b.bid)*kernels.MaxRanks+uint64(r)), count, r); err != nil {
			return err
		}
	}
	return nil
}

// chunkUnits gives the units of chunk j of rank d's slice and what is added to a
// source address for it.
func (b *fakeBlock) chunkUnits(gather bool, j, d uint32) (from, count uint32, shift func(kernels.Seg) uint64) {
	a := b.a
	from = j * kernels.PushUnits
	if !gather {
		return from, min(kernels.PushUnits, a.Units-from), func(s kernels.Seg) uint64 { return uint64(d) * s.Bytes }
	}
	count = min(kernels.PushUnits, a.Per-from)
	from += d * a.Per
	return from, min(count, a.Units-min(a.Units, from)), func(kernels.Seg) uint64 { return 0 }
}

func (b *fakeBlock) stage(slot, src, i uint32) uint64 {
	at := (uint64(b.bid)*kernels.PushDepth+uint64(slot))*uint64(b.a.N) + uint64(src)
	return b.a.Scratch + (at*kernels.PushUnits+uint64(i))*16
}

func (b *fakeBlock) pushChunk(gather bool, j, slot uint32) {
	for k := uint32(1); k < b.a.N; k++ {
		from, count, shift := b.chunkUnits(gather, j, b.rankAt(k))
		for i := uint32(0); i < count; i++ {
			seg, off := b.a.Find(from+i, 16)
			s := b.a.Segs[seg]
			v := b.load(seg, s.Src+shift(s), off, 16)
			copy(bytesAt(Ptr(b.a.Peer[k]+b.stage(slot, b.a.Rank, i)), 16), v[:])
		}
	}
}

func (b *fakeBlock) foldChunk(gather bool, j, slot uint32) {
	a := b.a
	from, count, shift := b.chunkUnits(gather, j, a.Rank)
	v := make([][16]byte, a.N)
	for i := uint32(0); i < count; i++ {
		seg, off := a.Find(from+i, 16)
		s := a.Segs[seg]
		for r := uint32(0); r < a.N; r++ {
			if r == a.Rank {
				v[r] = b.load(seg, s.Src+shift(s), off, 16)
			} else {
				copy(v[r][:], bytesAt(Ptr(a.Peer[0]+b.stage(slot, r, i)), 16))
			}
		}
		w := reduce(a, v)
		for k := uint32(0); k < a.N && (k == 0 || gather); k++ {
			b.store(seg, b.toPeer(k, s.Dst), off, 16, w)
		}
	}
}

// staged folds pieces that copies have brought, those of several segments one behind
// the other.
func (b *fakeBlock) staged(unit uint64) error {
	a, before := b.a, uint64(0)
	for i, s := range a.Segs {
		for off := uint64(b.bid) * 16; off < s.Bytes; off += uint64(b.grid) * 16 {
			v := make([][16]byte, a.N)
			for r := uint32(0); r < a.N; r++ {
				base := a.Peer[0] + a.Scratch + uint64(r)*a.Slot + before
				if r == a.Rank {
					base = s.Src
				}
				v[r] = b.load(i, base, off, 16)
			}
			b.store(i, s.Dst, off, 16, reduce(a, v))
		}
		before += (s.Bytes + unit - 1) / unit * unit
	}
	return nil
}

// reduce folds the ranks' units element by element in rank order.
func reduce(a *kernels.Args, v [][16]byte) (out [16]byte) {
	t := dtype.DType(a.DType)
	size := t.Size()
	for at := 0; at < 16; at += size {
		if t.IsFloat() && t != dtype.F64 {
			s := getFloat(t, v[0][at:])
			for _, w := range v[1:] {
				s = fold(kernels.Reduction(a.Op), s, getFloat(t, w[at:]))
			}
			if kernels.Reduction(a.Op) == kernels.Avg {
				s /= float32(len(v))
			}
			putFloat(t, out[at:], s)
			continue
		}
		if t == dtype.F64 {
			s := math.Float64frombits(binary.LittleEndian.Uint64(v[0][at:]))
			for _, w := range v[1:] {
				s = fold(kernels.Reduction(a.Op), s, math.Float64frombits(binary.LittleEndian.Uint64(w[at:])))
			}
			if kernels.Reduction(a.Op) == kernels.Avg {
				s /= float64(len(v))
			}
			binary.LittleEndian.PutUint64(out[at:], math.Float64bits(s))
			continue
		}
		s := dtype.LoadInt(t, v[0][at:])
		for _, w := range v[1:] {
			s = fold(kernels.Reduction(a.Op), s, dtype.LoadInt(t, w[at:]))
		}
		dtype.StoreInt(t, out[at:], s)
	}
	return out
}
