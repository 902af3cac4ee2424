package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// For the same graph the library and the command make the same program, with every named
// pipeline; arena is another name of order-only.
func TestLibraryAndToolAgree(t *testing.T) {
	arena, err := standard.Table().Parse("arena")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := standard.Table().Parse("order-only"); err != nil || p.String() != arena.String() {
		t.Errorf("arena is %v, order-only %v, %v", arena, p, err)
	}
	for _, dir := range []string{"../../../testdata/graphs", "../../../../shared/graphs"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.graph.json.gz"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Logf("%s holds no graphs here", dir)
		}
		for _, path := range files {
			name := strings.TrimSuffix(filepath.Base(path), ".graph.json.gz")
			if testing.Short() && !strings.HasPrefix(name, "tiny") {
				continue
			}
			if dir != "../../../testdata/graphs" && sameFile(t, path, filepath.Join("../../../testdata/graphs", filepath.Base(path))) {
				continue
			}
			t.Run(name, func(t *testing.T) { agree(t, path) })
		}
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	return err == nil && string(x) == string(y)
}

// compileTwice is the size, in nodes, up to which agree compiles for the library and for the
// command. Of larger graphs it shows that both ask for the same, and that the command prints
// what it is given, for which a short pipeline will do: that equal questions have equal answers
// is what TestSameBytesInProcesses and the repeated runs of package passes show.
const compileTwice = 500

// agree compiles a file both ways.
func agree(t *testing.T, path string) {
	f, err := fx.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in, err := f.Import()
	if err != nil {
		t.Fatal(err)
	}
	text := in.Module.String()
	small := len(in.Module.Funcs()[0].Order()) <= compileTwice
	for _, c := range []struct {
		pipeline string
		device   compile.Device
	}{{"default", compile.Host}, {"cuda", compile.GPU}, {"order-only", compile.Host}} {
		p, err := standard.Table().Parse(c.pipeline)
		if err != nil {
			t.Fatal(err)
		}
		runs := p
		if !small {
			if runs, err = standard.Table().Parse("canonicalize"); err != nil {
				t.Fatal(err)
			}
		}
		r, err := compile.Compile(context.Background(), in.Module, compile.Target{Device: c.device}, compile.Options{Pipeline: runs})
		if err != nil {
			t.Fatal(err)
		}
		prog, err := r.Funcs[0].Program()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		tl := tool{out: &out, err: io.Discard, env: func(string) string { return "" }}
		asked := 0
		tl.compiler = func(ctx context.Context, m *ir.Module, target compile.Target, o compile.Options) (*compile.Result, error) {
			asked++
			if small {
				return compile.Compile(ctx, m, target, o)
			}
			if !reflect.DeepEqual(target, compile.Target{Device: c.device, Costs: cost.Default()}) {
				t.Errorf("%s: the command compiles for %+v", c.pipeline, target)
			}
			if o.Pipeline.String() != p.String() {
				t.Errorf("%s: the command runs %s", c.pipeline, o.Pipeline)
			}
			g := o.Manager
			g.Input, g.Validate, g.Progress, g.Clock = "", 0, nil, nil // have no part in the result
			if !reflect.DeepEqual(g, passes.Manager{}) {
				t.Errorf("%s: the command's manager is %+v", c.pipeline, g)
			}
			if m.String() != text {
				t.Errorf("%s: the command compiles another module", c.pipeline)
			}
			return r, nil
		}
		if code := run(context.Background(), []string{"lower", "-passes=" + c.pipeline, path}, tl); code != exitOK || asked != 1 {
			t.Fatalf("%s: exit %d after %d compilations", c.pipeline, code, asked)
		}
		if out.String() != string(prog.AppendText(nil)) {
			t.Errorf("%s: the command's program is not the library's, whose digest is %s", c.pipeline, prog.Digest())
		}
	}
}
