package topo

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/strictjson"
)

// Layout puts the ranks of a job on machines. Rank r is Ranks[r].
type Layout struct {
	Version  int       `json:"version"`
	Machines []Machine `json:"machines"`
	Ranks    []Place   `json:"ranks"`
}

// Place is where a rank is.
type Place struct {
	Machine int `json:"machine"` // index into Machines
	GPU     int `json:"gpu"`     // index into the machine's GPUs
}

// Local is the layout of ranks 0 to len(gpus)-1 on GPUs of one machine.
func Local(m *Machine, gpus ...int) *Layout {
	l := &Layout{Version: Version, Machines: []Machine{*m}}
	for _, g := range gpus {
		l.Ranks = append(l.Ranks, Place{GPU: g})
	}
	return l
}

// Check reports the first value that no layout can have, as a *strictjson.ValueError.
func (l *Layout) Check() error {
	if l.Version != Version {
		return &strictjson.ValueError{Path: "version", Msg: fmt.Sprintf("is %d; this program reads %d", l.Version, Version)}
	}
	for i := range l.Machines {
		m := &l.Machines[i]
		if err := m.Check(); err != nil {
			return fmt.Errorf("machines.%d.%w", i, err)
		}
		if j := slices.IndexFunc(l.Machines, func(o Machine) bool { return o.Host.ID == m.Host.ID }); j != i {
			return &strictjson.ValueError{Path: fmt.Sprintf("machines.%d.host.id", i), Msg: fmt.Sprintf("is that of machines.%d", j)}
		}
	}
	for r, p := range l.Ranks {
		at := fmt.Sprintf("ranks.%d", r)
		if p.Machine < 0 || p.Machine >= len(l.Machines) {
			return &strictjson.ValueError{Path: at + ".machine", Msg: fmt.Sprintf("%d of %d machines", p.Machine, len(l.Machines))}
		}
		if n := len(l.Machines[p.Machine].GPUs); p.GPU < 0 || p.GPU >= n {
			return &strictjson.ValueError{Path: at + ".gpu", Msg: fmt.Sprintf("%d of %d GPUs", p.GPU, n)}
		}
	}
	return nil
}

// GPU is the device of a rank.
func (l *Layout) GPU(rank int) *GPU {
	p := l.Ranks[rank]
	return &l.Machines[p.Machine].GPUs[p.GPU]
}

// Transport is what carries a group's collectives.
type Transport string

// The transports.
const (
	Symmetric Transport = "symmetric" // package cuda: kernels on symmetric memory
	NCCL      Transport = "nccl"      // package cuda/nccl
)

// Decision is how a group communicates.
type Decision struct {
	Transport Transport
	Way       Way     // the worst between any two ranks
	GBps      float64 // of the NVLinks between the worst pair, one direction; 0 if not known
	Reason    string
}

// String gives the transport and the reason.
func (d Decision) String() string { return fmt.Sprintf("%s: %s", d.Transport, d.Reason) }

// SharedGPUError says that two ranks of a group are on one GPU, which neither
// transport can serve unless it is asked to.
type SharedGPUError struct {
	Ranks [2]int
	GPU   string
}

// Error names the ranks and the GPU.
func (e *SharedGPUError) Error() string {
	return fmt.Sprintf("ranks %d and %d are both on GPU %s: give every rank a GPU of its own", e.Ranks[0], e.Ranks[1], e.GPU)
}

// DecideOptions are the knobs of Decide.
type DecideOptions struct {
	// AllowShared takes ranks on one GPU for ranks with access to each other. They
	// must belong to one process, and their kernels must fit on the GPU together.
	AllowShared bool
}

