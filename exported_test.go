package concert

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestErrorsAreSaid: what the public packages export and may fail says how in its comment.
// Methods of an interface leave that to it, and WriteTo fails as its writer does.
func TestErrorsAreSaid(t *testing.T) {
	says := regexp.MustCompile(`(?i)\berrors?\b|\bfails?\b|refuse|reports?\b|reject|illegal|says (why|what)|implements|Err[A-Z]|Error\b`)
	for _, dir := range []string{"ir", "ir/fx", "ir/stablehlo", "ir/stablehlo/export", "ir/hlo", "passes", "compile", "program", "runtime", "cost", "sim", "interp", "equiv", "lower", "lower/proof"} {
		fset := token.NewFileSet()
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !fn.Name.IsExported() || !exportedReceiver(fn) || !mayFail(fn) || fn.Name.Name == "WriteTo" || fn.Name.Name == "Unwrap" {
					continue
				}
				if !says.MatchString(fn.Doc.Text()) {
					t.Errorf("%s: %s may fail; its comment does not say how", fset.Position(fn.Pos()), fn.Name.Name)
				}
			}
		}
	}
}

func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	t := fn.Recv.List[0].Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
	}
	name, ok := t.(*ast.Ident)
	return !ok || name.IsExported()
}

func mayFail(fn *ast.FuncDecl) bool {
	if fn.Type.Results == nil {
		return false
	}
	for _, r := range fn.Type.Results.List {
		if name, ok := r.Type.(*ast.Ident); ok && name.Name == "error" {
			return true
		}
	}
	return false
}
