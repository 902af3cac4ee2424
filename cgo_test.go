package concert

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestWithoutCgo type-checks every package as it is built without cgo. What is not of this module
// has the same API in either case: it comes from the export data of the build with cgo.
func TestWithoutCgo(t *testing.T) {
	if testing.Short() {
		t.Skip("asks for the export data of all packages")
	}
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Module", "./...")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(said(err))
	}
	fset := token.NewFileSet()
	files := exports(t)
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	checked := map[string]*types.Package{}
	conf := types.Config{Sizes: types.SizesFor("gc", runtime.GOARCH), Importer: importing(func(path string) (*types.Package, error) {
		if p := checked[path]; p != nil {
			return p, nil
		}
		return from.Import(path)
	})}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; { // what is imported comes first
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			Module          *struct{ Main bool }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		if checked[p.ImportPath], err = conf.Check(p.ImportPath, fset, parsed, nil); err != nil {
			t.Fatalf("without cgo: %v", err)
		}
	}
	if checked[module+"/cuda/driver"] == nil {
		t.Errorf("of %d packages none is cuda/driver, which has files for either case", len(checked))
	}
}

type importing func(path string) (*types.Package, error)

// Import calls the function.
func (f importing) Import(path string) (*types.Package, error) { return f(path) }
