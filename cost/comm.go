package cost

import (
	"math"

	"github.com/seed-ee968945/concert/ir"
)

// CommMs estimates a collective over a group of the given size whose larger side
// (operands or results) has that many bytes on each rank. It is the least over
// the protocols that a good library has:
//
//   - one-shot: every rank reads all of its peers once; one barrier;
//   - two-shot: reduce-scatter and all-gather by loads and stores; two barriers;
//   - ring, in three forms: flags in every 8 bytes (a quarter of the bandwidth
//     reached, cheap hops), in every 128 (0.7 of it), or bulk copies (all of it,
//     dear hops); the shares are fitted to the measured tables.
//
// Over several hosts the ring's slowest link is the network, and hops between
// hosts cost network latency. The shape of the model, alpha plus beta per
// protocol, follows NCCL's tuner; the constants are the machine's.
func (m *Machine) CommMs(op ir.Op, ranks int, size int64) (float64, bool) {
	if ranks <= 1 {
		return 0, true
	}
	n := float64(ranks)
	steps, share, ok := traffic(op, n)
	if !ok {
		return 0, false
	}
	bytes := float64(size)
	hosts := math.Ceil(n / float64(m.RanksPerHost))
	if hosts > 1 && m.Inter.GBps == 0 {
		return 0, false
	}
	us := m.ring(steps, share*bytes, n, hosts)
	if hosts == 1 && m.Intra.BarrierUs > 0 {
		us = min(us, m.direct(op, n, bytes))
	}
	return us / 1e3, true
}

// traffic is a ring's number of steps and the share of the bytes that each rank sends.
func traffic(op ir.Op, n float64) (steps, share float64, ok bool) {
	switch op {
	case ir.OpAllReduce:
		return 2 * (n - 1), 2 * (n - 1) / n, true
	case ir.OpAllGather, ir.OpReduceScatter, ir.OpAllToAll:
		return n - 1, (n - 1) / n, true
	case ir.OpBroadcast:
		return n - 1, 1, true
	case ir.OpCollectivePermute:
		return 1, 1, true
	}
	return 0, 0, false
}

// LinkShare is the part of what the links between ranks of one host carry that a
// collective of that many bytes takes, if it lasts us microseconds: between 0 and 1, by
// what a rank sends at least. It is 0 for what sends nothing or is not known.
func (m *Machine) LinkShare(op ir.Op, ranks int, size int64, us float64) float64 {
	peak := max(m.Intra.PeakGBps, m.Intra.GBps)
	_, share, ok := traffic(op, float64(ranks))
	if !ok || ranks <= 1 || !(us > 0) || !(peak > 0) {
		return 0
	}
	return min(share*float64(size)/(peak*1e3*us), 1)
}

// ring is the best of the ring protocols, in microseconds.
func (m *Machine) ring(steps, sent, n, hosts float64) float64 {
	gbps, base := m.Intra.GBps, m.Intra.BaseUs
	between := 0.0 // steps between hosts
	if hosts > 1 {
		gbps, base = min(gbps, m.Inter.GBps*min(n, float64(m.RanksPerHost))), m.Inter.BaseUs
		between = math.Ceil(steps * hosts / n)
	}
	within := steps - between
	best := math.Inf(1)
	for _, p := range []struct {
		bandwidth float64 // share of the link's
		bulk      float64 // 0: flag hops, 1: bulk hops
	}{{0.25, 0}, {0.7, 0.4}, {1, 1}} {
		hop := func(l Link) float64 { return l.HopUs + p.bulk*(l.BulkHopUs-l.HopUs) }
		best = min(best, base+within*hop(m.Intra)+between*hop(m.Inter)+sent/(gbps*p.bandwidth*1e3))
	}
	return best
}

// direct is the better of one-shot and two-shot kernels, in microseconds.
func (m *Machine) direct(op ir.Op, n, bytes float64) float64 {
	perUs := m.Intra.GBps * 1e3
	l := m.LaunchUs + m.Intra.BarrierUs
	piece := (n - 1) / n * bytes / perUs
	switch op {
	case ir.OpAllReduce:
		return min(l+(n-1)*bytes/perUs, l+m.Intra.BarrierUs+2*piece)
	case ir.OpBroadcast, ir.OpCollectivePermute:
		return l + bytes/perUs
	}
	return l + piece
}
