package topo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/runtime/rendezvous"

	. "github.com/seed-ee968945/concert/cuda/topo"
)

var update = flag.Bool("update", false, "rewrite the machine files in the form that this package writes, and the tables")

func file(name string) string { return filepath.Join("testdata", "machines", name+".json") }

func machine(t *testing.T, name string) *Machine {
	t.Helper()
	b, err := os.ReadFile(file(name))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Read(name, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func layout(t *testing.T, name string) *Layout {
	t.Helper()
	b, err := os.ReadFile(file(name))
	if err != nil {
		t.Fatal(err)
	}
	l := new(Layout)
	if err := json.Unmarshal(b, l); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	return l
}

var machines = []string{"h200x8", "h200x4", "h200x2_vm", "a100x2_pcie"}

// TestFiles reads every recorded machine and writes the same bytes, and compares its
// table.
func TestFiles(t *testing.T) {
	check := func(t *testing.T, path string, got []byte) {
		if *update {
			if err := os.WriteFile(path, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s:\n%s", path, d)
		}
	}
	for _, name := range machines {
		m := machine(t, name)
		b, err := m.JSON()
		if err != nil {
			t.Fatal(err)
		}
		check(t, file(name), b)
		check(t, filepath.Join("testdata", name+".txt"), []byte(m.String()))
	}
}

func TestReadErrors(t *testing.T) {
	good, err := machine(t, "h200x2_vm").JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{`"version": 1`, `"version": 2`, "m: version: is 2; this program reads 1"},
		{`"version": 1`, `"version": "1"`, `m:2:17: field "version" cannot be a string: want a whole number that fits int`},
		{`  "version": 1,`, ``, `m:1:1: field "version" is missing`},
		{`"sms": 132`, `"smz": 132`, `there is no field "smz"`},
		{`"sms": 132`, `"sms": -1`, "gpus.0.sms: a count is negative"},
		{`"id": "5b6cf0f2`, `"id": "", "name": "5b6cf0f2`, "host.id"},
		{`"b": 1,`, `"b": 0,`, "pairs.0: is of GPUs 0 and 0; 0 and 1 come here"},
		{`"way": "nvswitch"`, `"way": "string"`, `pairs.0.way: unknown way "string"`},
		{`"read": "ok"`, `"read": ""`, "status of an access is missing"},
		{`000000000001"`, `000000000000"`, "gpus.1.uuid"},
		{`"links": 18,`, `"links": 0,`, "gpus.0.nvlinks.0"},
	} {
		bad := strings.Replace(string(good), tc.old, tc.new, 1)
		if bad == string(good) {
			t.Fatalf("%q is not in the file", tc.old)
		}
		_, err := Read("m", strings.NewReader(bad))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.new, err, tc.want)
		}
	}
	if _, err := Read("m", strings.NewReader(string(good)+"{}")); err == nil {
		t.Error("two values were read as one machine")
	}
	if _, err := Read("m", strings.NewReader("{")); err == nil || !strings.HasPrefix(err.Error(), "m:1:2: the file ends too early") {
		t.Errorf("half a file: %v", err)
	}
}

