package cost

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/internal/strictjson"
)

// Machine describes what a rank runs on. Its JSON form is a file a user can
// supply; Machines lists the built-in ones. Rates are what good kernels reach,
// not the datasheet's peak.
type Machine struct {
	Name         string             `json:"name"`
	MatmulTFLOPS map[string]float64 `json:"matmul_tflops"`       // by element type of the operands: bf16, f16, f32, f64, and tf32
	VectorTFLOPS float64            `json:"vector_tflops"`       // f32 arithmetic outside the matrix units
	MemoryGBps   float64            `json:"memory_gbps"`         // device memory, bytes read plus bytes written
	LaunchUs     float64            `json:"launch_us,omitempty"` // least time of a kernel within a captured graph
	Units        int                `json:"units"`               // multiprocessors: tiles beyond a full wave wait for the next
	RanksPerHost int                `json:"ranks_per_host"`

	// TF32 says that the target's libraries are told that they may round operands of f32 to TF32
	// (lt.Config, cudnn.Options): matmuls and convolutions of f32 then have the rate tf32.
	TF32 bool `json:"tf32,omitempty"`

	// RanksPerDomain is how many ranks NVLink joins, on one host or several; 0: those of a
	// host. Ranks 0 to RanksPerDomain-1 are the first domain, and so on.
	RanksPerDomain int `json:"ranks_per_domain,omitempty"`
	// RailsPerHost is the network adapters of a host, which its ranks share; 0: one each.
	RailsPerHost int `json:"rails_per_host,omitempty"`
	// HostsPerLeaf is how many hosts the first switches of the network join, at the full rate
	// of their adapters; 0: all. Hosts 0 to HostsPerLeaf-1 are the first of them, and so on.
	HostsPerLeaf int `json:"hosts_per_leaf,omitempty"`
	// Oversubscription is how many times as much these hosts send as their switches' links to
	// other switches carry; 0 and 1: they carry all of it.
	Oversubscription float64 `json:"oversubscription,omitempty"`

	Intra Link `json:"intra"`           // between ranks of one NVLink domain
	Inter Link `json:"inter,omitempty"` // between domains, by one network adapter
}

// Link is the way between two ranks.
type Link struct {
	GBps      float64 `json:"gbps"`                  // per rank or network adapter, and direction, as a bulk copy reaches it
	HopUs     float64 `json:"hop_us,omitempty"`      // one step of a ring with a flag per packet
	BulkHopUs float64 `json:"bulk_hop_us,omitempty"` // one step of a ring of bulk copies
	BaseUs    float64 `json:"base_us,omitempty"`     // starting a library collective
	BarrierUs float64 `json:"barrier_us,omitempty"`  // one barrier of a kernel that loads and stores peers' memory; 0 if it cannot
	// PeakGBps is what the wires of a rank carry in one direction: more than one
	// collective reaches, and what those that run at once share. 0: GBps.
	PeakGBps float64 `json:"peak_gbps,omitempty"`
	// SumGBps is the bytes of an all_reduce that the switch itself adds up in a time (NVLink
	// SHARP), over which the fastest library reduces; 0: switches do not add.
	SumGBps float64 `json:"sum_gbps,omitempty"`
}

// Machines lists the built-in machines by name.
func Machines() []string { return slices.Sorted(maps.Keys(machines())) }

// LookupMachine returns the built-in machine of that name: a100, h100, h200, b200. The error
// lists them.
func LookupMachine(name string) (*Machine, error) {
	m, ok := machines()[strings.ToLower(name)]
	if !ok {
		return nil, fmt.Errorf("no machine %q; have %s, or give a file", name, strings.Join(Machines(), " "))
	}
	return m, nil
}

