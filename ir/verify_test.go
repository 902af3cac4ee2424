package ir

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/attr"
)

// TestVerify reads testdata/verify.txtar: each file is a broken module named
// after the rule it breaks; the lines of its comment block ("// want: ...") are
// the findings, position included. Every rule has at least one.
func TestVerify(t *testing.T) {
	data, err := os.ReadFile("testdata/verify.txtar")
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	for _, f := range txtar.Parse(data).Files {
		t.Run(f.Name, func(t *testing.T) {
			rule, _, _ := strings.Cut(f.Name, "/")
			covered[rule] = true
			text := string(f.Data)
			var want []string
			for _, line := range strings.Split(text, "\n") {
				if w, ok := strings.CutPrefix(line, "// want: "); ok {
					want = append(want, w)
				}
			}
			m, err := Parse("t.ir", text)
			if err == nil {
				err = m.Verify()
			}
			if err == nil {
				t.Fatal("accepted")
			}
			var got []string
			for _, line := range strings.Split(err.Error(), "\n") {
				if strings.HasPrefix(line, "t.ir") || strings.HasPrefix(line, "error") {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("findings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !strings.Contains(err.Error(), "["+rule+"]") {
				t.Errorf("no finding of rule %s", rule)
			}
		})
	}
	for _, r := range Rules() {
		// The parser cannot produce a node without a proper name.
		if !covered[r.Name] && r.Name != "name" {
			t.Errorf("rule %s has no broken input", r.Name)
		}
		if r.Doc == "" {
			t.Errorf("rule %s has no doc", r.Name)
		}
	}
}

func TestVerifyName(t *testing.T) {
	m := NewModule(1)
	f := m.AddFunc("f")
	f.Append(NodeSpec{Op: OpFull, Name: "a\nb", Results: []Type{Tensor(F32, 2)}, Attrs: attr.Make(attr.Attr{Key: "value", Val: attr.Float(1)})})
	f.Append(NodeSpec{Op: OpReturn})
	const want = `@f:1:11: error[name]: "a\nb" is not a name: want printable text of one line
    1 | %"a\nb" = full {value=1.0} : f32[2]
      |           ^~~~`
	if err := m.Verify(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
