package fx

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata/*.txtar")

// Each archive of testdata holds graph.json and what importing it gives: want.ir,
// and want.warnings if there are any; or want.err. A graph that imports also
// exports: against its source to itself, and without one to a document that
// imports again.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in testdata: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { golden(t, path) })
	}
}

func golden(t *testing.T, path string) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]string{}
	for _, f := range a.Files {
		in[f.Name] = string(f.Data)
	}
	got := map[string]string{"graph.json": in["graph.json"]}
	f, r, err := importText(in["graph.json"])
	if err != nil {
		got["want.err"] = err.Error() + "\n"
	} else {
		got["want.ir"] = r.Module.String()
		for _, w := range r.Warnings {
			got["want.warnings"] += w.String() + "\n"
		}
	}
	if *update {
		a.Files = nil
		for _, name := range []string{"graph.json", "want.ir", "want.warnings", "want.err"} {
			if text, ok := got[name]; ok {
				a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
			}
		}
		if err := os.WriteFile(path, txtar.Format(a), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(in, got); d != "" {
		t.Errorf("expected (-) and got (+):\n%s", d)
	}
	if err != nil {
		return
	}
	var out bytes.Buffer
	if err := Export(&out, f, r.Func); err != nil {
		t.Fatal(err)
	}
	var have, want any
	if err := json.Unmarshal(out.Bytes(), &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(in["graph.json"]), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("the exported document differs from the traced one:\n%s", d)
	}
	out.Reset()
	err = Export(&out, nil, r.Func)
	if f.Symbols != nil { // only against its source
		if err == nil || !strings.Contains(err.Error(), "no symbolic sizes") {
			t.Errorf("a document without a source has symbolic sizes: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := importText(out.String()); err != nil {
		t.Errorf("the synthesised document does not import: %v\n%s", err, out.String())
	}
}

func importText(text string) (*File, *Result, error) {
	f, err := Read("graph.json", strings.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	r, err := f.Import()
	return f, r, err
}
