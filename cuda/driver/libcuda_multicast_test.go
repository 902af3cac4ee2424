//go:build linux && cgo && (amd64 || arm64)

package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const envLibrary = "CONCERT_TEST_LIBRARY" // a made-up driver library, with or without multicast

// TestMulticastLibrary loads made-up driver libraries, each in a process of its own: one
// without the functions of multicast objects serves all else, one with them is called as
// the driver's interface has it.
func TestMulticastLibrary(t *testing.T) {
	if path := os.Getenv(envLibrary); path != "" {
		if strings.HasSuffix(path, "old.so") {
			withoutMulticast(t, path)
		} else {
			withMulticast(t, path)
		}
		return
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	header, err := os.ReadFile("shim.h")
	if err != nil {
		t.Fatal(err)
	}
	// What is asked for is made of what the functions get, in other structures than ours.
	made := map[string]string{
		"cuDeviceGetAttribute":         "(int *v, int attr, int dev) { *v = attr == 132 && dev == 1; return 0; }",
		"cuMulticastCreate":            "(unsigned long long *h, struct prop *p) { *h = p->devices * 1000000 + p->bytes * 10 + p->types + p->flags; return 0; }",
		"cuMulticastGetGranularity":    "(unsigned long *g, struct prop *p, int option) { *g = p->bytes + p->types + option; return 0; }",
		"cuMulticastAddDevice":         "(unsigned long long h, int dev) { return h == 7 && dev == 3 ? 0 : 101; }",
		"cuMulticastBindMem":           "(unsigned long long h, unsigned long at, unsigned long long m, unsigned long from, unsigned long n, unsigned long long flags) { return h == 7 && !at && m == 8 && !from && n == 4096 && !flags ? 0 : 1; }",
		"cuMulticastUnbind":            "(unsigned long long h, int dev, unsigned long at, unsigned long n) { return h == 7 && dev == 3 && !at && n == 4096 ? 0 : 1; }",
		"cuDevicePrimaryCtxRetain":     "(unsigned long long *c, int dev) { *c = 1; return 0; }",
		"cuDevicePrimaryCtxRelease_v2": "(int dev) { return 0; }",
	}
	dir := t.TempDir()
	for _, name := range []string{"old.so", "new.so"} {
		src := "struct prop { unsigned devices; unsigned long bytes; unsigned long long types, flags; };\n"
		for _, g := range regexp.MustCompile(`X\(\w+,\s*"(cu\w+)"`).FindAllStringSubmatch(string(header), -1) {
			body := made[g[1]]
			if body == "" {
				body = "(void) { return 0; }"
			}
			if name == "new.so" || !strings.HasPrefix(g[1], "cuMulticast") {
				src += fmt.Sprintf("int %s%s\n", g[1], body)
			}
		}
		lib := filepath.Join(dir, name)
		if err := os.WriteFile(lib+".c", []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(cc, "-w", "-shared", "-fPIC", "-o", lib, lib+".c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestMulticastLibrary$")
		cmd.Env = append(os.Environ(), envLibrary+"="+lib)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func withoutMulticast(t *testing.T, path string) {
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.CtxRetain(0); err != nil {
		t.Error(err)
	}
	if ok, err := d.(Multicaster).MulticastSupported(1); ok || !errors.Is(err, ErrNoMulticast) || !strings.Contains(err.Error(), "no symbol cuMulticastCreate") {
		t.Errorf("supported: %v, %v", ok, err)
	}
	if _, err := d.(Multicaster).MulticastCreate(1, 2, 1<<21, ByFD); err == nil {
		t.Error("an object was made without the functions")
	}
}

func withMulticast(t *testing.T, path string) {
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m := d.(Multicaster)
	if _, err := m.MulticastCreate(1, 3, 4096, ByFD); err == nil {
		t.Error("the functions are resolved before anybody asks")
	}
	for dev, want := range []bool{false, true} {
		if ok, err := m.MulticastSupported(dev); ok != want || err != nil {
			t.Errorf("device %d: %v, %v", dev, ok, err)
		}
	}
	if h, err := m.MulticastCreate(1, 3, 4096, ByFD); h != 3040961 || err != nil {
		t.Errorf("object %d, %v", h, err)
	}
	if g, err := m.MulticastGranularity(1, 3, 1<<21, ByFabric); g != 1<<21+8 || err != nil {
		t.Errorf("granularity %d, %v", g, err)
	}
	if err := errors.Join(m.MulticastAdd(1, 7, 3), m.MulticastBind(1, 7, 8, 4096), m.MulticastUnbind(1, 7, 3, 4096)); err != nil {
		t.Error(err)
	}
	if err := m.MulticastAdd(1, 7, 4); !errors.Is(err, &Error{Call: "cuMulticastAddDevice", Code: 101}) {
		t.Errorf("a wrong device: %v", err)
	}
}
