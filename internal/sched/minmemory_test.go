package sched

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

var arena = []string{"gpt_ddp8.bw", "llama8b_fsdp8.fw", "llama8b_fsdp8.bw", "llama8b_tp8_infer.fw",
	"llama8b_tpsp8.fw", "llama8b_tpsp8.bw", "mixtral_ep8_fsdp8.fw", "llama70b_fsdp8_tp8.fw", "llama70b_fsdp8_tp8.bw"}

func TestMinMemoryOrders(t *testing.T) {
	for _, name := range arena {
		p := contract(simtest.Model(t, name), nil)
		traced := p.peak(p.inputJobs())
		ref, floor := p.minMemory(0)
		if floor > traced || floor != p.peak(ref) {
			t.Errorf("%s: floor %d, traced peak %d, peak of the minimum-memory order %d", name, floor, traced, p.peak(ref))
		}
		for i, order := range [][]int32{p.inputJobs(), p.lazyComm(false), p.lazyComm(true), ref} {
			tl, err := sim.Evaluate(p.m, p.expand(order, nil), nil)
			if err != nil {
				t.Fatalf("%s, order %d: %v", name, i, err)
			}
			if tl.Peak != p.peak(order) {
				t.Errorf("%s, order %d: peak %d, the simulator says %d", name, i, p.peak(order), tl.Peak)
			}
		}
	}
}

// The certificate's samples must be those of a full recomputation after every
// step: what ran, then the rest in reference order.
func TestCertificateAgainstRecomputation(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		p := contract(randomModel(r, 10+r.IntN(40)), nil)
		ref := p.inputJobs()
		c := newCertificate(p, ref, p.peak(ref)*int64(90+r.IntN(30))/100)
		limit := max(c.limit, p.peak(ref))
		var ran []int32
		for len(ran) < p.n() {
			var ready []int32
			for j := range p.n() {
				if c.done[c.pos[j]] {
					continue
				}
				ok := true
				for _, q := range p.pred.At(int32(j)) {
					ok = ok && c.done[c.pos[q]]
				}
				if ok {
					ready = append(ready, int32(j))
				}
			}
			x := ready[r.IntN(len(ready))]
			next := append(slices.Clone(ran), x)
			for _, j := range ref {
				if !slices.Contains(next, j) {
					next = append(next, j)
				}
			}
			curve := curve(p, next)
			worst := slices.Max(curve[len(ran):])
			before := slices.Max(append([]int64{0}, c.remaining()...))
			if got, want := c.allows(x), worst <= max(c.limit, before); got != want && c.pos[x] != c.head {
				t.Fatalf("allows %v, recomputation %v: worst %d, limit %d, before %d", got, want, worst, limit, before)
			}
			c.run(x)
			ran = append(ran, x)
			if got, want := c.remaining(), curve[len(ran):]; !slices.Equal(got, want) {
				t.Fatalf("samples %v, recomputation %v", got, want)
			}
		}
		if c.peak != max(p.floor(), slices.Max(curve(p, ran))) {
			t.Fatalf("peak %d", c.peak)
		}
	}
}

// remaining returns the samples of the jobs that have not run.
func (c *certificate) remaining() []int64 {
	var out []int64
	for at := range c.ref {
		if c.done[at] {
			continue
		}
		i := at + c.tree.leaf
		v := c.tree.top[i]
		for i /= 2; i > 0; i /= 2 {
			v += c.tree.lazy[i]
		}
		out = append(out, v)
	}
	return out
}

// curve returns live memory after each job's allocations.
func curve(p *problem, jobs []int32) []int64 {
	var out []int64
	for i := range jobs {
		live := p.base
		done := map[int32]bool{}
		for _, j := range jobs[:i] {
			done[j] = true
		}
		for s := range p.size {
			owner := p.job[p.m.Owner[s]]
			given := p.m.Kind[p.m.Owner[s]] == sim.Input
			if given && (p.pinned[s] || len(p.users.At(int32(s))) == 0) || !given && !done[owner] && owner != jobs[i] {
				continue
			}
			used := p.pinned[s]
			for _, j := range p.users.At(int32(s)) {
				used = used || !done[j]
			}
			if used {
				live += p.size[s]
			}
		}
		out = append(out, live)
	}
	return out
}
