//go:build linux

package fake

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// The Go forms of the kernels follow the device sources step by step: the same
// packets, epochs, counters and chunks at the same addresses, with the blocks of a
// grid run one after the other and the threads of a block as loops. Words that
// ranks share are accessed atomically.
//
// Loops over data are not instrumented (go:norace). The race detector follows the heap and the
// globals of Go only: it ignores every access to device memory, at the full price.
type block struct {
	f         *Driver
	name      string
	dev       int
	a         *kernels.Args
	bid, grid uint32
}

var errFakeAborted = fmt.Errorf("aborted")

// kernel decodes the arguments and gives the work of one launch on a device.
func (f *Driver) kernel(name string, dev, grid int, buf []byte) (func() error, error) {
	blocks := func(a *kernels.Args, body func(*block) error) func() error {
		return func() error { return block{f: f, name: name, dev: dev, a: a, grid: uint32(grid)}.launch(body) }
	}
	if large := name == "all_to_all_uneven_chunks"; large || name == "all_to_all_uneven_ll" {
		a, t, err := kernels.UnpackTable(buf)
		if err != nil {
			return nil, err
		}
		return blocks(a, abortable(name, func(b *block) error { return b.uneven(t, large) })), nil
	}
	if name == "all_to_all_uneven_read" {
		a, table, err := kernels.UnpackPlace(buf)
		if err != nil {
			return nil, err
		}
		return blocks(a, abortable(name, func(b *block) error {
			t, own := kernels.ReadTable(bytesAt(driver.Ptr(table), kernels.TableBytes)), *b
			args := *b.a
			args.Units = args.Rounds(t, int(args.Rank), int(b.grid))
			own.a = &args
			return own.uneven(t, true)
		})), nil
	}
	if name == "choose" {
		return f.choose(buf)
	}
	if run, err, ok := benchKernel(name, buf); ok {
		return run, err
	}
	if m, err, ok := matmulKernel(name, buf); ok {
		if err != nil || m.gathered == nil {
			return m.run, err
		}
		a, err := kernels.Unpack(buf[matmulBytes+driver.TensorMapBytes:], 1)
		return blocks(a, func(b *block) error { return b.gathering(m) }), err
	}
	body, ok := bodyOf(name)
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
	return blocks(a, abortable(name, body)), nil
}

// abortable is body for a kernel that returns at once in a group that is aborted. Those
// that wait for no peer continue.
func abortable(name string, body func(*block) error) func(*block) error {
	if name == "signal" || strings.HasPrefix(name, "staged") || strings.HasPrefix(name, "coresident") {
		return body
	}
	return func(b *block) error {
		if b.aborted() {
			return errFakeAborted
		}
		return body(b)
	}
}

// bodyOf finds the Go form of a kernel by its name.
func bodyOf(name string) (func(*block) error, bool) {
	switch name {
	case "barrier":
		return func(b *block) error { return b.channel(true, true) }, true
	case "signal":
		return func(b *block) error { return b.channel(true, false) }, true
	case "wait":
		return func(b *block) error { return b.channel(false, true) }, true
	}
	for _, k := range []struct {
		prefix string
		body   func(*block) error
	}{
		{"all_reduce_oneshot", func(b *block) error { return b.oneshot(false) }},
		{"reduce_scatter_oneshot", func(b *block) error { return b.oneshot(true) }},
		{"all_reduce_twoshot", (*block).twoshot},
		{"all_reduce_ll", func(b *block) error { return b.flagged(kernels.AllReduce) }},
		{"reduce_scatter_ll", func(b *block) error { return b.flagged(kernels.ReduceScatter) }},
		{"all_gather_ll", func(b *block) error { return b.flagged(kernels.AllGather) }},
		{"all_to_all_ll", func(b *block) error { return b.flagged(kernels.AllToAll) }},
		{"all_reduce_direct", func(b *block) error { return b.direct(kernels.AllReduce) }},
		{"reduce_scatter_sent", (*block).sent},
		{"reduce_scatter_direct", func(b *block) error { return b.direct(kernels.ReduceScatter) }},
		{"all_gather_direct", func(b *block) error { return b.direct(kernels.AllGather) }},
		{"all_to_all_direct", func(b *block) error { return b.direct(kernels.AllToAll) }},
		{"all_reduce_push", func(b *block) error { return b.push(true) }},
		{"reduce_scatter_push", func(b *block) error { return b.push(false) }},
		{"all_reduce_multicast", func(b *block) error { return b.multicast(kernels.AllReduce) }},
		{"all_gather_multicast", func(b *block) error { return b.multicast(kernels.AllGather) }},
		{"staged_any", func(b *block) error { return b.staged(8) }},
		{"staged", func(b *block) error { return b.staged(16) }},
		{"coresident_reduce", func(b *block) error { return b.staged(16) }},
		{"coresident_copy", (*block).coresidentCopy},
	} {
		if strings.HasPrefix(name, k.prefix) {
			return k.body, true
		}
	}
	return nil, false
}

