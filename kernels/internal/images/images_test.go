package images

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/seed-ee968945/concert/kernels"
)

const root = "../.."

// TestDrift compiles every source and compares with what is checked in, byte by byte.
func TestDrift(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling all kernels takes half a minute")
	}
	if _, err := exec.LookPath(Clang); err != nil {
		t.Skipf("the pinned compiler %s is not installed (Debian package clang-19): %v", Clang, err)
	}
	m, err := kernels.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	if v, err := Version(Clang); err != nil || v != m.Clang {
		t.Skipf("this %s is %q (%v), the images were made by %q", Clang, v, err, m.Clang)
	}
	names, _, err := Sources(filepath.Join(root, "src"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, arch := range Archs(name) {
			ptx, err := PTX(Clang, filepath.Join(root, "src"), name, arch)
			if err != nil {
				t.Error(err)
				continue
			}
			im, err := m.Find(name, arch)
			if err != nil || im.Arch != arch {
				t.Errorf("%s for sm_%d is not checked in: run go generate ./kernels", name, arch)
				continue
			}
			if kernels.Hash(ptx) != im.PTX {
				t.Errorf("%s for sm_%d: the source no longer gives the checked-in PTX: run go generate ./kernels", name, arch)
			}
		}
	}
}

// TestManifest holds the manifest against the sources without a compiler.
func TestManifest(t *testing.T) {
	m, err := kernels.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	_, hashes, err := Sources(filepath.Join(root, "src"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m.Sources, hashes); d != "" {
		t.Errorf("sources changed since the images were built: run go generate ./kernels\n%s", d)
	}
	if d := cmp.Diff(m.Flags, Flags); d != "" {
		t.Errorf("flags changed: run go generate ./kernels\n%s", d)
	}
}

func TestParseResources(t *testing.T) {
	got := ParseResources(`ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'barrier' for 'sm_90'
ptxas info    : Function properties for barrier
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 17 registers, used 0 barriers, 8 bytes cumulative stack size, 776 bytes cmem[0]
`)
	want := map[string]kernels.Resource{"barrier": {Registers: 17, SpillBytes: 4, StackBytes: 8}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
