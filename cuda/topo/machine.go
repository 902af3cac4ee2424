// Package topo describes the machine that a rank's GPU is in: GPUs, NVLinks and
// switches, peer access, fabric, and NUMA affinity. It decides
// whether a group of ranks can use symmetric memory or needs NCCL, and why, and
// provides the machine's parameters to the cost model.
//
// A Machine is read from hardware by package topo/nvml, or from a JSON file written
// earlier. The files in testdata/machines replace hardware in tests: h200x2_vm was read from a
// machine (with its identifiers replaced); the others are derived from it and from data sheets.
//
// A Layout assigns the ranks of a job to GPUs. NewLayout makes one by comparing what
// all ranks see; Decide chooses the transport of a group.
package topo

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/strictjson"
)

// Version of the JSON forms of Machine and Layout.
const Version = 1

// Machine is one host and its GPUs.
type Machine struct {
	Version int    `json:"version"`
	Host    Host   `json:"host"`
	Driver  string `json:"driver"` // of the kernel module, such as 580.159.04
	CUDA    string `json:"cuda"`   // newest CUDA that the driver serves, such as 13.0
	GPUs    []GPU  `json:"gpus"`
	// Pairs has every pair of GPUs once, a < b, in order.
	Pairs []Pair `json:"pairs"`
	// Notes say what could not be read, so that a zero is not taken for a fact.
	Notes []string `json:"notes,omitempty"`
}

// Host identifies a host. Two ranks are on one host if its ID is equal.
type Host struct {
	ID   string `json:"id"` // of this boot of the host
	Name string `json:"name"`
	CPUs int    `json:"cpus"`
}

// GPU is one device. Fields that the driver does not tell are zero.
type GPU struct {
	Index       int    `json:"index"` // the driver's, before any CUDA_VISIBLE_DEVICES
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	PCI         string `json:"pci"`
	Capability  string `json:"capability"` // such as 9.0
	SMs         int    `json:"sms"`
	MemoryBytes uint64 `json:"memory_bytes"`
	SMMHz       int    `json:"sm_mhz"`     // highest clocks
	MemoryMHz   int    `json:"memory_mhz"` //
	MemoryBits  int    `json:"memory_bits"`
	PCIeGen     int    `json:"pcie_gen"`
	PCIeLanes   int    `json:"pcie_lanes"`
	MIG         bool   `json:"mig,omitempty"`
	CPUs        string `json:"cpus,omitempty"` // near this GPU, such as 0-15,32-47
	NUMA        []int  `json:"numa,omitempty"` // memory nodes near this GPU
	// NVLinks are the links that are up, by what is at their other end.
	NVLinks []NVLinks `json:"nvlinks,omitempty"`
	Fabric  *Fabric   `json:"fabric,omitempty"` // nil where there is none
}

// End is the kind of device at the other end of NVLinks.
type End string

// The ends of NVLinks.
const (
	EndGPU     End = "gpu"
	EndSwitch  End = "switch"
	EndCPU     End = "cpu"
	EndUnknown End = "unknown"
)

// NVLinks is a bundle of links of one GPU to one other device.
type NVLinks struct {
	End   End     `json:"end"`
	PCI   string  `json:"pci,omitempty"` // of the other device; empty where it is hidden
	Links int     `json:"links"`
	GBps  float64 `json:"gbps"` // of one link, in one direction
}

// Fabric is a GPU's membership of an NVLink fabric, which may span hosts.
type Fabric struct {
	State   string `json:"state"` // not started, in progress, completed
	Cluster string `json:"cluster,omitempty"`
	Clique  uint32 `json:"clique"`
	Status  string `json:"status,omitempty"` // empty when good
	Health  string `json:"health,omitempty"` // healthy, unhealthy, limited capacity; empty when not told
}

// Usable reports whether GPUs of the same cluster and clique can reach each other.
func (f *Fabric) Usable() bool {
	return f != nil && f.State == "completed" && f.Status == "" && f.Health != "unhealthy" && f.Cluster != ""
}

// Way is how two GPUs are joined.
type Way string

// The ways between GPUs, from best to worst.
const (
	WaySwitch  Way = "nvswitch"
	WayNVLink  Way = "nvlink"
	WayPCIe    Way = "pcie"
	WayNetwork Way = "network"
	WayUnknown Way = "unknown" // on one host; nobody told
)

