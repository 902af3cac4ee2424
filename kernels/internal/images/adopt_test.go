package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/seed-ee968945/concert/kernels"
)

const (
	adoptPTX = ".visible .entry one(\n.visible .entry two(\n"
	adoptLog = `ptxas info    : Compiling entry function 'one' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas info    : Compiling entry function 'two' for 'sm_90'
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
`
)

// adoptDirs makes a folder of a package with images a (with machine code) and b (without),
// and one with machine code of b.
func adoptDirs(t *testing.T) (dir, from string) {
	t.Helper()
	dir, from = t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := &kernels.Manifest{Ptxas: "build 13", Resources: map[string]kernels.Resource{"old": {Registers: 1}}}
	for _, name := range []string{"a", "b"} {
		ptx := []byte(name + adoptPTX)
		im := kernels.Image{Name: name, Arch: 80, PTX: kernels.Hash(ptx)}
		if name == "a" {
			im.Cubin = "of a"
		}
		m.Images = append(m.Images, im)
		if err := writeGzip(filepath.Join(dir, "images", name+".sm_80.ptx.gz"), ptx); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"b.ptx": "b" + adoptPTX, "b.cubin": "code", "b.log": adoptLog, "ptxas.txt": "ptxas: tool\nbuild 13\n"} {
		put(t, from, name, text)
	}
	return dir, from
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAdopt takes machine code of one of two images: hash, file and resources are those of
// the new code, all else stays.
func TestAdopt(t *testing.T) {
	dir, from := adoptDirs(t)
	names, err := Adopt(dir, from)
	if err != nil || len(names) != 1 || names[0] != "b" {
		t.Fatalf("took %v: %v", names, err)
	}
	m, err := readManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]kernels.Resource{"old": {Registers: 1}, "one": {Registers: 12}, "two": {Registers: 32, SpillBytes: 4, StackBytes: 8}}
	if d := cmp.Diff(want, m.Resources); d != "" {
		t.Error(d)
	}
	if a, b := m.Images[0].Cubin, m.Images[1].Cubin; a != "of a" || b != kernels.Hash([]byte("code")) {
		t.Errorf("hashes %q and %q", a, b)
	}
	if b, err := readGzip(filepath.Join(dir, "images", "b.sm_90.cubin.gz")); err != nil || string(b) != "code" {
		t.Errorf("machine code %q, %v", b, err)
	}
}

// TestAdoptRefuses checks that nothing is taken, and the manifest stays, where machine code
// does not belong to the checked-in PTX or to the other images.
func TestAdoptRefuses(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"another PTX", "b.ptx", "c" + adoptPTX, "another PTX"},
		{"a log of other kernels", "b.log", "", "says nothing of one"},
		{"another ptxas", "ptxas.txt", "build 12", "assemble all with one"},
		{"no log", "b.log", "-", "incomplete"},
		{"no machine code", "b.cubin", "-", "of no image"},
		{"no version", "ptxas.txt", "-", "ptxas.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, from := adoptDirs(t)
			if c.text == "-" {
				if err := os.Remove(filepath.Join(from, c.file)); err != nil {
					t.Fatal(err)
				}
			} else {
				put(t, from, c.file, c.text)
			}
			manifest := filepath.Join(dir, "images", "manifest.json")
			before, err := os.ReadFile(manifest)
			if err != nil {
				t.Fatal(err)
			}
			if names, err := Adopt(dir, from); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("took %v: %v", names, err)
			}
			if after, err := os.ReadFile(manifest); err != nil || string(after) != string(before) {
				t.Errorf("the manifest changed: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "images", "b.sm_90.cubin.gz")); err == nil {
				t.Error("machine code was written")
			}
		})
	}
}
