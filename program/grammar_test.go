package program_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/text/texttest"
	"github.com/seed-ee968945/concert/program"
)

// reference reads the language reference and its grammar, which goes on where the
// IR's first part ends.
func reference(t testing.TB) (string, *texttest.Grammar) {
	return texttest.Reference(t, "Program", "../docs/program.md", "../docs/ir.md")
}

const head = `program @p world 2
group @dp = [[0, 1]]
sym n hint 1 max 8
stream @compute
stream @comm on @dp
events 2
arena 1024
buffer %x at 0 size 512
buffer %y at 512 size 512
`

// sentences derives programs, and instructions of a program that declares some names.
func sentences(g *texttest.Grammar, count int) []string {
	rng := rand.New(rand.NewPCG(3, 4))
	words := map[string][]string{
		"name":   {"compute", "comm", "dp", "x", "y", `"a/b"`},
		"word":   {"neg", "fused", "all_gather", "k0", "parameter"},
		"symbol": {"n", "n0"},
		"key":    {"kernel", "sizes", "blocks", "block", "grid", "shared", "source", "flags", "dim"},
		"number": {"0", "1", "2", "4", "512", "9223372036854775807"},
		"string": {`"k0"`, `"n0+1"`, `"1,1"`, `""`},
	}
	var out []string
	for range count {
		out = append(out, g.Sentence(rng, "Program", map[string][]string{"number": {"0", "7", "12345"}}), g.Sentence(rng, "Program", words))
		s := head
		for range rng.IntN(3) {
			s += g.Sentence(rng, "Declaration", words) + "\n"
		}
		s += "body\n"
		for range rng.IntN(3) {
			s += g.Sentence(rng, "Instruction", words) + "\n"
		}
		out = append(out, s)
	}
	return out
}

// TestSentences: what the grammar derives is a sentence for the recogniser, and the
// parser reads it or says where it is wrong, and why: never because of its form,
// but for what the reference says in prose. Where Validate refuses, it says what.
func TestSentences(t *testing.T) {
	_, g := reference(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	g.CheckParser(t, sentences(g, n), outsideGrammar, func(text string) (bool, error) {
		_, err := program.Parse("sentence.prog", text)
		if err != nil && strings.HasPrefix(err.Error(), "program ") {
			return false, nil // from Validate
		}
		return err == nil, err
	})
}

// outsideGrammar lists complaints about form that the grammar does not know.
var outsideGrammar = []string{
	"the size is too large", "the divisor must be positive", "nested too deeply", "expands to more than",
	"malformed string", "malformed quotes", "of one line", "given twice", "strides go with as many dimensions", "is not a number",
	"the number of events must be within", "event 9223372036854775807", "a step comes after the kernel", "a size of a kernel's body is a number",
	"expected a parameter such as p0", "blocks:",
}

// TestGoldenSentences: every program in the golden files and in the reference itself
// is a sentence, and the reference's are read and proved.
func TestGoldenSentences(t *testing.T) {
	doc, g := reference(t)
	for _, block := range strings.Split(doc, "```\n") {
		if !strings.HasPrefix(block, "program ") {
			continue
		}
		p, err := program.Parse("program.md", block)
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Check(p); err != nil {
			t.Error(err)
		}
		if err := g.Match(block); err != nil {
			t.Error(err)
		}
	}
	texts, wrong, err := g.MatchFiles("../testdata/golden", func(_ string, f txtar.File) (string, bool) {
		s := strings.ReplaceAll(string(f.Data), "{...}", "{}")
		return s, strings.HasPrefix(s, "program @")
	})
	for _, err := range wrong {
		t.Error(err)
	}
	if err != nil || texts < 25 {
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
		p, err := program.Parse("fuzz.prog", text)
		if err != nil {
			return
		}
		printed := p.String()
		if err := g.Match(printed); err != nil {
			t.Fatalf("printed what is not a sentence: %v\n%s", err, printed)
		}
		if q, err := program.Parse("again", printed); err != nil || q.String() != printed {
			t.Fatalf("does not read back: %v\n%s", err, printed)
		}
	})
}