// machines builds the table anew, so that nobody can change it for others.
// Matrix rates are what large matmuls reach on random data: about 80% of the
// datasheet; memory rates likewise about 90%.
func machines() map[string]*Machine {
	network := Link{GBps: 45, HopUs: 2.7, BulkHopUs: 14, BaseUs: 14}
	return map[string]*Machine{
		"a100": {Name: "a100", MatmulTFLOPS: map[string]float64{"bf16": 250, "f16": 250, "f32": 15, "tf32": 120, "f64": 15}, VectorTFLOPS: 15, MemoryGBps: 1800, LaunchUs: 2,
			Units: 108, RanksPerHost: 8, Intra: Link{GBps: 235, HopUs: 0.6, BulkHopUs: 3.4, BaseUs: 10, BarrierUs: 2, PeakGBps: 300}, Inter: Link{GBps: 24, HopUs: 2.7, BulkHopUs: 14, BaseUs: 14}},
		"h100": {Name: "h100", MatmulTFLOPS: map[string]float64{"bf16": 700, "f16": 700, "f32": 50, "tf32": 350, "f64": 50}, VectorTFLOPS: 45, MemoryGBps: 3000, LaunchUs: 1.5,
			Units: 132, RanksPerHost: 8, Intra: Link{GBps: 370, HopUs: 0.6, BulkHopUs: 1.0, BaseUs: 9, BarrierUs: 1.5, PeakGBps: 450}, Inter: network},
		"h200": {Name: "h200", MatmulTFLOPS: map[string]float64{"bf16": 760, "f16": 760, "f32": 50, "tf32": 380, "f64": 50}, VectorTFLOPS: 45, MemoryGBps: 4300, LaunchUs: 1.5,
			Units: 132, RanksPerHost: 8, Intra: Link{GBps: 372, HopUs: 0.6, BulkHopUs: 1.0, BaseUs: 9, BarrierUs: 1.5, PeakGBps: 450}, Inter: network},
		"b200": {Name: "b200", MatmulTFLOPS: map[string]float64{"bf16": 1700, "f16": 1700, "f32": 60, "tf32": 850, "f64": 35}, VectorTFLOPS: 60, MemoryGBps: 7000, LaunchUs: 1.5,
			Units: 148, RanksPerHost: 8, Intra: Link{GBps: 740, HopUs: 0.6, BulkHopUs: 0.9, BaseUs: 8, BarrierUs: 1, PeakGBps: 900}, Inter: Link{GBps: 48, HopUs: 2.7, BulkHopUs: 14, BaseUs: 14}},
	}
}

// ReadMachine reads a machine's JSON. name is what errors call it; they have line and
// column. Unknown fields are errors: a misspelt rate must not silently become zero.
func ReadMachine(name string, r io.Reader) (*Machine, error) {
	m := new(Machine)
	if err := strictjson.Read(name, r, m, m.Check); err != nil {
		return nil, err
	}
	return m, nil
}

// JSON is the machine as a file that ReadMachine reads. The error is that of Check.
func (m *Machine) JSON() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}

// Check reports the first value that no machine can have: rates within a domain and counts
// are positive, times and rates between domains not negative, all of them bounded.
func (m *Machine) Check() error {
	type value struct {
		path     string
		v        float64
		positive bool
	}
	values := []value{{"vector_tflops", m.VectorTFLOPS, true}, {"memory_gbps", m.MemoryGBps, true}, {"intra.gbps", m.Intra.GBps, true},
		{"ranks_per_host", float64(m.RanksPerHost), true}, {"units", float64(m.Units), true}, {"matmul_tflops.bf16", m.MatmulTFLOPS["bf16"], true},
		{"launch_us", m.LaunchUs, false}, {"inter.gbps", m.Inter.GBps, false},
		{"ranks_per_domain", float64(m.RanksPerDomain), false}, {"rails_per_host", float64(m.RailsPerHost), false},
		{"hosts_per_leaf", float64(m.HostsPerLeaf), false}, {"oversubscription", m.Oversubscription, false}}
	for _, dt := range slices.Sorted(maps.Keys(m.MatmulTFLOPS)) {
		values = append(values, value{"matmul_tflops." + dt, m.MatmulTFLOPS[dt], true})
	}
	for _, l := range []struct {
		path string
		*Link
	}{{"intra", &m.Intra}, {"inter", &m.Inter}} {
		values = append(values, value{l.path + ".hop_us", l.HopUs, false}, value{l.path + ".bulk_hop_us", l.BulkHopUs, false}, value{l.path + ".base_us", l.BaseUs, false},
			value{l.path + ".barrier_us", l.BarrierUs, false}, value{l.path + ".peak_gbps", l.PeakGBps, false}, value{l.path + ".sum_gbps", l.SumGBps, false})
	}
	for _, f := range values {
		if err := calibration.Figure(f.path, f.v, f.positive); err != nil {
			return fmt.Errorf("machine %s: %w", m.Name, err)
		}
	}
	for _, dt := range slices.Sorted(maps.Keys(m.MatmulTFLOPS)) {
		if !slices.Contains([]string{"bf16", "f16", "f32", "f64", "tf32"}, dt) {
			return fmt.Errorf("machine %s: %w", m.Name, &strictjson.ValueError{Path: "matmul_tflops." + dt, Msg: "is not a type of matmuls: want bf16, f16, f32, f64 or tf32"})
		}
	}
	if m.TF32 && m.MatmulTFLOPS["tf32"] == 0 {
		return fmt.Errorf("machine %s: %w", m.Name, &strictjson.ValueError{Path: "tf32", Msg: "needs a rate: want matmul_tflops.tf32"})
	}
	if m.Oversubscription > 0 && m.Oversubscription < 1 {
		return fmt.Errorf("machine %s: %w", m.Name, &strictjson.ValueError{Path: "oversubscription", Msg: "must be at least 1, or 0"})
	}
	return nil
}
