package nvrtc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-ee968945/concert/cuda/dl"
)

// fakeCompiler gives its own source back.
type fakeCompiler struct {
	v     string
	calls atomic.Int32
	fail  bool
}

func (f *fakeCompiler) version() string { return f.v }
func (f *fakeCompiler) compile(name, source string, options []string) ([]byte, error) {
	f.calls.Add(1)
	if f.fail {
		log := strings.Repeat(name+".cu(1): warning #177-D: variable \"j\" was declared but never referenced\n  line one\n       ^\n\n", 100) +
			name + `.cu(2): error: identifier "y" is undefined`
		return nil, compileError(name, source, 6, "compilation failed", log)
	}
	return []byte(source + strings.Join(options, " ")), nil
}

func compile(t *testing.T, c *Compiler, source string, options ...string) (string, bool) {
	t.Helper()
	b, cached, err := c.Compile("unit", source, options)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), cached
}

func TestCache(t *testing.T) {
	dir := t.TempDir()
	f := &fakeCompiler{v: "13.0"}
	c := newCompiler(f, dir)
	if _, cached := compile(t, c, "a", "-x"); cached {
		t.Error("an empty cache had it")
	}
	if got, cached := compile(t, c, "a", "-x"); !cached || got != "a-x" {
		t.Errorf("from memory: %q %v", got, cached)
	}
	if got, cached := compile(t, newCompiler(f, dir), "a", "-x"); !cached || got != "a-x" {
		t.Errorf("from the folder: %q %v", got, cached)
	}
	for _, other := range []struct{ source, option, version string }{{"b", "-x", "13.0"}, {"a", "-y", "13.0"}, {"a", "-x", "13.1"}} {
		if _, cached := compile(t, newCompiler(&fakeCompiler{v: other.version}, dir), other.source, other.option); cached {
			t.Errorf("%v was taken for another", other)
		}
	}
	if got := f.calls.Load(); got != 1 {
		t.Errorf("compiled %d times", got)
	}
}

// TestCorruptFiles damages the cached file in several ways; each time the source is
// compiled anew and the file repaired.
func TestCorruptFiles(t *testing.T) {
	dir := t.TempDir()
	f := &fakeCompiler{v: "13.0"}
	compile(t, newCompiler(f, dir), "source", "-x")
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.cubin"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	for what, b := range map[string][]byte{"empty": nil, "cut": whole[:len(whole)-1], "flipped": flipped, "foreign": []byte("x")} {
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, cached := compile(t, newCompiler(f, dir), "source", "-x"); cached || got != "source-x" {
			t.Errorf("%s: %q, cached %v", what, got, cached)
		}
		if now, _ := os.ReadFile(files[0]); !bytes.Equal(now, whole) {
			t.Errorf("%s: not repaired", what)
		}
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", ".new-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOneCompiles(t *testing.T) {
	f := &fakeCompiler{v: "13.0"}
	c := newCompiler(f, "")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { compile(t, c, "a") })
	}
	wg.Wait()
	if got := f.calls.Load(); got != 1 {
		t.Errorf("compiled %d times", got)
	}
}

func TestUnwritableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := compile(t, newCompiler(&fakeCompiler{}, file), "a"); got != "a" {
		t.Errorf("%q", got)
	}
}

func TestCompileError(t *testing.T) {
	c := newCompiler(&fakeCompiler{fail: true}, t.TempDir())
	_, _, err := c.Compile("unit", "line one\nx = y;\n", nil)
	var ce *CompileError
	if !errors.As(err, &ce) || !strings.Contains(err.Error(), "unit.cu(2)") || !strings.Contains(err.Error(), "    2 | x = y;") || strings.Contains(err.Error(), "warning") {
		t.Errorf("%v", err)
	}
}

func TestOpenMissing(t *testing.T) {
	_, err := Open("/nonexistent/libnvrtc.so", "")
	var le *dl.LoadError
	if !errors.Is(err, ErrNoCompiler) || !errors.As(err, &le) {
		t.Errorf("%v", err)
	}
}

// What is in memory is bounded: images that were asked for longest ago go first, and come
// from the folder, if there is one, or are compiled anew. Refusals count as well, and one
// image beyond the bound is kept until the next.
func TestBounded(t *testing.T) {
	f := &fakeCompiler{v: "13.0"}
	c := newCompiler(f, "")
	c.most = 40 << 10 // four entries of almost no image
	for _, s := range []string{"a", "b", "c", "d", "a", "e"} {
		compile(t, c, s)
	}
	for s, kept := range map[string]bool{"a": true, "c": true, "d": true, "e": true} {
		if _, cached := compile(t, c, s); cached != kept {
			t.Errorf("%s: kept %v", s, cached)
		}
	}
	if _, cached := compile(t, c, "b"); cached {
		t.Error("the one asked for longest ago was kept")
	}
	compile(t, c, strings.Repeat("x", 1<<20))
	if len(c.done) != 1 || c.bytes <= c.most {
		t.Errorf("%d images of %d bytes beside a large one", len(c.done)-1, c.bytes)
	}
	f.fail = true
	for i := range 100 {
		if _, _, err := c.Compile("unit", strings.Repeat("y", i), nil); err == nil {
			t.Fatal("it was compiled")
		}
	}
	total := 0
	for _, e := range c.done {
		total += e.size()
	}
	if total != c.bytes || c.bytes > c.most {
		t.Errorf("%d bytes are counted, %d are there, %d may be", c.bytes, total, c.most)
	}
	f.fail = false

	// Many goroutines and few images: each gets what it asked for, and no more are kept.
	dir := newCompiler(f, t.TempDir())
	dir.most = 40 << 10
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				s := strings.Repeat("z", 1+(i*7+g)%23)
				if got, _, err := dir.Compile("unit", s, nil); err != nil || string(got) != s {
					t.Errorf("%q instead of %q: %v", got, s, err)
				}
			}
		})
	}
	wg.Wait()
	if dir.bytes > dir.most || len(dir.done) > 4 {
		t.Errorf("%d bytes in %d images", dir.bytes, len(dir.done))
	}
	before := f.calls.Load()
	if _, cached := compile(t, dir, "zz"); !cached || f.calls.Load() != before {
		t.Error("what went from memory was not in the folder")
	}
}