func TestDecide(t *testing.T) {
	changed := func(name string, change func(m *Machine)) *Layout {
		m := machine(t, name)
		change(m)
		return Local(m, 0, 1)
	}
	fabric := layout(t, "two_hosts")
	for i := range fabric.Machines {
		for j := range fabric.Machines[i].GPUs {
			fabric.Machines[i].GPUs[j].Fabric.Cluster = "c"
		}
	}
	for _, tc := range []struct {
		name   string
		l      *Layout
		ranks  []int
		want   Transport
		way    Way
		reason string
	}{
		{"eight", Local(machine(t, "h200x8"), 0, 1, 2, 3, 4, 5, 6, 7), []int{0, 1, 2, 3, 4, 5, 6, 7}, Symmetric, WaySwitch, "every GPU reaches every other by nvswitch, at 478 GB/s or more"},
		{"four of them", Local(machine(t, "h200x8"), 1, 3, 5, 7), []int{3, 0, 2}, Symmetric, WaySwitch, "every GPU"},
		{"vm", Local(machine(t, "h200x2_vm"), 0, 1), []int{0, 1}, Symmetric, WaySwitch, "every GPU"},
		{"one", Local(machine(t, "a100x2_pcie"), 0, 1), []int{1}, Symmetric, WaySwitch, "a group of one rank"},
		{"no peer access", Local(machine(t, "a100x2_pcie"), 0, 1), []int{0, 1}, NCCL, WayPCIe, `ranks 0 and 1 (GPUs 0 and 1, joined by pcie) have no peer access: read is "chipset not supported"`},
		{"pcie with peer access", changed("a100x2_pcie", func(m *Machine) { p := &m.Pairs[0]; p.Read, p.Write, p.Atomics, p.PCI = OK, OK, OK, OK }), []int{0, 1}, Symmetric, WayPCIe, "by pcie"},
		{"no atomics", changed("h200x4", func(m *Machine) { m.Pairs[0].Atomics = "not supported" }), []int{0, 1}, NCCL, WaySwitch, "atomic"},
		{"mig", changed("h200x4", func(m *Machine) { m.GPUs[1].MIG = true }), []int{0, 1}, NCCL, WaySwitch, "rank 1 is partitioned"},
		{"two hosts", layout(t, "two_hosts"), []int{0, 8}, NCCL, WayNetwork, "ranks 0 and 8 are on hosts node-e and node-f"},
		{"within one of two hosts", layout(t, "two_hosts"), []int{8, 15}, Symmetric, WaySwitch, "every GPU"},
		{"all of two hosts", layout(t, "two_hosts"), []int{0, 1, 8, 9}, NCCL, WayNetwork, "ranks 0 and 8"},
		{"one fabric", fabric, []int{0, 8}, NCCL, WayNetwork, "fabric is one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := tc.l.Decide(tc.ranks, DecideOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if d.Transport != tc.want || d.Way != tc.way || !strings.Contains(d.Reason, tc.reason) {
				t.Errorf("%+v, want %s by %s: %q", d, tc.want, tc.way, tc.reason)
			}
		})
	}
	shared := Local(machine(t, "h200x4"), 0, 0, 1)
	var se *SharedGPUError
	if _, err := shared.Decide([]int{2, 0, 1}, DecideOptions{}); !errors.As(err, &se) || se.Ranks != [2]int{0, 1} {
		t.Errorf("two ranks on one GPU: %v", err)
	}
	if d, err := shared.Decide([]int{0, 1}, DecideOptions{AllowShared: true}); err != nil || d.Transport != Symmetric {
		t.Errorf("two ranks on one GPU, allowed: %v, %v", d, err)
	}
	if _, err := shared.Decide([]int{3}, DecideOptions{}); err == nil {
		t.Error("a rank that is not there was placed")
	}
}

// TestDecideOrder: the decision does not depend on the order of the ranks.
func TestDecideOrder(t *testing.T) {
	l := layout(t, "two_hosts")
	a, _ := l.Decide([]int{0, 1, 8, 9}, DecideOptions{})
	b, _ := l.Decide([]int{9, 1, 0, 8}, DecideOptions{})
	if a.Transport != b.Transport || a.Way != b.Way {
		t.Errorf("%v and %v", a, b)
	}
}

func TestCompare(t *testing.T) {
	a, b := machine(t, "h200x8"), machine(t, "h200x8")
	if d := Compare(a, b); len(d) != 0 {
		t.Errorf("a machine differs from itself: %v", d)
	}
	b.Driver = "570.1"
	b.GPUs[2].NVLinks[1].Links = 3
	b.GPUs[7].Fabric = nil
	var got []string
	for _, d := range Compare(a, b) {
		got = append(got, d.String())
	}
	want := []string{`driver is "580.159.04" and "570.1"`, "gpus[2].nvlinks[1].links is 4 and 3", "gpus[7].fabric.clique is 0 and absent",
		`gpus[7].fabric.health is "healthy" and absent`, `gpus[7].fabric.state is "completed" and absent`}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	l := layout(t, "two_hosts")
	if d := l.Mixed(); len(d) != 0 {
		t.Errorf("equal hosts are mixed: %v", d)
	}
	l.Machines[1].Driver = "570.1"
	if d := l.Mixed(); len(d) != 1 || !strings.Contains(d[0], "driver") {
		t.Errorf("hosts with two drivers: %v", d)
	}
}

