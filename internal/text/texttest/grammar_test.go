package texttest

import (
	"math/rand/v2"
	"strings"
	"testing"
)

const lists = "# Lists\n```ebnf\nText = { List newline } .\nnewline = \"\\n\" .\n```\nand\n```ebnf\nList = \"list\" name \"[\" [ Item { \",\" Item } ] \"]\" .\nItem = name | number | List .\nname = letter { letter } .\nletter = \"a\" … \"z\" .\nnumber = \"0\" … \"9\" .\n```\n"

func TestMatch(t *testing.T) {
	g, err := New("Text", Blocks(lists)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"list a [b, list c [], 3] // why\nlist\td[]\n", ""},
		{"list a []", `line 1, column 10: no sentence goes on with ""`},
		{"list a []\nlist b [c d]\n", `line 2, column 10: no sentence goes on with " d]"`},
		{"lista []\n", `line 1, column 1: no sentence goes on with "lista []"`},
		{"list a [b,]\n", `line 1, column 11: no sentence goes on with "]"`},
	} {
		got := ""
		if err := g.Match(c.text); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
	for seed := range uint64(200) {
		s := g.Sentence(rand.New(rand.NewPCG(seed, 0)), "Text", map[string][]string{"name": {"x", "list"}})
		if err := g.Match(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if again := g.Sentence(rand.New(rand.NewPCG(seed, 0)), "Text", map[string][]string{"name": {"x", "list"}}); again != s {
			t.Errorf("seed %d gives %q and %q", seed, s, again)
		}
	}
}

func TestNew(t *testing.T) {
	for _, c := range []struct{ grammar, want string }{
		{"A = b .", "missing production b"},
		{"A = \"x\" . b = \"y\" .", "b is unreachable"},
		{"A = \"x\"", `expected ""."", found EOF`},
	} {
		if _, err := New("A", c.grammar); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.grammar, err, c.want)
		}
	}
}