// Pair is what joins two GPUs of a machine.
type Pair struct {
	A   int `json:"a"` // indices into GPUs
	B   int `json:"b"`
	Way Way `json:"way"`
	// Links and GBps are of NVLinks, in one direction, all together.
	Links int     `json:"links"`
	GBps  float64 `json:"gbps"`
	// Ancestor is the nearest device on the way over PCIe: internal, single,
	// multiple, hostbridge, node, system.
	Ancestor string `json:"ancestor,omitempty"`
	// The driver's word on peer access: OK, or why not.
	Read    string `json:"read"`
	Write   string `json:"write"`
	NVLink  string `json:"nvlink"`
	Atomics string `json:"atomics"`
	PCI     string `json:"pci"`
}

// The statuses that this package itself knows; all others are why an access fails.
const (
	OK     = "ok"     // it works
	Untold = "untold" // no process sees both GPUs
)

// Pair gives what joins GPUs a and b, in either order; nil if they are one or absent.
func (m *Machine) Pair(a, b int) *Pair {
	a, b = min(a, b), max(a, b)
	i := slices.IndexFunc(m.Pairs, func(p Pair) bool { return p.A == a && p.B == b })
	if i < 0 {
		return nil
	}
	return &m.Pairs[i]
}

// UUID writes what the CUDA driver calls a device's UUID as a machine has it.
func UUID(uuid [16]byte) string {
	h := hex.EncodeToString(uuid[:])
	return fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

// Switches is how many NVSwitches are seen at the ends of links; -1 if there are some
// whose identity is hidden, as in a virtual machine.
func (m *Machine) Switches() int {
	var seen []string
	for _, g := range m.GPUs {
		for _, l := range g.NVLinks {
			if l.End != EndSwitch {
				continue
			}
			if l.PCI == "" {
				return -1
			}
			if !slices.Contains(seen, l.PCI) {
				seen = append(seen, l.PCI)
			}
		}
	}
	return len(seen)
}

// Check reports the first value that no machine can have, as a *strictjson.ValueError.
func (m *Machine) Check() error {
	fail := func(field, format string, args ...any) error {
		return &strictjson.ValueError{Path: field, Msg: fmt.Sprintf(format, args...)}
	}
	if m.Version != Version {
		return fail("version", "is %d; this program reads %d", m.Version, Version)
	}
	if m.Host.ID == "" {
		return fail("host.id", "is missing")
	}
	for i, g := range m.GPUs {
		at := fmt.Sprintf("gpus.%d.", i)
		switch {
		case g.UUID == "":
			return fail(at+"uuid", "is missing")
		case slices.IndexFunc(m.GPUs, func(o GPU) bool { return o.UUID == g.UUID }) != i:
			return fail(at+"uuid", "%s is there twice", g.UUID)
		case g.SMs < 0 || g.SMMHz < 0 || g.MemoryMHz < 0 || g.MemoryBits < 0 || g.PCIeGen < 0 || g.PCIeLanes < 0:
			return fail(at+"sms", "a count is negative")
		}
		for j, l := range g.NVLinks {
			if l.Links < 1 || !(l.GBps >= 0) || !slices.Contains([]End{EndGPU, EndSwitch, EndCPU, EndUnknown}, l.End) {
				return fail(fmt.Sprintf("%snvlinks.%d", at, j), "%d links of %v GB/s to %q", l.Links, l.GBps, l.End)
			}
		}
	}
	k := 0
	for a := range m.GPUs {
		for b := a + 1; b < len(m.GPUs); b++ {
			at := fmt.Sprintf("pairs.%d", k)
			if k >= len(m.Pairs) {
				return fail("pairs", "GPUs %d and %d are missing", a, b)
			}
			p := m.Pairs[k]
			switch {
			case p.A != a || p.B != b:
				return fail(at, "is of GPUs %d and %d; %d and %d come here", p.A, p.B, a, b)
			case p.Way != WaySwitch && p.Way != WayNVLink && p.Way != WayPCIe && p.Way != WayUnknown:
				return fail(at+".way", "unknown way %q", p.Way)
			case p.Links < 0 || !(p.GBps >= 0):
				return fail(at+".links", "%d links of %v GB/s", p.Links, p.GBps)
			case p.Read == "" || p.Write == "" || p.NVLink == "" || p.Atomics == "" || p.PCI == "":
				return fail(at, "the status of an access is missing")
			}
			k++
		}
	}
	if k < len(m.Pairs) {
		return fail(fmt.Sprintf("pairs.%d", k), "is more than %d GPUs have", len(m.GPUs))
	}
	return nil
}
