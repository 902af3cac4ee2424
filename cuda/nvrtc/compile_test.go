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
		log := name + `.cu(2): error: identifier "y" is undefined`
		return nil, &CompileError{Name: name, Code: 6, Text: "compilation failed", Log: log, Lines: linesOf(log, source)}
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
	if !errors.As(err, &ce) || !strings.Contains(err.Error(), "unit.cu(2)") || !strings.Contains(err.Error(), "    2 | x = y;") {
		t.Errorf("%v", err)
	}
}

func TestOpenMissing(t *testing.T) {
	_, err := Open("/nonexistent/libnvrtc.so", "")
	var le *LoadError
	if !errors.Is(err, ErrNoCompiler) || !errors.As(err, &le) {
		t.Errorf("%v", err)
	}
}
