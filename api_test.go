package concert

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/gcexportdata"
)

var update = flag.Bool("update", false, "accept the public API as it is")

// private are packages that others cannot or need not import.
var private = regexp.MustCompile(`/internal(/|$)|/(cmd/lowerdump|kernels/gen)$|/examples/|/test/|/(sim|prog|library)test$|/rendezvous/loopback$`)

// TestAPI holds the public API against the baseline in testdata/api, which has the exported
// names of each package as the compiler writes them. What users have to change their code for
// fails; -update accepts it, and prints what that is: it belongs into CHANGELOG.md.
func TestAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("asks for the export data of all packages")
	}
	const dir = "testdata/api"
	now := exported(t)
	for path, pkg := range now {
		name := strings.ReplaceAll(strings.TrimPrefix(path, module+"/"), "/", "_")
		file := filepath.Join(dir, name+".gz")
		was, err := baseline(file, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if was == nil {
			was = types.NewPackage(path, pkg.Name())
			if !*update {
				t.Errorf("%s has no baseline; to accept its API as it is: go test . -run TestAPI -update", path)
			}
		}
		diff := apidiff.Changes(was, pkg)
		if *update && len(diff.Changes) > 0 {
			t.Logf("%s\n%s", path, diff)
			if err := accept(file, pkg); err != nil {
				t.Error(err)
			}
			continue
		}
		for _, c := range diff.Changes {
			if !c.Compatible {
				t.Errorf("%s: %s\nto accept it: go test . -run TestAPI -update -v", path, c.Message)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		path := module + "/" + strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".gz"), "_", "/")
		if now[path] != nil {
			continue
		}
		if !*update {
			t.Errorf("%s is gone or private now; to accept that: go test . -run TestAPI -update", path)
		} else if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

// exports are the files with the export data of all packages.
func exports(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...").Output()
	if err != nil {
		t.Fatal(said(err))
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files
}

// said is what a command that failed wrote.
func said(err error) error {
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return errors.New(string(e.Stderr))
	}
	return err
}

// exported are the public packages as the compiler exports them.
func exported(t *testing.T) map[string]*types.Package {
	t.Helper()
	files := exports(t)
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	pkgs := map[string]*types.Package{}
	for path := range files {
		if strings.HasPrefix(path, module+"/") && !private.MatchString(path) {
			pkg, err := from.Import(path)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(pkg.Scope().Names(), token.IsExported) {
				pkgs[path] = pkg
			}
		}
	}
	return pkgs
}

// baseline reads what accept has written.
func baseline(file, path string) (*types.Package, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return gcexportdata.Read(z, token.NewFileSet(), map[string]*types.Package{}, path)
}

// accept writes a package without positions, so that lines that move change nothing.
func accept(file string, pkg *types.Package) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := errors.Join(gcexportdata.Write(z, token.NewFileSet(), pkg), z.Close()); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
