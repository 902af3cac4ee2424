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

const envLibrary = "CONCERT_TEST_LIBRARY" // a made-up driver library, with or without what is optional

// TestOptionalFunctions loads made-up driver libraries, each in a process of its own: one
// without the functions of multicast objects and conditional nodes serves all else, one with
// them is called as the driver's interface has it.
func TestOptionalFunctions(t *testing.T) {
	if path := os.Getenv(envLibrary); path != "" {
		switch filepath.Base(path) {
		case "old.so":
			withoutMulticast(t, path)
			withoutConditions(t, path, "no symbol cuGraphConditionalHandleCreate")
		case "between.so": // loops, but no branches
			withoutConditions(t, path, "no conditional nodes: the driver is of CUDA 12.4, they are complete since 12.8")
		default:
			withMulticast(t, path)
			withConditions(t, path)
			withLocalMemory(t, path)
			withNetworkMemory(t, path)
			withBrokenContext(t, path)
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
		"cuDeviceGetAttribute":           "(int *v, int attr, int dev) { *v = attr == 132 && dev == 1; return 0; }",
		"cuMemCreate":                    "(handle *h, unsigned long n, struct alloc *p, unsigned long long flags) { *h = n + p->type * 1000 + p->types * 100 + p->dev * 10 + p->rdma; return flags || p->rest[0] || p->rest[1]; }",
		"cuMulticastCreate":              "(unsigned long long *h, struct prop *p) { *h = p->devices * 1000000 + p->bytes * 10 + p->types + p->flags; return 0; }",
		"cuMulticastGetGranularity":      "(unsigned long *g, struct prop *p, int option) { *g = p->bytes + p->types + option; return 0; }",
		"cuMulticastAddDevice":           "(unsigned long long h, int dev) { return h == 7 && dev == 3 ? 0 : 101; }",
		"cuMulticastBindMem":             "(unsigned long long h, unsigned long at, unsigned long long m, unsigned long from, unsigned long n, unsigned long long flags) { return h == 7 && !at && m == 8 && !from && n == 4096 && !flags ? 0 : 1; }",
		"cuMulticastUnbind":              "(unsigned long long h, int dev, unsigned long at, unsigned long n) { return h == 7 && dev == 3 && !at && n == 4096 ? 0 : 1; }",
		"cuModuleGetFunction":            "(handle *f, handle m, char *name) { *f = strlen(name); return 0; }",
		"cuFuncGetAttribute":             "(int *v, int attr, handle f) { *v = f * 1000; return attr == 3 ? 0 : 1; }",
		"cuCtxGetLimit":                  "(unsigned long *n, int limit) { *n = stack; return limit; }",
		"cuCtxSetLimit":                  "(int limit, unsigned long n) { if (n > 3000 || n <= stack) return 2; stack = n; return limit; }",
		"cuDriverGetVersion":             "(int *v) { *v = strstr(getenv(\"" + envLibrary + "\"), \"between\") ? 12040 : 12080; return 0; }",
		"cuStreamGetCaptureInfo_v2":      "(handle s, int *status, handle *id, handle *g, handle **deps, unsigned long *n) { static handle d[2] = {5, 6}; *status = s == 3 || s == 5; *id = 1; if (g) *g = 77; if (deps) *deps = d; if (n) *n = 2; return 0; }",
		"cuGraphConditionalHandleCreate": "(handle *h, handle g, handle ctx, unsigned initial, unsigned flags) { *h = g * 100 + ctx * 10 + initial + flags; return 0; }",
		"cuStreamEndCapture":             "(handle s, handle *g) { *g = s == 3 ? 77 : 0; return s == 3 ? 0 : 904; }",
		"cuGraphAddNode":                 "(handle *node, handle g, handle *deps, unsigned long n, struct node *p) { static handle out[2] = {101, 102}; *node = 9; p->out = out; return g == 77 && n == 2 && deps[0] == 5 && deps[1] == 6 && p->type == 13 && !p->pad[0] && p->by == 7710 && p->kind == p->bodies && p->ctx == 1 && !p->rest ? 0 : 1; }",
		"cuStreamBeginCaptureToGraph":    "(handle s, handle g, handle *deps, void *data, unsigned long n, int mode) { return s == 3 && !data && mode == 2 && (n == 0 && g == 101 || n == 1 && deps[0] == 9 && g == 77) ? 0 : 1; }",
		"cuEventDestroy_v2":              "(handle e) { return e; }",
		"cuStreamQuery":                  "(handle s) { return s; }",
		"cuDevicePrimaryCtxRetain":       "(unsigned long long *c, int dev) { *c = 1; return 0; }",
		"cuDevicePrimaryCtxRelease_v2":   "(int dev) { return 0; }",
	}
	dir := t.TempDir()
	for _, name := range []string{"old.so", "new.so"} {
		src := "#include <stdlib.h>\n#include <string.h>\ntypedef unsigned long long handle; struct node { int type, pad[3]; handle by; int kind; unsigned bodies; handle *out, ctx, unused[25], rest; };\n"
		src += "static unsigned long stack = 1024;\n"
		src += "struct prop { unsigned devices; unsigned long bytes; unsigned long long types, flags; };\n"
		src += "struct alloc { int type, types, where, dev; void *win32; char compressed, rdma; short rest[3]; };\n"
		for _, g := range regexp.MustCompile(`X\(\w+,\s*"(cu\w+)"`).FindAllStringSubmatch(string(header), -1) {
			body := made[g[1]]
			if body == "" {
				body = "(void) { return 0; }"
			}
			optional := strings.HasPrefix(g[1], "cuMulticast") || g[1] == "cuGraphConditionalHandleCreate"
			if name == "new.so" || !optional {
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
	}
	if err := os.Symlink("new.so", filepath.Join(dir, "between.so")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old.so", "new.so", "between.so"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOptionalFunctions$")
		cmd.Env = append(os.Environ(), envLibrary+"="+filepath.Join(dir, name))
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

// withNetworkMemory makes memory with and without network adapters.
func withNetworkMemory(t *testing.T, path string) {
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[Sharing]Mem{ByFD: 5130, ByFD | Network: 5131, ByFabric | Network: 5831, Unshared | Network: 5031} {
		if m, err := d.MemCreate(1, 3, 4000, how); m != want || err != nil {
			t.Errorf("%v, %d: memory %d, %v, want %d", how, how, m, err, want)
		}
	}
}

// withBrokenContext gives objects back of which the driver says what broke their context.
func withBrokenContext(t *testing.T, path string) {
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.EventDestroy(1, 719); err != nil {
		t.Errorf("an event of a broken context: %v", err)
	}
	if err := d.EventDestroy(1, 201); !errors.Is(err, &Error{Code: 201}) || Broken(err) {
		t.Errorf("an event that cannot be destroyed: %v", err)
	}
	for code, want := range map[Stream]string{
		700: "; this process can use the device no more",
		719: " (a kernel stops so where an index is out of range); this process can use the device no more",
	} {
		if _, err := d.StreamQuery(1, code); !Broken(err) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("work that failed with %d: %v", code, err)
		}
	}
}

func withoutConditions(t *testing.T, path, why string) {
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.(Conditioner).Conditions(); !errors.Is(err, ErrNoConditions) || !strings.HasSuffix(err.Error(), why) {
		t.Errorf("conditions: %v", err)
	}
	if _, err := d.(Conditioner).CaptureDivide(1, 3, 7710, true, 1); err == nil {
		t.Error("a node was made without the functions")
	}
}

func withConditions(t *testing.T, path string) {
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c := d.(Conditioner)
	if _, err := c.ConditionCreate(1, 3); err == nil {
		t.Error("the functions are resolved before anybody asks")
	}
	if err := c.Conditions(); err != nil {
		t.Fatal(err)
	}
	by, err := c.ConditionCreate(1, 3)
	if by != 7710 || err != nil {
		t.Errorf("number %d, %v", by, err)
	}
	if _, err := c.ConditionCreate(1, 4); err == nil {
		t.Error("a number for a stream that captures nothing")
	}
	for bodies, loop := range map[int]bool{1: true, 2: false} {
		n, err := c.CaptureDivide(1, 3, by, loop, bodies)
		if err != nil || n.Graph != 77 || n.Node != 9 || len(n.Bodies) != bodies || n.Bodies[bodies-1] != Graph(100+bodies) {
			t.Errorf("%d bodies: %+v, %v", bodies, n, err)
		}
	}
	if err := errors.Join(c.CaptureInto(1, 3, 101, 0), c.CaptureInto(1, 3, 77, 9)); err != nil {
		t.Error(err)
	}
	for s, code := range map[Stream]int{4: 901, 5: 904} { // captures nothing, or cannot end
		if n, err := c.CaptureDivide(1, s, by, true, 1); !errors.Is(err, &Error{Call: "cuGraphAddNode", Code: code}) || n.Graph != 0 {
			t.Errorf("stream %d: graph %d, which is still the driver's; %v", s, n.Graph, err)
		}
	}
}

// A kernel's function comes with the local memory that its launch needs.
func withLocalMemory(t *testing.T, path string) {
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"333", "1", "22"} {
		if _, err := d.Function(1, 2, name); err != nil {
			t.Errorf("kernel %s: %v", name, err)
		}
	}
	_, err = d.Function(1, 2, "4444")
	if !errors.Is(err, &Error{Call: "cuCtxSetLimit", Code: 2}) || !strings.Contains(err.Error(), "kernel 4444: 4000 bytes of local memory a thread") {
		t.Errorf("more than there is: %v", err)
	}
}
