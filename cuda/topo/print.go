package topo

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// String is the machine as a readable table: GPUs, what joins them, and what could
// not be read.
func (m *Machine) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "host %s (%s), %d CPUs, driver %s, CUDA %s\n", or(m.Host.Name, "?"), m.Host.ID, m.Host.CPUs, or(m.Driver, "?"), or(m.CUDA, "?"))
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tname\tmemory\tSMs\tclock\tPCI\tPCIe\tNUMA\tCPUs\tNVLinks\tfabric\t")
	for _, g := range m.GPUs {
		fmt.Fprintf(w, "%d\t%s sm_%s\t%.0f GiB\t%d\t%d MHz\t%s\tgen%d x%d\t%s\t%s\t%s\t%s\t\n", g.Index, g.Name, strings.ReplaceAll(g.Capability, ".", ""),
			float64(g.MemoryBytes)/(1<<30), g.SMs, g.SMMHz, g.PCI, g.PCIeGen, g.PCIeLanes, or(strings.Trim(fmt.Sprint(g.NUMA), "[]"), "-"), or(g.CPUs, "-"),
			linksText(g.NVLinks), fabricText(g.Fabric))
	}
	w.Flush() // cannot fail on a builder
	if len(m.GPUs) > 1 {
		m.matrix(&s)
	}
	switch n := m.Switches(); {
	case n > 0:
		fmt.Fprintf(&s, "%d NVSwitches\n", n)
	case n < 0:
		s.WriteString("NVSwitches whose number is hidden\n")
	}
	for _, n := range m.Notes {
		fmt.Fprintf(&s, "not read: %s\n", n)
	}
	lines := strings.Split(s.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// matrix writes what joins each pair. NV18* is 18 NVLinks through switches, NV4 four
// direct ones, and the rest the nearest common device over PCIe. A pair without peer
// access is in parentheses.
func (m *Machine) matrix(s *strings.Builder) {
	w := tabwriter.NewWriter(s, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "pair\t")
	for i := range m.GPUs {
		fmt.Fprintf(w, "%d\t", i)
	}
	fmt.Fprintln(w)
	for a := range m.GPUs {
		fmt.Fprintf(w, "%d\t", a)
		for b := range m.GPUs {
			p := m.Pair(a, b)
			if p == nil {
				fmt.Fprint(w, "-\t")
				continue
			}
			cell := or(p.Ancestor, "pcie")
			switch p.Way {
			case WaySwitch:
				cell = fmt.Sprintf("NV%d*", p.Links)
			case WayNVLink:
				cell = fmt.Sprintf("NV%d", p.Links)
			}
			if !p.peer() {
				cell = "(" + cell + ")"
			}
			fmt.Fprintf(w, "%s\t", cell)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// peer reports whether the pair has all the access that symmetric memory needs.
func (p *Pair) peer() bool { return p.Read == OK && p.Write == OK && p.Atomics == OK }

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func linksText(v []NVLinks) string {
	n, gbps, switches := 0, 0.0, 0
	for _, l := range v {
		n, gbps = n+l.Links, gbps+float64(l.Links)*l.GBps
		if l.End == EndSwitch {
			switches += l.Links
		}
	}
	switch {
	case n == 0:
		return "-"
	case switches == n:
		return fmt.Sprintf("%d to switches, %.0f GB/s", n, gbps)
	}
	return fmt.Sprintf("%d, %.0f GB/s", n, gbps)
}

func fabricText(f *Fabric) string {
	if f == nil {
		return "-"
	}
	s := f.State
	if f.Cluster != "" {
		s += fmt.Sprintf(", clique %d of %.8s", f.Clique, f.Cluster)
	}
	if f.Health != "" {
		s += ", " + f.Health
	}
	return s
}
