// Package machinetest runs kernels of package machine in tests, on a machine whose threads are
// fibers of a process: what a warp does together is done as the device defines it.
package machinetest

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/internal/machine"
	"github.com/seed-ee968945/concert/internal/prelude/clang"
)

//go:embed host.cuh
var source string

// host reads memory and runs the launches of one unit on it.
const host = `
#include <unistd.h>
static args given;
%s
int main(int n, char **a) {
  FILE *f = fopen(a[1], "r+b");
  i64 head[2];
  if (!f || fread(head, 8, 2, f) != 2) return 2;
  char *m = (char *)mmap((void *)0x%xull, head[0], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (m != (char *)0x%xull || fread(m, 1, head[0], f) != (size_t)head[0]) return 3;
  for (i64 i = 0; i < head[1]; i++) {
    i64 l[4];
    if (fread(l, 8, 4, f) != 4 || l[3] != (i64)sizeof given || fread(&given, 1, l[3], f) != (size_t)l[3]) return 4;
    run(kernels[l[0]], l[1], l[2]);
  }
  rewind(f);
  if (fseek(f, 16, SEEK_SET) || fwrite(m, 1, head[0], f) != (size_t)head[0] || fclose(f)) return 5;
  return 0;
}
`

// Base is where a test's memory begins.
const Base = 0x200000000000

var built struct {
	sync.Mutex
	dir string
	bin map[string]string
}

// Main is TestMain of a package whose tests call Run.
func Main(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// Launch is one of a kernel whose parameter is struct args.
type Launch struct {
	Kernel      string
	Grid, Block int
	Params      []byte
}

// Run runs launches of the kernels of a translation unit, which is on a machine, on memory that
// begins at Base. It checks, too, that the unit is CUDA's. Launches fail with an error.
func Run(t *testing.T, unit string, on func(machine string) string, memory []byte, ls []Launch) error {
	t.Helper()
	bin := build(t, unit, on, ls)
	var f bytes.Buffer
	binary.Write(&f, binary.LittleEndian, []int64{int64(len(memory)), int64(len(ls))})
	f.Write(memory)
	for i, l := range ls {
		binary.Write(&f, binary.LittleEndian, []int64{int64(i), int64(l.Grid), int64(l.Block), int64(len(l.Params))})
		f.Write(l.Params)
	}
	name := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(name, f.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin, name).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", unit, err, out)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	copy(memory, got[16:])
	return nil
}

// build compiles a unit with these kernels for the host.
func build(t *testing.T, unit string, on func(machine string) string, ls []Launch) string {
	t.Helper()
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no C++ compiler")
	}
	built.Lock()
	defer built.Unlock()
	var calls strings.Builder
	for i, l := range ls {
		fmt.Fprintf(&calls, "static void call%d() { %s(given); }\n", i, l.Kernel)
	}
	calls.WriteString("static void (*const kernels[])() = {")
	for i := range ls {
		fmt.Fprintf(&calls, "call%d, ", i)
	}
	calls.WriteString("};\n")
	src := on(source) + fmt.Sprintf(host, calls.String(), int64(Base), int64(Base))
	if built.bin == nil {
		built.bin = map[string]string{}
		if built.dir, err = os.MkdirTemp("", "machine"); err != nil {
			t.Fatal(err)
		}
	}
	if b, ok := built.bin[src]; ok {
		return b
	}
	clang.Check(t, unit, on(machine.Source))
	bin := filepath.Join(built.dir, fmt.Sprintf("unit%d", len(built.bin)))
	if err := os.WriteFile(bin+".cpp", []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	// Threads change stacks by longjmp, which compilers that harden by default take for a fault.
	out, err := exec.Command(gxx, "-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused", "-o", bin, bin+".cpp").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", unit, err, out)
	}
	if len(out) > 0 {
		t.Logf("%s", out)
	}
	built.bin[src] = bin
	return bin
}
