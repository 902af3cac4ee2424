//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver/fake"
)

// TestModes runs what needs no clock on the fake driver.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode         string
		ranks, calls int
	}{
		{mode: "soak", ranks: 2, calls: 400},
		{mode: "soak", ranks: 3, calls: 400},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			drv := fake.New(c.ranks)
			o := options{mode: c.mode, ranks: c.ranks, calls: c.calls, limit: 16 << 20, staging: 16 << 20, region: 1 << 20, timeout: 20 * time.Second}
			if err := runOn(drv, o); err != nil {
				t.Fatal(err)
			}
			if l := drv.Leaks(); len(l) > 0 {
				t.Errorf("not released: %v", l)
			}
		})
	}
}

// A file of matmuls has single ones and groups; groups are measured behind their members.
func TestReadMatmuls(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shapes.json")
	if err := os.WriteFile(name, []byte(`[{"Name": "q", "A": [16, 64]}, {"Name": "k"}]
{"Name": "o"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := readMatmuls(name)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range list {
		names = append(names, fmt.Sprint(len(g), g[0].Name))
	}
	if got := strings.Join(names, " "); got != "1q 1k 1o 2q" || list[3][0].A[1] != 64 {
		t.Errorf("read %s", got)
	}
	if err := os.WriteFile(name, []byte(`{"Name": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readMatmuls(name); err == nil || !strings.Contains(err.Error(), name+": byte ") {
		t.Errorf("a name that is a number: %v", err)
	}
}
