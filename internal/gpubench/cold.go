package main

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// sender puts bytes at offset from of a rank's memory to offset to of its peers'.
type sender struct {
	name string
	must bool // barriers order it
	send func(b *bench, rank int, from, to, bytes uint64) error
}

var senders = []sender{
	{"copies", true, func(b *bench, rank int, from, to, bytes uint64) error {
		for k := 1; k < b.n; k++ {
			if err := b.drv.Copy(b.w.Rank(rank).Ctx, b.streams[rank], driver.Ptr(b.addr((rank+k)%b.n, to)), driver.Ptr(b.addr(rank, from)), bytes); err != nil {
				return err
			}
		}
		return nil
	}},
	{"threads", true, func(b *bench, rank int, from, to, bytes uint64) error {
		return b.launch(rank, "bench", "links_store", 16, 512, 0, u32s(u64s(b.peers(rank), from, to), uint32(bytes/16), 0))
	}},
	{"bulk stores", false, func(b *bench, rank int, from, to, bytes uint64) error {
		return b.launch(rank, "bench_bulk", "links_bulk_push", 12, 32, 8*24576, u32s(u64s(b.peers(rank), from, to), uint32(bytes/16), 0))
	}},
}

func (b *bench) peers(rank int) []byte {
	a := kernels.Args{N: uint32(b.n), Rank: uint32(rank)}
	for k := range b.n {
		a.Peer[k] = b.addr((rank+k)%b.n, 0)
	}
	return a.Pack(nil, 1)
}

// cold sends to memory of peers that nobody has touched before, a page after the other, each sent to once, and counts
// words that a kernel behind a barrier finds stale. What the copy unit of multiprocessors stores a barrier does not order.
func (b *bench) cold() error {
	const pages, page, blocks = 40, 8 << 20, 8
	const read = blocks * 512 * 64
	const bytes = (read + 24575) / 24576 * 24576
	plans, err := b.prepare(func(int) coll.Op { return coll.Op{Kind: kernels.Barrier} })
	if err != nil {
		return err
	}
	round := b.src + bytes
	var failed error
	for i, s := range senders {
		err := b.each(func(rank int) error {
			k, st := b.w.Rank(rank), b.streams[rank]
			if err := b.drv.Memset32(k.Ctx, st, driver.Ptr(b.addr(rank, round)), 0, 32); err != nil {
				return err
			}
			j := 0
			x, err := b.graph(k, st, pages, func() error {
				to := b.dst + uint64(i*pages+j)*page
				j++
				if err := b.drv.Memset32(k.Ctx, st, driver.Ptr(b.addr(rank, b.src)), uint32(j), bytes/4); err != nil {
					return err
				}
				if err := s.send(b, rank, b.src, to, bytes); err != nil {
					return err
				}
				if err := plans[rank].Enqueue(st); err != nil {
					return err
				}
				if err := b.launch(rank, "bench", "litmus_read", blocks, 512, 0, u64s(b.peers(rank), to, round, b.addr(rank, round+64))); err != nil {
					return err
				}
				if err := plans[rank].Enqueue(st); err != nil {
					return err
				}
				return b.launch(rank, "bench", "litmus_next", 1, 1, 0, u64s(nil, b.addr(rank, round)))
			})
			if err != nil {
				return err
			}
			defer b.drv.ExecDestroy(k.Ctx, x)
			var v [68]byte
			if err := b.drv.GraphLaunch(k.Ctx, x, st); err != nil {
				return err
			}
			if err := b.drv.CopyOut(k.Ctx, st, v[:], driver.Ptr(b.addr(rank, round))); err != nil {
				return err
			}
			rounds, wrong := binary.LittleEndian.Uint32(v[:]), binary.LittleEndian.Uint32(v[64:])
			fmt.Printf("cold %-11s rank %d: %d pages, %d stale words of %d\n", s.name, rank, rounds, wrong, pages*2*blocks*512*(b.n-1))
			if s.must && (rounds != pages || wrong != 0) {
				return fmt.Errorf("barriers do not order %s", s.name)
			}
			return nil
		})
		if failed == nil {
			failed = err
		}
	}
	return failed
}
