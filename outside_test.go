package concert

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A module outside of the tree uses concert as its own compiler would: its tests pass, its
// tool has its pass, and all of it is short.
func TestOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module of its own")
	}
	const dir = "testdata/outside"
	lines := 0
	for _, pattern := range []string{"*.go", "*/*.go"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines += strings.Count(string(text), "\n")
		}
	}
	if lines == 0 || lines >= 250 {
		t.Errorf("%d lines of Go, fewer than 250 are to do", lines)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(t.TempDir(), "go.work")
	text := fmt.Sprintf("go 1.26.0\nuse (\n%q\n%q\n)\n", root, filepath.Join(root, dir))
	if err := os.WriteFile(work, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	outside := func(work, stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK="+work)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	outside("off", "", "list", "-mod=readonly", "-deps", "-test", "./...") // what its go.mod names is enough
	// A workspace takes concert as what has been compiled here, which a replacement compiles again.
	outside(work, "", "test", "./...")
	const twice = `func @f(%a: f32[4]) -> (f32[4]) {
  %x = call %a {target="mine"} : f32[4] ms 1
  %y = call %a {target="mine"} : f32[4] ms 1
  %s = add %x, %y : f32[4] ms 1
  return %s
}
`
	if got := outside(work, "world 1\n"+twice, "run", "./tool", "opt", "-passes=share-calls", "-"); !strings.Contains(got, "add %x, %x ") {
		t.Errorf("the tool printed\n%s", got)
	}
}