// TestArrangeHosts gives every rank of two hosts the same layout, and says which differ.
func TestArrangeHosts(t *testing.T) {
	l := layout(t, "two_hosts")
	locations := make([]Location, len(l.Ranks))
	for r, p := range l.Ranks {
		m := l.Machines[p.Machine]
		m.GPUs = slices.Clone(m.GPUs)
		locations[r] = Location{World: len(l.Ranks), GPU: m.GPUs[p.GPU].UUID, Machine: m}
	}
	for r := range locations {
		got, err := NewLayout(r, locations)
		if d := cmp.Diff(l, got); err != nil || d != "" {
			t.Fatalf("rank %d: %v %s", r, err, d)
		}
	}
	locations[9].Machine.GPUs[1].SMs = 100
	for r := range locations {
		_, err := NewLayout(r, locations)
		var me *rendezvous.MismatchError
		if !errors.As(err, &me) || me.Rank != 8 || me.Peer != 9 || !strings.Contains(err.Error(), "gpus[1].sms of the host that they share differ: 132 on rank 8, 100 on rank 9") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// FuzzRead: no file makes Read or what works on a machine fail otherwise than by an
// error.
func FuzzRead(f *testing.F) {
	for _, name := range machines {
		b, err := os.ReadFile(file(name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Read("f", bytes.NewReader(b))
		if err != nil {
			return
		}
		_ = m.String()
		out, err := m.JSON()
		if err != nil || !json.Valid(out) {
			t.Fatalf("a machine that was read cannot be written: %v", err)
		}
		var all []int
		for i := range m.GPUs {
			all = append(all, i)
		}
		l := Local(m, all...)
		if _, err := l.Decide(all, DecideOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestArrange locations ranks whose drivers show them different GPUs.
func TestArrange(t *testing.T) {
	whole := machine(t, "h200x4")
	// shown is what a driver shows of some of the GPUs.
	shown := func(gpus ...int) Machine {
		m := Machine{Version: Version, Host: whole.Host, CUDA: whole.CUDA}
		for i, g := range gpus {
			m.GPUs = append(m.GPUs, GPU{Index: i, UUID: whole.GPUs[g].UUID, Name: whole.GPUs[g].Name})
		}
		for j := range m.GPUs {
			for i := range j {
				m.Pairs = append(m.Pairs, Pair{A: i, B: j, Way: WayUnknown, Read: OK, Write: OK, NVLink: Untold, Atomics: OK, PCI: Untold})
			}
		}
		slices.SortFunc(m.Pairs, func(x, y Pair) int { return 10*(x.A-y.A) + x.B - y.B })
		return m
	}
	locations := func(ms ...Machine) []Location {
		var out []Location
		for r, m := range ms {
			out = append(out, Location{World: len(ms), GPU: whole.GPUs[r].UUID, Machine: m, Partial: len(m.Driver) == 0})
		}
		return out
	}
	refused := shown(0, 1, 2, 3)
	refused.Pairs[1].Read = "no peer access"
	other := shown(2)
	other.GPUs[0].Name = "another"
	elsewhere := shown(2, 3)
	elsewhere.Host.ID, elsewhere.Host.Name = "elsewhere", "elsewhere"
	for name, tc := range map[string]struct {
		locations []Location
		transport Transport
		reason    string
		err       string
	}{
		"one GPU each":       {locations(shown(0), shown(1), shown(2)), Symmetric, "as far as the ranks' drivers show", ""},
		"in other orders":    {locations(shown(0, 1, 2, 3), shown(3, 1, 0, 2), shown(2, 3)), Symmetric, "as far as", ""},
		"whole":              {locations(*whole, *whole, *whole), Symmetric, "by nvswitch", ""},
		"whole after part":   {locations(shown(3, 0), *whole, *whole), Symmetric, "by nvswitch", ""},
		"part after whole":   {locations(*whole, shown(1), *whole), Symmetric, "by nvswitch", ""},
		"no access":          {locations(refused, shown(1), shown(2)), NCCL, `ranks 0 and 2 (GPUs 0 and 2, joined by unknown) have no peer access: read is "no peer access"`, ""},
		"two hosts":          {locations(shown(0), shown(1), elsewhere), NCCL, "ranks 0 and 2 are on hosts", ""},
		"two names":          {locations(shown(0), shown(1, 2), other), "", "", "name of the host that they share differ: \"NVIDIA H200\" on rank 0, \"another\" on rank 2"},
		"two words on a way": {locations(shown(0, 1, 2, 3), refused, shown(2)), "", "", "no peer access"},
		"not its GPU":        {locations(shown(0), shown(2), shown(2)), "", "", "machine of rank 1: has no GPU"},
	} {
		for _, m := range []int{0, 2} {
			l, err := NewLayout(m, tc.locations)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: %v, want %q", name, err, tc.err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for r := range l.Ranks {
				if l.GPU(r).UUID != tc.locations[r].GPU {
					t.Errorf("%s: rank %d sits on GPU %s, its own is %s", name, r, l.GPU(r).UUID, tc.locations[r].GPU)
				}
			}
			d, err := l.Decide([]int{0, 1, 2}, DecideOptions{})
			if err != nil || d.Transport != tc.transport || !strings.Contains(d.Reason, tc.reason) {
				t.Errorf("%s: %v, %v", name, d, err)
			}
		}
	}
}
