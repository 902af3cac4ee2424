package fx

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/seed-ee968945/concert/ir"
)

// FuzzRead feeds arbitrary documents to the reader, the importer and both
// exporters. What is read is valid JSON; what imports also exports, and a
// document written from the IR reads back.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data)
	}
	for _, name := range []string{"tiny_tp2.fw", "tiny_moe2.bw"} {
		packed, err := os.ReadFile("../../testdata/graphs/" + name + ".graph.json.gz")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
		f.Add(packed[:len(packed)/2])
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		g, err := read("fuzz", bytes.NewReader(doc), 1<<20)
		if err != nil {
			_ = err.Error()
			return
		}
		if len(doc) > 0 && doc[0] != 0x1f && !json.Valid(doc) {
			t.Fatal("accepted invalid JSON")
		}
		r, err := g.Import()
		if err != nil {
			_ = err.Error()
			return
		}
		var out bytes.Buffer
		if err := Export(&out, g, r.Func); err != nil {
			t.Fatalf("imported but not exported: %v", err)
		}
		if !json.Valid(out.Bytes()) {
			t.Fatalf("exported invalid JSON: %s", out.Bytes())
		}
		out.Reset()
		if err := Export(&out, nil, r.Func); err != nil {
			return
		}
		again, err := Read("again", &out)
		if err != nil {
			t.Fatalf("a synthesised document does not read: %v", err)
		}
		if _, err := again.Import(); err != nil && !hasCall(r.Func) {
			t.Fatalf("a synthesised document does not import: %v\n%s", err, r.Module)
		}
	})
}

func hasCall(f *ir.Func) bool {
	for _, n := range f.Order() {
		if n.Op() == ir.OpCall {
			return true
		}
	}
	return false
}

// FuzzPython feeds arbitrary text to the parser of operator arguments.
func FuzzPython(f *testing.F) {
	for _, s := range []string{"()", "(x, [1, -2.5e3], None)", "{'dtype': torch.float32, 'device': device(type='cuda', index=0)}",
		"((a, None),)", "(slice(None, 3, None), ..., '\\'')", "(<built-in function add>, 1j)", "-inf", "[[[["} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := parsePy(s); err != nil && (err.at < 0 || err.at > len(s)) {
			t.Fatalf("error at %d of a text of %d bytes", err.at, len(s))
		}
	})
}
