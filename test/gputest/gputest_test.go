package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a test binary as the runner sees one: it lists its tests, prints what a
// real one prints, and TestDies takes the process down.
const fake = `#!/bin/sh
case "$1" in
-test.list=*) printf 'TestGood\nTestBad\nTestDies\nTestAfter\nTestSlow\nBenchmarkX\nok\n'; exit 0;;
esac
for a in "$@"; do case "$a" in -test.run=*) run=$a;; esac; done
S=$(printf '\026')
case $run in *TestGood*) printf "$S=== RUN   TestGood\n$S=== RUN   TestGood/a\n$S=== RUN   TestGood/b\n    x_test.go:7: needs two GPUs\n$S    --- PASS: TestGood/a (0.00s)\n$S    --- SKIP: TestGood/b (0.00s)\n$S--- PASS: TestGood (1.50s)\n";; esac
case $run in *TestBad*) printf "$S=== RUN   TestBad\n$S=== RUN   TestBad/c\n$S=== PAUSE TestBad/c\n$S=== RUN   TestBad/d\n$S=== PAUSE TestBad/d\n$S=== CONT  TestBad/c\n    x_test.go:9: got 1, want 2\n$S=== CONT  TestBad/d\n    x_test.go:9: in order\n$S=== NAME  TestBad\n$S    --- FAIL: TestBad/c (0.00s)\n$S    --- PASS: TestBad/d (0.00s)\n$S--- FAIL: TestBad (0.25s)\n";; esac
case $run in *TestDies*) printf "$S=== RUN   TestDies\nSIGSEGV: segmentation violation\n"; exit 2;; esac
case $run in *TestAfter*) printf "$S=== RUN   TestAfter\n    x_test.go:3: no device\n$S--- SKIP: TestAfter (0.00s)\n";; esac
case $run in *TestSlow*) printf "$S=== RUN   TestSlow\n"; exec sleep 3600;; esac
`

func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, s := range suites {
		text := "#!/bin/sh\n"
		if s.name == "cuda" {
			text = fake
		}
		if err := os.WriteFile(filepath.Join(dir, s.name+".test"), []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, s.dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "COMMIT"), []byte("0123abcd\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRun runs a suite with a test that dies and one that hangs, in two calls.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell")
	}
	dir, out := home(t), t.TempDir()
	call := func(match string) *record {
		rec, err := openRecord(filepath.Join(out, "record.json"), dir)
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{home: dir, out: out, match: regexp.MustCompile(match), each: time.Minute, end: time.Now().Add(time.Hour), record: rec, log: t.Output(),
			after: func(test string, f func()) func() bool {
				if test == "TestSlow" {
					f()
				}
				return func() bool { return true }
			}}
		if err := r.all(t.Context()); err != nil {
			t.Fatal(err)
		}
		return rec
	}
	if rec := call("cuda/Test(Good|Bad)"); len(rec.Results) != 2 || rec.status() != 1 {
		t.Fatalf("first call: %+v", rec)
	}
	rec := call("")
	for i := range rec.Results {
		if rec.Results[i].Test == "TestDies" || rec.Results[i].Test == "TestSlow" {
			rec.Results[i].Seconds = 0
		}
	}
	want := []result{
		{Suite: "cuda", Test: "TestGood", Outcome: passed, Seconds: 1.5, Cases: 1, Skipped: []string{"TestGood/b: needs two GPUs"}},
		{Suite: "cuda", Test: "TestBad", Outcome: failed, Seconds: 0.25, Cases: 1, Failed: []string{"TestBad/c"}, Reason: "    x_test.go:9: got 1, want 2"},
		{Suite: "cuda", Test: "TestDies", Outcome: failed, Reason: "SIGSEGV: segmentation violation\nits process ended: exit status 2"},
		{Suite: "cuda", Test: "TestAfter", Outcome: skipped, Reason: "no device"},
		{Suite: "cuda", Test: "TestSlow", Outcome: failed, Reason: "took longer than 1m0s"},
	}
	if d := cmp.Diff(want, rec.Results); d != "" {
		t.Error(d)
	}
	var table strings.Builder
	rec.print(&table)
	for _, line := range []string{"commit 0123abcd", "FAILED cuda/TestBad TestBad/c\n    x_test.go:9: got 1, want 2\n\n", "needs two GPUs\n    cuda/TestGood/b"} {
		if !strings.Contains(table.String(), line) {
			t.Errorf("the table lacks %q:\n%s", line, &table)
		}
	}
}

// TestOtherCommit refuses to go on with the record of other binaries.
func TestOtherCommit(t *testing.T) {
	dir, out := home(t), filepath.Join(t.TempDir(), "record.json")
	rec := &record{Commit: "ffff", path: out}
	if err := rec.write(); err != nil {
		t.Fatal(err)
	}
	if _, err := openRecord(out, dir); err == nil || !strings.Contains(err.Error(), "give another -out") {
		t.Errorf("got %v", err)
	}
}

// TestFindLibraries takes the first of several files and leaves stubs out.
func TestFindLibraries(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a/stubs/libnvrtc.so.13", "b/libnvrtc.so.13", "b/libcudnn.so.9", "c/libnvrtc.so.12", "c/libcublasLt.so.13"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	l := findLibraries(root)
	got := l.flags("nvrtc", "nvrtc", "cudnn", "dir", "nccl", "nccl")
	want := []string{"-nvrtc=" + root + "/b/libnvrtc.so.13", "-preload=" + root + "/c/libcublasLt.so.13," + root + "/b/libnvrtc.so.13", "-dir=" + root + "/b"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
