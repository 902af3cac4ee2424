//go:build linux && cgo && (amd64 || arm64)

package driver

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/dl"
)

// envLibraries are the stand-ins for the driver's library that a child of TestOpen opens:
// whole ones, one that lacks a function, and one whose cuInit fails.
const envLibraries = "CONCERT_TEST_LIBRARIES"

//go:embed shim.h
var shim []byte

// standIn builds a library of functions that return a code, all that the driver has.
func standIn(t *testing.T, dir, name, without string, init int) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("a stand-in for the driver's library needs gcc")
	}
	var c strings.Builder
	found := 0
	for _, m := range regexp.MustCompile(`\bX\(\w+, "(\w+)"`).FindAllSubmatch(shim, -1) {
		symbol, code := string(m[1]), 0
		if found++; symbol == without {
			continue
		}
		if symbol == "cuInit" {
			code = init
		}
		fmt.Fprintf(&c, "int %s(void) { return %d; }\n", symbol, code)
	}
	if found < 50 {
		t.Fatalf("only %d functions in shim.h", found)
	}
	source, out := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(source, []byte(c.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(gcc, "-shared", "-fPIC", "-w", "-o", out, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	return out
}

// TestOpen loads stand-ins, in a process of its own: what is loaded stays.
func TestOpen(t *testing.T) {
	if dir := os.Getenv(envLibraries); dir != "" {
		openStandIns(t, dir)
		return
	}
	dir := t.TempDir()
	standIn(t, dir, "whole", "", 0)
	standIn(t, dir, "other", "", 0)
	standIn(t, dir, "old", "cuMemCreate", 0)
	standIn(t, dir, "broken", "", 100)
	cmd := exec.Command(os.Args[0], "-test.run=^TestOpen$", "-test.v")
	cmd.Env = append(os.Environ(), envLibraries+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOpen") {
		t.Errorf("%v\n%s", err, out)
	}
}

func openStandIns(t *testing.T, dir string) {
	whole, other := filepath.Join(dir, "whole"), filepath.Join(dir, "other")
	var le *dl.LoadError
	// Failures leave nothing behind.
	_, err := Open(filepath.Join(dir, "none"))
	if !errors.As(err, &le) || !errors.Is(err, ErrNoDriver) || le.Path != filepath.Join(dir, "none") || le.Symbol != "" || le.Reason == "" {
		t.Errorf("no library: %v", err)
	}
	_, err = Open(filepath.Join(dir, "old"))
	if !errors.As(err, &le) || !errors.Is(err, ErrNoDriver) || le.Symbol != "cuMemCreate" || le.Path != filepath.Join(dir, "old") {
		t.Errorf("an old library: %v", err)
	}
	var code *Error
	if _, err = Open(filepath.Join(dir, "broken")); !errors.As(err, &code) || !errors.Is(err, ErrNoDriver) || code.Call != "cuInit" || code.Code != 100 {
		t.Errorf("a driver without devices: %v", err)
	}
	if v, err := (lib{}).Version(); err == nil && v != 0 {
		t.Errorf("version %d of nothing", v)
	}
	for _, v := range []string{"1", "2", "true", "00"} {
		t.Setenv(launchBlocking, v)
		var blocking *LaunchBlockingError
		if _, err := Open(whole); !errors.As(err, &blocking) || blocking.Value != v || !strings.Contains(err.Error(), launchBlocking+"="+v) {
			t.Errorf("%s=%s: %v", launchBlocking, v, err)
		}
	}
	for _, v := range []string{"", "0"} {
		t.Setenv(launchBlocking, v)
		if _, err := Open(whole); err != nil {
			t.Errorf("%s=%q: %v", launchBlocking, v, err)
		}
	}
	// One library for a process, whose path is remembered.
	for _, path := range []string{whole, ""} {
		if _, err := Open(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := Open(other); !errors.As(err, &le) || le.Path != other || !strings.Contains(err.Error(), whole+" already") {
		t.Errorf("another library: %v", err)
	}
}
