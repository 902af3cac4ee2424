//go:build linux && cgo && (amd64 || arm64)

package cudnn

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/library/librarytest"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// standIn builds the stand-ins of cuDNN and of the driver and opens a library on them.
func standIn(t *testing.T, o Options) (*Library, *librarytest.Driver) {
	t.Helper()
	if *onGPU {
		t.Skip("this process uses the real libraries")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs a C compiler")
	}
	if o.Dir = standInDir; o.Dir == "" {
		o.Dir = t.TempDir()
		for _, l := range [][2]string{{"cudnn.c", "libcudnn.so.9"}, {"cuda.c", "libcuda.so.1"}} {
			out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", filepath.Join(o.Dir, l[1]),
				"-Wl,-soname,"+l[1], filepath.Join("testdata", l[0])).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		standInDir = o.Dir
	}
	o.Preload = []string{filepath.Join(o.Dir, "libcuda.so.1")}
	drv := &librarytest.Driver{}
	l, err := Open(drv, &symm.Rank{Ctx: 42}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		drv.Check(t)
	})
	return l, drv
}

// standInDir is where the process loaded its libraries from: only once can it.
var standInDir string

// TestDescriptors plans calls against a stand-in of the library that checks each
// attribute's type, count and order.
func TestDescriptors(t *testing.T) {
	exact, _ := standIn(t, Options{})
	fast, _ := standIn(t, Options{Fast: true})
	for _, l := range []*Library{exact, fast} {
		fw, bw, _, _, _, _ := hostCases[0].calls(t)
		for _, c := range []*library.Call{fw, bw} {
			c.Workspace, c.WorkspaceBytes = 8192, 1<<20
			if _, err := l.Workspace(c); err != nil {
				t.Fatal(err)
			}
			s, err := l.Plan(c)
			if err != nil {
				t.Fatal(err)
			}
			want := "engine 2" // the stand-in's first engine is not reproducible
			if l == fast {
				want = "engine 1"
			}
			if !strings.Contains(s.String(), want) || !strings.Contains(s.String(), "cudnn 91900 "+c.Op) {
				t.Errorf("%v, want %s", s, want)
			}
			var cmds driver.Commands
			s.AddTo(&cmds)
			if wants := map[string]int{fw.Op: 4 + 5 + 5, bw.Op: 4}[c.Op]; cmds.Len() != wants {
				t.Errorf("%s: %d words, want %d", c.Op, cmds.Len(), wants)
			}
		}
		if len(l.engines) != 2 {
			t.Errorf("%d engines for two problems", len(l.engines))
		}
		bw.WorkspaceBytes = 4096
		if _, err := l.Plan(bw); !errors.Is(err, library.ErrNotServed) {
			t.Errorf("with little workspace: %v", err)
		}
	}
}

// kernels is a driver with any kernel.
type kernels struct{ *librarytest.Driver }

func (kernels) ModuleLoad(driver.Ctx, []byte) (driver.Module, error)            { return 1, nil }
func (kernels) ModuleUnload(driver.Ctx, driver.Module) error                    { return nil }
func (kernels) Function(driver.Ctx, driver.Module, string) (driver.Func, error) { return 1, nil }

