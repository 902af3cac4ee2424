package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/cuda/device"
)

// On the host and on devices of the fake driver all ranks have the same first output,
// the same on both; devices tell times.
func TestRun(t *testing.T) {
	s := size{ranks: 4, rows: 32, width: 64, hidden: 256}
	var digests []string
	for _, c := range []struct {
		name  string
		drv   cuda.Driver
		times int
	}{{"host", nil, 0}, {"fake", cuda.NewFake(4), 4}} {
		var b strings.Builder
		o := device.Options{Libraries: device.Standard(device.Paths{}), Cache: "none", Scratch: 1 << 20, Staging: 1 << 20, Workspace: 1 << 20,
			Group: cuda.GroupOptions{Region: 256 << 10, Flagged: 512 << 10}}
		if err := run(t.Context(), &b, c.drv, s, o); err != nil {
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

// The schedule leaves only the last all_reduce exposed, with nothing to hide behind.
func TestOverlap(t *testing.T) {
	var b strings.Builder
	compile(&b, size{ranks: 4, rows: 4096, width: 4096, hidden: 12288})
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
