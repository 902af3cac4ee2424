//go:build linux && cgo

package nvml

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/cuda/topo"
)

var (
	onGPU = flag.Bool("gpu", false, "read the machine that this test runs on")
	save  = flag.String("save", "", "with -gpu: write the machine to this file")
)

// TestRead reads real hardware: it must be complete, come back from its JSON, and
// read the same twice.
func TestRead(t *testing.T) {
	if !*onGPU {
		t.Skip("needs a GPU: run with -gpu")
	}
	m, err := Read(Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.JSON()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", b)
	if *save != "" {
		if err := os.WriteFile(*save, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	again, err := topo.Read("machine", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Read(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*topo.Machine{again, second} {
		if d := cmp.Diff(m, other); d != "" {
			t.Errorf("the machine changed on the way through JSON, or between two readings: %s", d)
		}
	}
	var all []int
	for i, g := range m.GPUs {
		all = append(all, i)
		if g.SMs == 0 || g.MemoryBytes == 0 || g.SMMHz == 0 || g.Name == "" || g.PCI == "" {
			t.Errorf("GPU %d is incomplete: %+v", i, g)
		}
	}
	d, err := topo.Local(m, all...).Decide(all, topo.DecideOptions{})
	t.Logf("%v, %v", d, err)
}

func TestNoDriver(t *testing.T) {
	if _, err := Read(Options{Path: "/nowhere/libnvidia-ml.so.1"}); err == nil {
		t.Error("a library that is not there was read")
	}
}