// launch runs one block after the other.
func (b block) launch(body func(*block) error) error {
	for b.bid = 0; b.bid < b.grid; b.bid++ {
		b.f.pause()
		if err := body(&b); err == errFakeAborted {
			if b.a.Host != 0 {
				setWord(b.a.Host+kernels.CtlLeft, 1)
			}
			return nil // the host finds out from the record and its own page
		} else if err != nil {
			return err
		}
	}
	return nil
}

func word(at uint64) uint32       { return hostmem.Load32(uintptr(at)) }
func setWord(at uint64, v uint32) { hostmem.Store32(uintptr(at), v) }
func addWord(at uint64, v uint32) uint32 {
	return atomic.AddUint32((*uint32)(hostmem.Pointer(uintptr(at))), v)
}
func long(at uint64) uint64 { return atomic.LoadUint64((*uint64)(hostmem.Pointer(uintptr(at)))) }
func setLong(at, v uint64)  { atomic.StoreUint64((*uint64)(hostmem.Pointer(uintptr(at))), v) }

func (b *block) aborted() bool { return word(b.a.Ctl+kernels.CtlAbort) != 0 }

func (b *block) peerCtl(k uint32) uint64 { return b.a.Ctl - b.a.Peer[0] + b.a.Peer[k] }

func (b *block) rankAt(k uint32) uint32 { return (b.a.Rank + k) % b.a.N }

func (b *block) toPeer(k uint32, at uint64) uint64 { return at - b.a.Peer[0] + b.a.Peer[k] }

// poll calls ready until it holds, the group is aborted or the deadline passes.
func (b *block) poll(peer, want uint32, ready func() (bool, uint32)) error {
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
		if start.IsZero() {
			start = time.Now()
			defer b.f.guard.waits(b, peer)()
		}
		b.f.rest(start)
		b.f.pause()
		if b.aborted() {
			return errFakeAborted
		}
		elapsed := uint64(time.Since(start))
		host := b.a.Host != 0 && word(b.a.Host+kernels.CtlAbort) != 0
		if !host && (b.a.Timeout == 0 || elapsed <= b.a.Timeout) {
			continue
		}
		if host {
			return b.abortAll()
		}
		return b.report(kernels.CodeTimeout, peer, want, seen, elapsed)
	}
}

func (b *block) abortAll() error {
	for k := uint32(0); k < b.a.N; k++ {
		setWord(b.peerCtl(k)+kernels.CtlAbort, 1)
	}
	return errFakeAborted
}

// report writes the error record once per rank and aborts the whole group.
func (b *block) report(code, peer, want, seen uint32, more uint64) error {
	if !atomic.CompareAndSwapUint32((*uint32)(hostmem.Pointer(uintptr(b.a.Ctl+kernels.CtlRecord))), 0, 1) {
		return b.abortAll()
	}
	for _, at := range []uint64{b.a.Ctl, b.a.Host} {
		if at == 0 {
			continue
		}
		r := at + kernels.CtlRecord
		for i, v := range []uint32{code, b.a.Seq, b.a.Op, b.a.Rank, peer, b.bid, want, seen, 0, uint32(more), uint32(more >> 32)} {
			setWord(r+4+4*uint64(i), v)
		}
		setWord(r, 2)
	}
	return b.abortAll()
}

func (b *block) waitCounter(at uint64, want, peer uint32) error {
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

// epoch is that of a call whose epochs are at which, and where its half of the scratch is.
func (b *block) epoch(which uint64) (uint32, uint64) {
	e := nextEpoch(word(b.a.Ctl + which + 4*uint64(b.bid)))
	half := b.a.Scratch
	if e&1 == 1 {
		half += b.a.Half
	}
	return e, half
}

//go:norace
func (b *block) setEpoch(which uint64, e uint32) {
	for c := b.bid; c < kernels.MaxBlocks; c += b.grid {
		setWord(b.a.Ctl+which+4*uint64(c), e)
	}
}

// channel is signal, wait or both for the chosen peers.
func (b *block) channel(signal, wait bool) error {
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
func (b *block) load(seg int, base, off uint64, size uint64) (v [16]byte) {
	n := min(size, b.a.Segs[seg].Bytes-off)
	copy(v[:n], bytesAt(driver.Ptr(base+off), n))
	return v
}

func (b *block) store(seg int, base, off uint64, size uint64, v [16]byte) {
	n := min(size, b.a.Segs[seg].Bytes-off)
	copy(bytesAt(driver.Ptr(base+off), n), v[:n])
}

// reduce folds the ranks' units element by element in rank order.
//
//go:norace
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
