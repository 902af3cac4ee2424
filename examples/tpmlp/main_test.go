package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
)

// On the host and on devices of the fake driver all ranks have the same first output,
// the same on both; devices tell times.
func TestRun(t *testing.T) {
	s := size{ranks: 4, rows: 32, width: 64, hidden: 256}
	var digests []string
	for _, c := range []struct {
		name  string
		drv   driver.Driver
		times int
	}{{"host", nil, 0}, {"fake", fake.New(4), 4}} {
		var b strings.Builder
		o := device.Options{Libraries: device.Standard(device.Paths{}), Cache: "none", Scratch: 1 << 20, Staging: 1 << 20, Workspace: 1 << 20,
			Group: coll.GroupOptions{Region: 256 << 10, Flagged: 512 << 10}}
		if err := run(t.Context(), &b, c.drv, s, o, rt.Env{}); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		t.Log(b.String())
		found := regexp.MustCompile(`first output (\w+)`).FindAllStringSubmatch(b.String(), -1)
		if len(found) != 4 {
			t.Fatalf("%s: %d ranks said what they have:\n%s", c.name, len(found), b.String())
		}
		for _, m := range found {
			digests = append(digests, m[1])
		}
		if n := strings.Count(b.String(), "measured"); n != c.times {
			t.Errorf("%s: %d times, expected %d", c.name, n, c.times)
		}
		if !strings.Contains(b.String(), "as written:") || !strings.Contains(b.String(), "scheduled:") {
			t.Errorf("%s: no simulation:\n%s", c.name, b.String())
		}
	}
	for _, d := range digests {
		if d != digests[0] {
			t.Errorf("first outputs %v", digests)
			break
		}
	}
}

// TestMain makes the test's binary also what the ranks of TestProcesses run.
func TestMain(m *testing.M) {
	if os.Getenv(launch.EnvChild) == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Ranks that are processes have the first output of ranks that are goroutines.
func TestProcesses(t *testing.T) {
	var all strings.Builder
	host := []string{"CUDA_VISIBLE_DEVICES="} // on GPUs the example is larger, and wants four of them
	if err := launch.Run(t.Context(), launch.Spec{World: 4, Env: host, Stdout: &all}); err != nil {
		t.Fatal(err)
	}
	s := size{ranks: 4, rows: 64, width: 128, hidden: 512}
	var one strings.Builder
	if err := run(t.Context(), &one, nil, s, device.Options{}, rt.Env{}); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`rank \d: first output \w+`).FindAllString(one.String(), -1)
	if len(want) != 4 {
		t.Fatalf("%d ranks said what they have:\n%s", len(want), one.String())
	}
	for _, w := range want {
		if !strings.Contains(all.String(), w) {
			t.Errorf("no process says %q:\n%s", w, all.String())
		}
	}
}

// One GPU is a world of one rank, which has nothing to wait for.
func TestAlone(t *testing.T) {
	var b strings.Builder
	o := device.Options{Libraries: device.Standard(device.Paths{}), Cache: "none", Workspace: 1 << 20}
	if err := run(t.Context(), &b, fake.New(1), size{ranks: 1, rows: 32, width: 64, hidden: 256}, o, rt.Env{World: 1}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "rank 0: first output") || !strings.Contains(b.String(), "exposed communication 0.000 ms (simulated") {
		t.Errorf("it said\n%s", b.String())
	}
}

// The schedule leaves only the last all_reduce exposed, with nothing to hide behind.
func TestOverlap(t *testing.T) {
	var b strings.Builder
	compiled(&b, size{ranks: 4, rows: 4096, width: 4096, hidden: 12288})
	var exposed []float64
	for _, m := range regexp.MustCompile(`exposed communication ([0-9.]+) ms`).FindAllStringSubmatch(b.String(), -1) {
		ms, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		exposed = append(exposed, ms)
	}
	if len(exposed) != 2 || exposed[0] <= 0 || exposed[1] > exposed[0]/batches*1.01 {
		t.Errorf("exposed as written and scheduled: %v\n%s", exposed, b.String())
	}
}
