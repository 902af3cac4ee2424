package topo

import (
	"fmt"
	"math"
	"slices"
)

// Costs are the numbers that the cost model wants of a machine. Its JSON is a machine
// file of the cost model.
type Costs struct {
	Name         string             `json:"name"`
	MatmulTFLOPS map[string]float64 `json:"matmul_tflops"`
	VectorTFLOPS float64            `json:"vector_tflops"`
	MemoryGBps   float64            `json:"memory_gbps"`
	LaunchUs     float64            `json:"launch_us"`
	Units        int                `json:"units"`
	RanksPerHost int                `json:"ranks_per_host"`
	Intra        LinkCosts          `json:"intra"`
	Inter        LinkCosts          `json:"inter"`
}

// LinkCosts are the numbers of the way between two ranks.
type LinkCosts struct {
	GBps      float64 `json:"gbps"`
	HopUs     float64 `json:"hop_us"`
	BulkHopUs float64 `json:"bulk_hop_us"`
	BaseUs    float64 `json:"base_us"`
	BarrierUs float64 `json:"barrier_us"`
}

// defaultNetwork is taken for the way between hosts, of which nothing here is read:
// one adapter of 400 Gb/s for each GPU.
var defaultNetwork = LinkCosts{GBps: 45, HopUs: 2.7, BulkHopUs: 14, BaseUs: 14}

// arch is what a generation of GPUs does per multiprocessor and clock, and which part
// of its peaks good kernels reach.
type arch struct {
	matmul float64 // bf16 operations; f32 (tf32) half, f64 by f64
	f64    float64
	vector float64 // f32 operations
	reach  float64 // of the matmul peak at the highest clock, which large products do not hold
	launch float64 // us
	hop    LinkCosts
}

var archs = map[string]arch{
	"8.0":  {matmul: 2048, f64: 128, vector: 128, reach: 0.80, launch: 2, hop: LinkCosts{HopUs: 0.6, BulkHopUs: 3.4, BaseUs: 10, BarrierUs: 2}},
	"9.0":  {matmul: 4096, f64: 256, vector: 256, reach: 0.71, launch: 1.5, hop: LinkCosts{HopUs: 0.6, BulkHopUs: 1, BaseUs: 9, BarrierUs: 1.5}},
	"10.0": {matmul: 8192, f64: 128, vector: 256, reach: 0.71, launch: 1.5, hop: LinkCosts{HopUs: 0.6, BulkHopUs: 0.9, BaseUs: 8, BarrierUs: 1}},
}

// Parts of the peaks that bulk copies and good kernels reach, as measured on H200.
const (
	nvlinkReach = 0.78
	pcieReach   = 0.80
	memoryReach = 0.90
	vectorReach = 0.67
)

// pcieGBps is one lane's rate in one direction by generation.
var pcieGBps = map[int]float64{1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}

// Costs gives the cost model's numbers for the layout: rates of the slowest GPU, the
// worst way between ranks of one host, and network between hosts, nil for a default.
// They are estimates from clocks, widths and link counts; what is measured on the
// machine should replace them. An unknown generation of GPUs, or a GPU of which too
// little could be read, is an error.
func (l *Layout) Costs(network *LinkCosts) (*Costs, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if len(l.Ranks) == 0 {
		return nil, &FormatError{Field: "ranks", Reason: "there are none"}
	}
	c := &Costs{MatmulTFLOPS: map[string]float64{}, Inter: defaultNetwork}
	if network != nil {
		c.Inter = *network
	}
	perHost := make([]int, len(l.Machines))
	for r, p := range l.Ranks {
		perHost[p.Machine]++
		if err := c.slowest(l.GPU(r)); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	c.RanksPerHost = slices.Max(perHost)
	a := archs[l.GPU(0).Capability]
	if c.Intra = a.hop; c.RanksPerHost > 1 {
		if err := c.intra(l); err != nil {
			return nil, err
		}
	} else {
		c.Intra.GBps = c.Inter.GBps // no two ranks are that near
	}
	c.Name = fmt.Sprintf("%s x%d", l.GPU(0).Name, len(l.Ranks))
	return c, nil
}

// slowest lowers c's rates to what g reaches.
func (c *Costs) slowest(g *GPU) error {
	a, ok := archs[g.Capability]
	switch {
	case !ok:
		return &FormatError{Field: "capability", Reason: fmt.Sprintf("nothing is known of GPUs of compute capability %q (%s)", g.Capability, g.Name)}
	case g.SMs == 0 || g.SMMHz == 0 || g.MemoryMHz == 0 || g.MemoryBits == 0:
		return &FormatError{Field: "gpus", Reason: fmt.Sprintf("multiprocessors, clocks or memory width of %s could not be read", g.Name)}
	}
	clocks := float64(g.SMs) * float64(g.SMMHz) * 1e6 / 1e12
	lower := func(at *float64, v float64) {
		v = math.Round(v*10) / 10
		if *at == 0 || v < *at {
			*at = v
		}
	}
	for name, ops := range map[string]float64{"bf16": a.matmul, "f16": a.matmul, "f32": a.matmul / 2, "f64": a.f64} {
		v := c.MatmulTFLOPS[name]
		lower(&v, clocks*ops*a.reach)
		c.MatmulTFLOPS[name] = v
	}
	lower(&c.VectorTFLOPS, clocks*a.vector*vectorReach)
	lower(&c.MemoryGBps, float64(g.MemoryMHz)*1e6*2*float64(g.MemoryBits)/8/1e9*memoryReach) // two transfers a clock
	if c.Units == 0 || g.SMs < c.Units {
		c.Units = g.SMs
	}
	c.LaunchUs = max(c.LaunchUs, a.launch)
	return nil
}

// intra takes the worst way between two ranks of one host.
func (c *Costs) intra(l *Layout) error {
	c.Intra.GBps = 0
	for r, p := range l.Ranks {
		for s, q := range l.Ranks[:r] {
			if p.Machine != q.Machine || p == q {
				continue
			}
			d := l.pair(r, s)
			gbps := d.GBps * nvlinkReach
			if d.Way == WayPCIe {
				g, o := l.GPU(r), l.GPU(s)
				gbps = min(pcieGBps[g.PCIeGen]*float64(g.PCIeLanes), pcieGBps[o.PCIeGen]*float64(o.PCIeLanes)) * pcieReach
			}
			if gbps == 0 {
				return &FormatError{Field: "pairs", Reason: fmt.Sprintf("the rate between ranks %d and %d (%s) could not be read", s, r, d.Way)}
			}
			if c.Intra.GBps == 0 || gbps < c.Intra.GBps {
				c.Intra.GBps = math.Round(gbps*10) / 10
			}
			if d.Way == WayPCIe {
				c.Intra.HopUs, c.Intra.BulkHopUs = 1.3, 4
			}
			if d.Transport == NCCL {
				c.Intra.BarrierUs = 0
			}
		}
	}
	return nil
}

// JSON is the machine file.
func (c *Costs) JSON() []byte { return encode(c) }