// Decide chooses the transport of a group of ranks: symmetric memory if every rank
// can read, write and do atomic operations on every other's memory, else NCCL with
// the reason. GPUs that no rank sees together (Location.Partial) are taken to have access:
// mapping the memory shows whether they do. It is the same on every rank. The error is a *SharedGPUError or says
// that a rank does not exist. It looks at every pair.
func (l *Layout) Decide(ranks []int, o DecideOptions) (Decision, error) {
	for _, r := range ranks {
		if r < 0 || r >= len(l.Ranks) {
			return Decision{}, fmt.Errorf("rank %d in a layout of %d ranks", r, len(l.Ranks))
		}
	}
	worst := Decision{Transport: Symmetric, Way: WaySwitch}
	seen := false
	for i, a := range ranks {
		for _, b := range ranks[i+1:] {
			if l.Ranks[a] == l.Ranks[b] {
				if !o.AllowShared || a == b {
					return Decision{}, &SharedGPUError{Ranks: [2]int{a, b}, GPU: l.GPU(a).UUID}
				}
				continue
			}
			d := l.pair(a, b)
			if !seen || worse(d, worst) {
				worst, seen = d, true
			}
		}
	}
	switch {
	case len(ranks) < 2:
		worst.Reason = "a group of one rank"
	case !seen:
		worst.Reason = "all ranks share one GPU"
	case worst.Transport == Symmetric && worst.Way == WayUnknown:
		worst.Reason = "every GPU reaches every other, as far as the ranks' drivers show"
	case worst.Transport == Symmetric:
		worst.Reason = fmt.Sprintf("every GPU reaches every other by %s", worst.Way)
		if worst.GBps > 0 {
			worst.Reason += fmt.Sprintf(", at %.0f GB/s or more", worst.GBps)
		}
	}
	return worst, nil
}

var wayOrder = []Way{WaySwitch, WayNVLink, WayUnknown, WayPCIe, WayNetwork}

// worse orders decisions of pairs. Of two equally bad ones the first stays, which
// is the one that the reason names.
func worse(a, b Decision) bool {
	if a.Transport != b.Transport {
		return a.Transport == NCCL
	}
	if a.Way != b.Way {
		return slices.Index(wayOrder, a.Way) > slices.Index(wayOrder, b.Way)
	}
	return a.GBps < b.GBps
}

// pair decides for two ranks on different GPUs.
func (l *Layout) pair(a, b int) Decision {
	pa, pb := l.Ranks[a], l.Ranks[b]
	no := func(w Way, format string, args ...any) Decision {
		return Decision{Transport: NCCL, Way: w, Reason: fmt.Sprintf("ranks %d and %d ", a, b) + fmt.Sprintf(format, args...)}
	}
	ga, gb := l.GPU(a), l.GPU(b)
	if pa.Machine != pb.Machine {
		ha, hb := l.Machines[pa.Machine].Host, l.Machines[pb.Machine].Host
		if ga.Fabric.Usable() && gb.Fabric.Usable() && ga.Fabric.Cluster == gb.Fabric.Cluster && ga.Fabric.Clique == gb.Fabric.Clique {
			return no(WayNetwork, "are on hosts %s and %s; their NVLink fabric is one (clique %d), but memory is shared by file descriptors, which do not leave a host", ha.Name, hb.Name, ga.Fabric.Clique)
		}
		return no(WayNetwork, "are on hosts %s and %s", ha.Name, hb.Name)
	}
	p := l.Machines[pa.Machine].Pair(pa.GPU, pb.GPU)
	if p == nil {
		return no(WayPCIe, "are on GPUs %d and %d, of which nothing is known", pa.GPU, pb.GPU)
	}
	for _, g := range []struct {
		rank int
		gpu  *GPU
	}{{a, ga}, {b, gb}} {
		if g.gpu.MIG {
			return no(p.Way, "cannot reach each other: the GPU of rank %d is partitioned (MIG)", g.rank)
		}
	}
	for _, s := range []struct{ what, status string }{{"read", p.Read}, {"write", p.Write}, {"atomic", p.Atomics}} {
		if s.status != OK && s.status != Untold {
			return no(p.Way, "(GPUs %d and %d, joined by %s) have no peer access: %s is %q", pa.GPU, pb.GPU, p.Way, s.what, s.status)
		}
	}
	return Decision{Transport: Symmetric, Way: p.Way, GBps: p.GBps}
}
