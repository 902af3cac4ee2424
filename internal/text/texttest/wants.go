package texttest

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Wants compares what got gives for the files of an archive with the files NAME.want behind them, or writes them anew.
func Wants(t *testing.T, path string, update bool, got func(name, text string) string) {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	var files []txtar.File
	for _, f := range a.Files {
		if name, ok := strings.CutSuffix(f.Name, ".want"); ok {
			want[name] = string(f.Data)
		} else {
			files = append(files, f)
		}
	}
	a.Files = nil
	for _, f := range files {
		text := got(f.Name, string(f.Data))
		if text != want[f.Name] && !update {
			t.Errorf("%s:\n%s\nwant\n%s", f.Name, text, want[f.Name])
		}
		a.Files = append(a.Files, f, txtar.File{Name: f.Name + ".want", Data: []byte(text)})
	}
	if update {
		if err := os.WriteFile(path, txtar.Format(a), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
