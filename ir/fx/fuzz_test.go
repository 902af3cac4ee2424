package fx

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
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
		checkImported(t, g)
	})
}

// checkImported imports a file; what imports also exports.
func checkImported(t *testing.T, g *File) {
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
}

// FuzzImport edits the fields of well-formed graphs, so that fuzzing reaches past
// the reader: each edit takes four bytes, which choose a node, a field and what
// to put there. Inputs follow the edited arguments.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	var docs [][]byte
	for _, path := range files {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := parseFile("seed", a.Files[0].Data); err == nil {
			docs = append(docs, a.Files[0].Data)
		}
	}
	docs = append(docs, unpack(f, "tiny_moe2.fw"))
	for i := range docs {
		f.Add(uint8(i), []byte{}, "(x, 1)")
		f.Add(uint8(i), []byte{1, 0, 0, 0, 2, 3, 4, 5, 3, 6, 7, 8}, "(x, [-1], True)")
		f.Add(uint8(i), []byte{2, 8, 1, 0, 3, 8, 2, 5, 4, 8, 0, 1}, "{'dim': 1}")
	}
	f.Fuzz(func(t *testing.T, which uint8, edits []byte, text string) {
		g, err := parseFile("fuzz", docs[int(which)%len(docs)])
		if err != nil {
			t.Fatal(err)
		}
		for edits = edits[:min(len(edits), 32)]; len(edits) >= 4; edits = edits[4:] {
			edit(g, edits[:4], text)
		}
		refreshInputs(g)
		checkImported(t, g)
	})
}

// edit changes one field of one node.
func edit(g *File, e []byte, text string) {
	numbers := []int64{0, 1, -1, 2, 3, 4, 8, 7, -2, 1 << 31, 1 << 50, -1 << 63, 1<<63 - 1, 64, 5, 16}
	n := &g.Nodes[int(e[0])%len(g.Nodes)]
	other := &g.Nodes[int(e[2])%len(g.Nodes)]
	num := numbers[int(e[3])%len(numbers)]
	n.raw, n.Out = nil, slices.Clone(n.Out)
	for i, t := range n.Out {
		n.Out[i] = Tensor{Shape: slices.Clone(t.Shape), Stride: slices.Clone(t.Stride), DType: t.DType, Dims: t.Dims, Steps: t.Steps}
	}
	switch e[1] % 16 {
	case 0:
		n.Args = text
	case 1:
		n.Kwargs = text
	case 2:
		n.Target = other.Target
	case 3:
		if len(n.Out) > 0 && len(n.Out[0].Shape) > 0 {
			n.Out[0].Shape[int(e[2])%len(n.Out[0].Shape)] = num
		}
	case 4:
		if len(n.Out) > 0 && len(n.Out[0].Stride) > 0 {
			n.Out[0].Stride[int(e[2])%len(n.Out[0].Stride)] = num
		}
	case 5:
		n.Out = n.Out[:len(n.Out)/2]
	case 6:
		n.Out = append(n.Out, other.Out...)
	case 7:
		if len(n.Out) > 0 {
			n.Out[0].DType = []string{"bool", "float32", "int64", "bfloat16"}[num&3]
		}
	case 8, 9, 10: // another number in the place of the e[2]-th one of the arguments
		places := regexp.MustCompile(`-?\b\d+\b`).FindAllStringIndex(n.Args, -1)
		if len(places) > 0 {
			p := places[int(e[2])%len(places)]
			n.Args = n.Args[:p[0]] + strconv.FormatInt(num, 10) + n.Args[p[1]:]
		}
	case 11:
		n.Kind = other.Kind
	case 12:
		*n, *other = *other, *n
	case 13:
		n.Out = other.Out
	case 14: // another name in the place of the first one
		if p := regexp.MustCompile(`[a-z]\w*`).FindStringIndex(n.Args); p != nil {
			n.Args = n.Args[:p[0]] + other.Name + n.Args[p[1]:]
		}
	case 15:
		n.Args = other.Args
	}
}

// refreshInputs makes each node's inputs the names in its arguments.
func refreshInputs(g *File) {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		n.raw, n.Inputs = nil, []string{}
		for _, s := range []string{n.Args, n.Kwargs} {
			v, err := pytext.Parse(s)
			if err == nil {
				collect(&v, &n.Inputs)
			}
		}
	}
}

func collect(v *pytext.Value, names *[]string) {
	if v.Kind == pytext.Name && !slices.Contains(*names, v.Text) {
		*names = append(*names, v.Text)
	}
	for i := range v.List {
		collect(&v.List[i], names)
	}
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
		if _, err := pytext.Parse(s); err != nil && (err.At < 0 || err.At > len(s)) {
			t.Fatalf("error at %d of a text of %d bytes", err.At, len(s))
		}
	})
}
