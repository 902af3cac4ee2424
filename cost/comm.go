package cost

import (
	"math"

	"github.com/seed-ee968945/concert/ir"
)

// CommMs estimates a collective over a group that lies there whose larger side
// (operands or results) has that many bytes on each rank. It is the least over
// the protocols that a good library has:
//
//   - one-shot: every rank reads all of its peers once; one barrier;
//   - two-shot: reduce-scatter and all-gather by loads and stores; two barriers;
//   - ring, in three forms: flags in every 8 bytes (a quarter of the bandwidth
//     reached, cheap hops), in every 128 (0.7 of it), or bulk copies (all of it,
//     dear hops); the shares are fitted to the measured tables.
//
// Over several NVLink domains the ring's slowest link is the network, on as many
// adapters as the group has ranks in a domain, less what other subgroups take of them and of
// the way between switches; what ranks send to each other leaves by one adapter each. Hops
// between domains cost network latency. There an all_reduce may also be
//
//   - a tree of domains, with its ranks as a chain or their switch below each: as many hops as
//     its depth. Between two domains it sends each byte once.
//
// and what gathers or scatters with one rank in each domain takes as few hops, too (NCCL's PAT).
// The shape of the model, alpha plus beta per protocol, follows NCCL's tuner; the
// constants are the machine's. Of what is published of NCCL on several hosts the formulas are
// within 30% from 32 KiB to 128 MiB and within 15% above (published_test.go).
func (m *Machine) CommMs(op ir.Op, s Span, size int64) (float64, bool) {
	if s.Ranks <= 1 {
		return 0, true
	}
	n := float64(s.Ranks)
	steps, share, ok := traffic(op, n)
	if !ok || s.Domains > 1 && m.Inter.GBps == 0 {
		return 0, false
	}
	bytes := float64(size)
	us := m.ring(steps, share*bytes, s, m.bandwidth(op, s))
	switch {
	case s.Domains == 1 && m.Intra.BarrierUs > 0:
		us = min(us, m.direct(op, n, bytes))
	case s.Domains > 1 && op == ir.OpAllReduce:
		us = min(us, m.tree(bytes, s))
	case s.Domains > 1 && s.Least == 1 && s.Ranks == s.Domains && (op == ir.OpAllGather || op == ir.OpReduceScatter):
		us = min(us, m.ring(treeDepth(s.Domains), share*bytes, s, m.bandwidth(op, s)))
	}
	return us / 1e3, true
}

// bandwidth is the GB/s at which a rank gets rid of what traffic says that it sends.
func (m *Machine) bandwidth(op ir.Op, s Span) float64 {
	if s.Domains == 1 {
		return m.Intra.GBps
	}
	out := m.Inter.GBps * s.Rail
	switch op {
	case ir.OpAllToAll:
		if s.Far > 0 {
			out = min(out, out*s.UpAll*s.crossingShare()/s.Far)
		}
		return min(m.Intra.GBps, out/s.crossingShare())
	case ir.OpCollectivePermute: // its pairs may all be of two domains
		return min(m.Intra.GBps, out*s.UpAll)
	}
	return min(m.Intra.GBps, out*s.Up*float64(s.Least))
}

// treeDepth is the number of levels below the root of a tree of n.
func treeDepth(n int) float64 { return math.Ceil(math.Log2(float64(n))) }

// chain is how many times its bytes a rank of a tree's chain sends in effect: sums up, results
// down, and what it waits for in between. It is fitted.
const chain = 2.5

// tree is an all_reduce up and down a tree of domains, in microseconds. Sums go up and come
// down at once, in two trees of which each has half of the bytes, so that every domain sends all
// of them twice; of two domains each sends them once. Within a domain they pass along a chain of
// its ranks, or the switch adds them up. A hop over the network receives, adds and sends, for
// twice a ring's latency where that is not dominated by copies; chunks are as many as cost
// least, which is twice the root of what one and what all of them take.
func (m *Machine) tree(bytes float64, s Span) float64 {
	within, sent := 2*float64(s.Least-1), 2*bytes
	if s.Domains == 2 {
		sent = bytes
	}
	us := sent / m.bandwidth(ir.OpAllReduce, s)
	switch {
	case s.Least > 1 && m.Intra.SumGBps > 0:
		us, within = max(us, bytes/m.Intra.SumGBps), 2
	case s.Least > 1:
		us = max(us, chain*bytes/m.Intra.GBps)
	}
	out := m.Inter
	out.HopUs = min(2*out.HopUs, max(out.HopUs, out.BulkHopUs))
	best := math.Inf(1)
	for _, p := range protocols {
		wire, hops := us/(1e3*p.bandwidth), 2*treeDepth(s.Domains)*p.hop(out)
		best = min(best, m.Inter.BaseUs+hops+within*p.hop(m.Intra)+wire+2*math.Sqrt(hops*wire))
	}
	return best
}

// protocol is a form in which hops carry bytes.
type protocol struct {
	bandwidth float64 // share of the link's
	bulk      float64 // 0: flag hops, 1: bulk hops
}

var protocols = [...]protocol{{0.25, 0}, {0.7, 0.4}, {1, 1}}

func (p protocol) hop(l Link) float64 { return l.HopUs + p.bulk*(l.BulkHopUs-l.HopUs) }

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

// LinkShare is the part of what the links within NVLink domains and between them carry
// that a collective of that many bytes takes, if it lasts us microseconds: between 0 and 1,
// by what a rank sends at least. It is 0 for what sends nothing or is not known.
func (m *Machine) LinkShare(op ir.Op, s Span, size int64, us float64) [2]float64 {
	peak := max(m.Intra.PeakGBps, m.Intra.GBps)
	_, share, ok := traffic(op, float64(s.Ranks))
	if !ok || s.Ranks <= 1 || !(us > 0) || !(peak > 0) {
		return [2]float64{}
	}
	rate := share * float64(size) / (1e3 * us)
	out := [2]float64{min(rate/peak, 1)}
	if s.Domains > 1 {
		out[1] = min(rate/m.bandwidth(op, s), 1)
		if op == ir.OpAllToAll {
			out[0] = min((1-s.crossingShare())*rate/peak, 1)
		}
	}
	return out
}

// ring is the best of the ring protocols, in microseconds.
func (m *Machine) ring(steps, sent float64, s Span, gbps float64) float64 {
	base := m.Intra.BaseUs
	between := 0.0 // steps between domains
	if s.Domains > 1 {
		base = m.Inter.BaseUs
		between = math.Ceil(steps * float64(s.Domains) / float64(s.Ranks))
	}
	within := steps - between
	best := math.Inf(1)
	for _, p := range protocols {
		best = min(best, base+within*p.hop(m.Intra)+between*p.hop(m.Inter)+sent/(gbps*p.bandwidth*1e3))
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
