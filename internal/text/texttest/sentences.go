package texttest

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/diag"
)

// Reference reads a language reference and the grammar in it, which ends with the first
// blocks of others.
func Reference(t testing.TB, start, path string, others ...string) (doc string, g *Grammar) {
	t.Helper()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	doc = read(path)
	blocks := Blocks(doc)
	for _, other := range others {
		blocks = append(blocks, Blocks(read(other))[0])
	}
	g, err := New(start, blocks...)
	if err != nil {
		t.Fatal(err)
	}
	return doc, g
}

// CheckParser checks a parser on sentences of the grammar. Each has to match, and parse accepts
// it or returns findings with positions (but of groups), of which those about syntax have one of
// the messages that the reference's prose explains.
func (g *Grammar) CheckParser(t *testing.T, sentences, explained []string, parse func(text string) (accepted bool, err error)) {
	t.Helper()
	read := 0
	for _, s := range sentences {
		if err := g.Match(s + "\n"); err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
		accepted, err := parse(s)
		if accepted {
			read++
		}
		if err == nil {
			continue
		}
		var findings *diag.Error
		if !errors.As(err, &findings) {
			t.Fatalf("%v is not a list of findings\n%s", err, s)
		}
		for _, f := range findings.Findings {
			if !f.Pos.Known() && f.Rule != "group" {
				t.Errorf("no position: %v\n%s", f, s)
			}
			if f.Rule == "syntax" && !slices.ContainsFunc(explained, func(s string) bool { return strings.Contains(f.Msg, s) }) {
				t.Errorf("%v\n%s", f, s)
			}
		}
	}
	if read == 0 {
		t.Errorf("none of %d sentences was accepted", len(sentences))
	}
}
