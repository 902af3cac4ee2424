package fx

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// Exporting an imported graph in the traced order gives the document back, byte for byte.
func TestExportTraced(t *testing.T) {
	for _, path := range graphFiles(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".graph.json.gz")
		t.Run(name, func(t *testing.T) {
			doc := unpack(t, name)
			f, err := Read(name, bytes.NewReader(doc))
			if err != nil {
				t.Fatal(err)
			}
			r, err := f.Import()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := Export(&out, f, r.Func); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), doc) {
				t.Fatal("the exported document differs from the traced one")
			}
			// The same from the text form, where only names and annotations tell what is what.
			m, err := ir.Parse(name, r.Module.String())
			if err != nil {
				t.Fatal(err)
			}
			out.Reset()
			if err := Export(&out, f, m.Funcs()[0]); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), doc) {
				t.Fatal("the document exported from text differs from the traced one")
			}
		})
	}
}

// Without a source, the document is written from the IR; importing it gives the IR again.
func TestExportSynthesised(t *testing.T) {
	for _, path := range graphFiles(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".graph.json.gz")
		t.Run(name, func(t *testing.T) {
			f, err := ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := f.Import()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := Export(&out, nil, r.Func); err != nil {
				t.Fatal(err)
			}
			g, err := Read("again", &out)
			if err != nil {
				t.Fatal(err)
			}
			s, err := g.Import()
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Warnings) > 0 {
				t.Fatal(s.Warnings[0])
			}
			got, want := strings.Split(s.Module.String(), "\n"), strings.Split(r.Module.String(), "\n")
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					t.Fatalf("line %d is\n%s\nwant\n%s", i+1, got[min(i, len(got)-1)], want[i])
				}
			}
		})
	}
}

// A cost that is not known is a field that is not there, and is not known again when read.
func TestExportWithoutCost(t *testing.T) {
	m, err := ir.Parse("t.ir", `world 2
group @g = [[0, 1]]
func @f(%x: f32[4]) -> (f32[4]) {
  %a = neg %x : f32[4]
  %b = neg %a : f32[4] ms 0.0
  %r = all_reduce.sum %b on @g : async f32[4]
  %w = wait_tensor %r : f32[4]
  return %w
}
`)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Export(&out, nil, m.Funcs()[0]); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), `"ms":`); got != 4 { // x, b, w and the output
		t.Errorf("%d costs:\n%s", got, &out)
	}
	g, err := Read("again", &out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := g.Import()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a": false, "b": true, "r": false} {
		if _, known := r.Func.Lookup(name).Cost(); known != want {
			t.Errorf("%%%s has a cost: %v, want %v", name, known, want)
		}
	}
}