// The same for convolutions of two and three dimensions and their gradients: a call of the
// library, with copies before and behind where tensors are otherwise.
func TestConvolutionDescriptors(t *testing.T) {
	bare, _ := standIn(t, Options{})
	l, err := Open(kernels{&librarytest.Driver{}}, &symm.Rank{Ctx: 42}, Options{Dir: standInDir, Compile: func(name, source string, options ...string) ([]byte, error) {
		return []byte(source), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range convCases {
		for i, call := range c.calls(dtype.BF16) {
			k := &library.Call{Op: opConvolution, Attrs: call.attrs, Ins: call.ins[:], Outs: []library.Tensor{call.out}, Workspace: 8192, WorkspaceBytes: 1 << 20}
			need, err := l.Workspace(k)
			if err != nil {
				t.Fatalf("%s/%s: %v", c.name, call.name, err)
			}
			s, err := l.Plan(k)
			if err != nil {
				t.Fatalf("%s/%s: %v", c.name, call.name, err)
			}
			want, words, n := fmt.Sprintf("cudnn 91900 convolution engine 2 workspace %d", need), 4, c.moves[i]
			if n > 0 {
				want += fmt.Sprintf(", %d tensors in another layout", n)
				var launch driver.Commands
				launch.Launch(driver.Main, 1, 1, 1, 0, make([]byte, 23*8))
				words += n * launch.Len()
				if _, err := bare.Plan(k); !errors.Is(err, library.ErrNotServed) {
					t.Errorf("%s/%s without a compiler: %v", c.name, call.name, err)
				}
			}
			var cmds driver.Commands
			if s.AddTo(&cmds); s.String() != want || need < 4096 || need > 4096 != (n > 0) || cmds.Len() != words {
				t.Errorf("%s/%s: %v, %d bytes, %d words, want %s, %d words", c.name, call.name, s, need, cmds.Len(), want, words)
			}
		}
	}
	call := convCases[0].calls(dtype.F64)[0]
	k := &library.Call{Op: opConvolution, Attrs: call.attrs, Ins: call.ins[:], Outs: []library.Tensor{call.out}}
	if _, err := l.Plan(k); !errors.Is(err, library.ErrNotServed) || !strings.Contains(err.Error(), "f64 and f64 to f64") {
		t.Errorf("another type: %v", err)
	}
	call = convCases[0].calls(dtype.BF16)[0]
	k = &library.Call{Op: opConvolution, Attrs: call.attrs, Ins: call.ins[:], Outs: []library.Tensor{call.out}, WorkspaceBytes: 4095}
	if _, err := l.Plan(k); !errors.Is(err, library.ErrNotServed) || !strings.Contains(err.Error(), "needs 4096 bytes of workspace, there are 4095") {
		t.Errorf("little workspace: %v", err)
	}
}

// Steps leave nothing to load: an engine is loaded when its first call is planned.
func TestLoads(t *testing.T) {
	l, drv := standIn(t, Options{})
	fw, bw, _, _, _, _ := hostCases[0].calls(t)
	want := 0
	for i, c := range []*library.Call{fw, bw, fw, bw} {
		c.Workspace, c.WorkspaceBytes = driver.Ptr(8192*(i+1)), 1<<20
		if _, err := l.Workspace(c); err != nil {
			t.Fatal(err)
		}
		if drv.Loads != want {
			t.Errorf("call %d: asking for its workspace has loaded", i)
		}
		if _, err := l.Plan(c); err != nil {
			t.Fatal(err)
		}
		if want = min(want+1, 2); drv.Loads != want || drv.Runs != 0 {
			t.Errorf("call %d: %d loads of %d, %d runs", i, drv.Loads, want, drv.Runs)
		}
	}
}

// TestRefusals holds which errors send a call to the next library.
func TestRefusals(t *testing.T) {
	l, _ := standIn(t, Options{})
	c := hostCases[0]
	c.bias = true // the stand-in knows no such pattern
	fw, _, _, _, _, _ := c.calls(t)
	_, err := l.Plan(fw)
	var e *Error
	if !errors.Is(err, library.ErrNotServed) || !errors.As(err, &e) || e.Text != "no such pattern 0" || e.On != "operation graph" {
		t.Errorf("an unknown pattern: %v", err)
	}
	for _, name := range []string{"bias", "lse"} { // descriptors promise 16 bytes
		fw, bw, _, _, _, _ := c.calls(t)
		k := fw
		if t := &fw.Ins[3]; name == "bias" {
			t.At += 8
		} else {
			k = bw
			bw.Ins[5].At += 4
		}
		if _, err := l.Plan(k); !errors.Is(err, library.ErrNotServed) || !strings.Contains(err.Error(), "no multiple of 16 bytes") {
			t.Errorf("a misaligned %s: %v", name, err)
		}
	}
	if _, err := Open(nil, &symm.Rank{Ctx: 42}, Options{Dir: "/nowhere"}); !errors.As(err, new(*dl.LoadError)) {
		t.Errorf("another folder: %v", err)
	}
	if _, err := Open(nil, &symm.Rank{Ctx: 41}, Options{}); !errors.As(err, &e) || e.Status != 201 {
		t.Errorf("a bad context: %v", err)
	}
	if _, err := Open(fake.New(1), &symm.Rank{}, Options{}); !errors.Is(err, library.ErrUnavailable) {
		t.Errorf("a fake: %v", err)
	}
}

// A step that is released takes what it holds along, and the last one its engine; what
// is planned later is planned anew.
func TestRelease(t *testing.T) {
	l, drv := standIn(t, Options{})
	fw, _, _, _, _, _ := hostCases[0].calls(t)
	plan := func(at driver.Ptr) *step {
		t.Helper()
		fw.Workspace, fw.WorkspaceBytes = at, 1<<20
		s, err := l.Plan(fw)
		if err != nil {
			t.Fatal(err)
		}
		return s.(*step)
	}
	first, second := plan(8192), plan(16384)
	if len(l.engines) != 1 || len(l.steps) != 2 || first.engine != second.engine {
		t.Fatalf("%d engines of %d steps", len(l.engines), len(l.steps))
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if len(l.engines) != 1 || len(l.steps) != 1 || len(first.frees) != 0 || second.engine.low.made == nil {
		t.Errorf("%d engines, %d steps after the first release", len(l.engines), len(l.steps))
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
	if len(l.engines) != 0 || len(l.steps) != 0 || second.engine.low.made != nil {
		t.Errorf("%d engines, %d steps after the last release", len(l.engines), len(l.steps))
	}
	loads := drv.Loads
	if plan(8192); len(l.engines) != 1 || drv.Loads != loads+1 {
		t.Errorf("%d engines, %d loads for a plan made anew", len(l.engines), drv.Loads-loads)
	}
	fw.WorkspaceBytes = 0
	before := len(l.steps)
	if _, err := l.Plan(fw); len(l.steps) != before {
		t.Errorf("a refused call (%v) leaves a step", err)
	}
}
