package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/seed-ee968945/concert/kernels"
)

const root = "../.."

// envNeedCompiler is set where the pinned compiler must be there, as in CI: then TestDrift
// fails where it would be skipped.
const envNeedCompiler = "CONCERT_NEED_CLANG"

// envQuarter is 0 to 3 in CI where no recent commit touched sources or images: TestDrift then
// compiles that quarter of them.
const envQuarter = "CONCERT_IMAGES_QUARTER"

// TestDrift compiles every source and compares with what is checked in, byte by byte. A
// compiler of another build counts as the pinned one if its bytes are the same.
func TestDrift(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling all kernels takes half a minute")
	}
	skip := t.Skipf
	if os.Getenv(envNeedCompiler) != "" {
		skip = t.Fatalf
	}
	if _, err := exec.LookPath(Clang); err != nil {
		skip("the pinned compiler %s is not installed (Debian package clang-19): %v", Clang, err)
	}
	m, err := kernels.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	version, err := Version(Clang)
	if err != nil {
		t.Fatal(err)
	}
	names, _, err := Sources(filepath.Join(root, "src"))
	if err != nil {
		t.Fatal(err)
	}
	if q := os.Getenv(envQuarter); q != "" {
		n, err := strconv.Atoi(q)
		if err != nil || n < 0 || n > 3 {
			t.Fatalf("%s=%q, want 0 to 3", envQuarter, q)
		}
		names = quarter(names, n)
		t.Logf("quarter %d: %s", n, strings.Join(names, ", "))
	}
	drift, err := drifted(m, filepath.Join(root, "src"), names)
	if err != nil {
		t.Fatal(err)
	}
	if len(drift) > 0 && version != m.Clang {
		skip("this %s is %q, the images were made by %q, and its PTX differs: %s", Clang, version, m.Clang, strings.Join(drift, ", "))
	}
	for _, name := range drift {
		t.Errorf("%s: the source does not give the checked-in PTX: run go generate ./kernels", name)
	}
}

// quarter is every fourth name from the nth on.
func quarter(names []string, n int) (out []string) {
	for i := n; i < len(names); i += 4 {
		out = append(out, names[i])
	}
	return out
}

// TestQuarters: the quarters together are all sources.
func TestQuarters(t *testing.T) {
	names, _, err := Sources(filepath.Join(root, "src"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for n := range 4 {
		all = append(all, quarter(names, n)...)
	}
	slices.Sort(all)
	if d := cmp.Diff(names, all); d != "" {
		t.Error(d)
	}
}

// drifted compiles sources of folder src, several at a time, and lists those whose PTX
// is not the one of the manifest.
func drifted(m *kernels.Manifest, src string, names []string) (drift []string, err error) {
	type job struct {
		name string
		ptx  []byte
		err  error
	}
	var jobs []*job
	var wg sync.WaitGroup
	turn := make(chan bool, runtime.NumCPU())
	for _, name := range names {
		j := &job{name: name}
		jobs = append(jobs, j)
		wg.Go(func() {
			turn <- true
			j.ptx, j.err = PTX(Clang, src, name)
			<-turn
		})
	}
	wg.Wait()
	for _, j := range jobs {
		if j.err != nil {
			return nil, j.err
		}
		if im, err := m.Find(j.name, Arch(j.name)); err != nil || kernels.Hash(j.ptx) != im.PTX {
			drift = append(drift, j.name)
		}
	}
	return drift, nil
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
