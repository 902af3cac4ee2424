package ir_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/text/texttest"
	"github.com/seed-ee968945/concert/ir"
)

// reference reads the language reference and its grammar.
func reference(t testing.TB) (string, *texttest.Grammar) {
	return texttest.Reference(t, "Module", "../docs/ir.md")
}

// words makes sentences that mean something now and then.
func words() map[string][]string {
	w := map[string][]string{
		"name":   {"r", "tp", "dp", "inc", "x", `"a/b-c"`},
		"value":  {"%x", "%y", "%w", "%x", "%y", "%w", "%x@inc", `%"a/b-c"`},
		"symbol": {"s0", "n"},
		"key":    {"dim", "dims", "target", "effects", "writes", "scalar", "root", "role", "keepdim"},
		"number": {"0", "1", "2", "4", "8", "64", "9223372036854775807"},
		"string": {`"inc"`, `"writes"`, `"alias"`, `"1,3"`, `""`, `"\x00\u00e9"`},
	}
	for _, op := range ir.Ops() {
		w["op"] = append(w["op"], op.Name())
		if op.Info().Reduces {
			w["op"] = append(w["op"], op.Name()+".sum", op.Name()+".avg")
		}
	}
	return w
}

// sentences derives modules, and nodes in a module that declares some names.
func sentences(g *texttest.Grammar, n int) []string {
	rng := rand.New(rand.NewPCG(1, 2))
	var out []string
	for range n {
		out = append(out, g.Sentence(rng, "Module", map[string][]string{"number": {"0", "7", "12345"}}), g.Sentence(rng, "Module", words()))
		body := ""
		for range 4 {
			body += "  " + g.Sentence(rng, "Node", words()) + "\n"
		}
		out = append(out, "world 4\ngroup @tp = [[0, 1], [2, 3]]\ngroup @dp = [[0, 2], [1, 3]]\nsym s0 hint 1 max 2\nsym n hint 2 max 8\n\n"+
			"func @f(%x: f32[4,8], %w: f32[8,4], %y: f32[4,8]) -> () {\n"+body+"  return\n}\n")
	}
	return out
}

// TestSentences: what the grammar derives is a sentence for the recogniser, and the
// parser reads it or says where it is wrong, and why: never because of its form,
// but for what the reference says in prose.
func TestSentences(t *testing.T) {
	_, g := reference(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	g.CheckParser(t, sentences(g, n), outsideGrammar, func(text string) (bool, error) {
		m, err := ir.Parse("sentence.ir", text)
		if err != nil {
			return false, err
		}
		return true, m.Verify()
	})
}

// outsideGrammar lists complaints about form that the grammar does not know.
var outsideGrammar = []string{
	"the size is too large", "the divisor must be positive", "nested too deeply", "expands to more than",
	"expected a cost in milliseconds", "malformed string", "malformed quotes", "of one line", "given twice", "strides go with as many dimensions", "is not a number", "inputs belong in the function's signature", "a list holds integers",
}

// TestGoldenSentences: every text of the IR in the golden files and in the reference
// itself is a sentence, and the reference's whole texts verify.
func TestGoldenSentences(t *testing.T) {
	doc, g := reference(t)
	for _, d := range dtype.All() {
		if err := g.Match("world 1\nfunc @f(%x: " + d.String() + "[2]) -> () {\n}\n"); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
	for _, block := range strings.Split(doc, "```\n") {
		if !strings.HasPrefix(block, "world ") {
			continue
		}
		m, err := ir.Parse("ir.md", block)
		if err == nil {
			err = m.Verify()
		}
		if err == nil {
			err = g.Match(block)
		}
		if err != nil {
			t.Error(err)
		}
	}
	texts, wrong, err := g.MatchFiles("..", func(path string, f txtar.File) (string, bool) {
		s := string(f.Data)
		return s, !strings.Contains(path, "verify") && strings.HasSuffix(f.Name, ".ir") && strings.HasPrefix(s, "world ")
	})
	for _, err := range wrong {
		t.Error(err)
	}
	if err != nil || texts < 500 {
		t.Fatalf("%d texts: %v", texts, err)
	}
}

// FuzzSentences gives the parser's fuzzer sentences to start from.
func FuzzSentences(f *testing.F) {
	_, g := reference(f)
	for _, s := range sentences(g, 20) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ir.Parse("fuzz.ir", text)
		if err != nil {
			return
		}
		printed := m.String()
		if err := g.Match(printed); err != nil {
			t.Fatalf("printed what is not a sentence: %v\n%s", err, printed)
		}
	})
}
