package concert

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestContributing: the functions and tests that CONTRIBUTING.md leads to are there.
func TestContributing(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	places := regexp.MustCompile("`([\\w/]+\\.go)`\\s+`(\\w+)`").FindAllStringSubmatch(string(text), -1)
	for _, m := range places {
		code, err := os.ReadFile(m[1])
		if err != nil || !regexp.MustCompile(`(?m)^func (\(.*?\) )?`+m[2]+`\(`).Match(code) {
			t.Errorf("CONTRIBUTING.md leads to %s in %s, which is not there (%v)", m[2], m[1], err)
		}
	}
	tests := regexp.MustCompile("`go test \\./([\\w/]+) -run '(\\w+)").FindAllStringSubmatch(string(text), -1)
	for _, m := range tests {
		files, err := filepath.Glob(m[1] + "/*_test.go")
		found := false
		for _, f := range files {
			code, err := os.ReadFile(f)
			found = found || err == nil && strings.Contains(string(code), "func "+m[2]+"(")
		}
		if err != nil || !found {
			t.Errorf("CONTRIBUTING.md has %s of %s run, which is not there", m[2], m[1])
		}
	}
	if len(places) < 9 || len(tests) < 4 {
		t.Errorf("%d places and %d tests are named", len(places), len(tests))
	}
}

// TestReadme holds README.md to what it promises: its Go lines are those of the
// example, which compiles and runs; its links lead somewhere; and what continuous
// integration runs is its test command.
func TestReadme(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	readme := read("README.md")
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readme, -1) {
		if _, err := os.Stat(link[1]); err != nil && !strings.Contains(link[1], "://") {
			t.Errorf("README.md links to %s, which is not there", link[1])
		}
	}
	_, rest, ok := strings.Cut(readme, "```go\n")
	code, _, _ := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("README.md shows no Go")
	}
	example := strings.Join(strings.Fields(read("example_test.go")), " ")
	for line := range strings.Lines(code) {
		if line = strings.Join(strings.Fields(line), " "); !strings.Contains(example, line) {
			t.Errorf("README.md has the line %q, the example has not", line)
		}
	}
	_, rest, _ = strings.Cut(readme, "Run all tests:")
	command := strings.Split(rest, "```")[1]
	command = strings.TrimSpace(command)
	test, all, _ := strings.Cut(command, " ")
	verb, all, _ := strings.Cut(all, " ")
	// Packages named before all are an order; a flag would make it another command.
	if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(test+" "+verb) + `( \./[\w/]+)* ` + regexp.QuoteMeta(all) + `$`).MatchString(read(".ci/run")) {
		t.Errorf("README.md says %q runs all tests; .ci/run does not run it", command)
	}
}

// TestGuide: the code of the guide for integrating compilers stands in the module that
// TestOutside builds and runs.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("docs/integrate.md")
	if err != nil {
		t.Fatal(err)
	}
	code := ""
	for _, path := range []string{"outside.go", "outside_test.go", "tool/main.go"} {
		file, err := os.ReadFile(filepath.Join("testdata/outside", path))
		if err != nil {
			t.Fatal(err)
		}
		code += string(file)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, b := range blocks {
		if !strings.Contains(code, b[1]) {
			t.Errorf("docs/integrate.md shows what testdata/outside does not have:\n%s", b[1])
		}
	}
	if len(blocks) < 10 {
		t.Errorf("%d blocks of Go", len(blocks))
	}
}

// TestNamedFiles: the files that comments name are there, in the same folder or by a path from the root.
func TestNamedFiles(t *testing.T) {
	named := regexp.MustCompile(`(?:^|[^<\w/.*-])((?:[\w-]+/)*[\w-]+\.(?:go|cu|cuh|h))\b`)
	made := []string{"k.cu", "pkg.cu", "kernels0.cu", "want.cu"} // by programs, or not ours
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, c := range f.Comments {
			for _, m := range named.FindAllStringSubmatch(c.Text(), -1) {
				_, here := os.Stat(filepath.Join(filepath.Dir(path), m[1]))
				_, root := os.Stat(m[1])
				if here != nil && (root != nil || !strings.Contains(m[1], "/")) && !slices.Contains(made, m[1]) {
					t.Errorf("a comment of %s names %s, which is not there", path, m[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
