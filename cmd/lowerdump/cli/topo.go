package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/cuda/topo/nvml"
)

var topoCommand = command{
	name: "topo", args: "[-gpus=0,1] [-json] [-machine=BASE] [FILE]", doc: "shows GPUs, NVLinks, fabric and peer access, and the transport concert chooses",
	help: `
Without FILE the machine is read from the NVIDIA driver; FILE is the output of -json from
another machine. The last lines say whether groups use symmetric memory, which needs
P2P access, or NCCL, and why, and for this machine which NCCL carries groups across hosts, and
whether it can use the arena directly. lowerdump calibrate measures speeds.

Examples:
  lowerdump topo
  lowerdump topo -json > host.json
  lowerdump topo -gpus=0,1 host.json
  lowerdump topo -machine=h200 > machine.json

With -machine it prints a machine file for -machine=FILE of other commands: the GPUs of a host,
their NVLink connections and bandwidths. BASE, a machine by name or file, provides the rates that
the driver does not report. Add the network yourself: adapters, switches between hosts and
oversubscription (rails_per_host, hosts_per_leaf, oversubscription).`,
	run: runTopo,
}

type topoFlags struct {
	json bool
	gpus string
	base pricing
}

func (f *topoFlags) define(fs *flag.FlagSet) {
	fs.BoolVar(&f.json, "json", false, "print the machine as JSON, usable as FILE")
	fs.StringVar(&f.base.machine, "machine", "", "print a machine file; this `machine` provides the rates that the driver does not report")
	fs.StringVar(&f.gpus, "gpus", "", "GPUs of the ranks, by number in rank order; default: all")
}

func runTopo(_ context.Context, t tool, args []string) error {
	var f topoFlags
	files, err := parse("topo", &f, args)
	switch {
	case err != nil:
		return err
	case len(files) > 1:
		return usagef("want at most one FILE, got %d", len(files))
	}
	base, err := f.base.base()
	if err != nil {
		return err
	}
	m, err := t.machine(files)
	if err != nil {
		return err
	}
	if f.base.machine != "" {
		text, err := described(m, base.Machine).JSON()
		if err == nil {
			_, err = t.out.Write(text)
		}
		return err
	}
	if f.json {
		text, err := m.JSON()
		if err == nil {
			_, err = t.out.Write(text)
		}
		return err
	}
	gpus, err := f.list(len(m.GPUs))
	if err != nil {
		return err
	}
	layout := topo.Local(m, gpus...)
	fmt.Fprint(t.out, m)
	if err := writeDecisions(t.out, layout); err != nil || len(files) > 0 {
		return err
	}
	_, err = fmt.Fprintln(t.out, betweenHosts(nccl.Open("")))
	return err
}

// betweenHosts says what carries groups on several hosts, and how much of it.
func betweenHosts(l nccl.Library, err error) string {
	var v int
	if err == nil {
		v, err = l.Version()
	}
	if err != nil {
		return fmt.Sprintf("between hosts: nothing: %v", err)
	}
	s := "between hosts: NCCL " + nccl.VersionText(v)
	if err := l.Registers(); err != nil {
		return fmt.Sprintf("%s, which copies through its own buffers: %v", s, err)
	}
	return s + ", which copies through its own buffers, or none where each rank is on a host of its own and adapters can use the arena"
}

// machine is the one that FILE describes, or this one.
func (t tool) machine(files []string) (*topo.Machine, error) {
	if len(files) == 0 {
		defer t.busy.Phase("reading the driver's topology")()
		return nvml.Read(nvml.Options{})
	}
	data, name, err := t.read(files[0])
	if err != nil {
		return nil, err
	}
	m, err := topo.Read(name, bytes.NewReader(data))
	if err == nil {
		return m, nil
	}
	kind := kindOf(data)
	if kind == graphFile && data[0] == '{' {
		if kind = kindOfJSON(data); kind != machineFile && kind != calibrationFile {
			return nil, err // which says what is wrong in it
		}
	}
	return nil, wrongKind(name, kind, "the output of lowerdump topo -json")
}

// list is the GPUs of the ranks.
func (f *topoFlags) list(have int) ([]int, error) {
	var out []int
	if f.gpus == "" {
		for i := range have {
			out = append(out, i)
		}
		return out, nil
	}
	for _, s := range strings.Split(f.gpus, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n >= have {
			return nil, usagef("-gpus=%s: want numbers from 0 to %d", f.gpus, have-1)
		}
		out = append(out, n)
	}
	return out, nil
}

// writeDecisions says how a group of all ranks communicates, and where that is not by
// symmetric memory, which pairs could.
func writeDecisions(w io.Writer, l *topo.Layout) error {
	ranks := make([]int, len(l.Ranks))
	for i := range ranks {
		ranks[i] = i
	}
	all, err := l.Decide(ranks, topo.DecideOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\na group of %s: %s\n", count(len(ranks), "rank"), all)
	if all.Transport == topo.Symmetric || len(ranks) == 2 {
		return nil
	}
	for a := range ranks {
		for b := a + 1; b < len(ranks); b++ {
			pair, err := l.Decide([]int{a, b}, topo.DecideOptions{})
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "ranks %d and %d: %s\n", a, b, pair)
		}
	}
	return nil
}

// described is base with the GPUs and links of m: a host of such hosts.
func described(m *topo.Machine, base *cost.Machine) *cost.Machine {
	out := *base
	out.Name, out.RanksPerHost, out.RanksPerDomain = base.Name, max(len(m.GPUs), 1), 0
	for i, g := range m.GPUs {
		if i == 0 && g.SMs > 0 {
			out.Units = g.SMs
		}
		gbps := 0.0
		for _, l := range g.NVLinks {
			gbps += float64(l.Links) * l.GBps
		}
		if i == 0 && gbps > 0 && base.Intra.PeakGBps > 0 { // collectives reach the same part of it
			out.Intra.GBps, out.Intra.PeakGBps = base.Intra.GBps*gbps/base.Intra.PeakGBps, gbps
		}
	}
	if size := domain(m); size < out.RanksPerHost {
		out.RanksPerDomain = size
	}
	return &out
}

// domain is the largest number of which every so many GPUs in a row are joined by NVLink.
func domain(m *topo.Machine) int {
	n := len(m.GPUs)
	for size := n; size > 1; size-- {
		joined := n%size == 0
		for _, p := range m.Pairs {
			joined = joined && (p.A/size != p.B/size || p.Way == topo.WaySwitch || p.Way == topo.WayNVLink)
		}
		if joined {
			return size
		}
	}
	return 1
}
