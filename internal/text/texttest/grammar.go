// Package texttest tests parsers against the grammars of the language references:
// it reads the EBNF out of Markdown, recognises sentences, and generates
// random ones.
//
// In a grammar, as in golang.org/x/exp/ebnf, productions that begin with a lowercase letter
// are tokens, without blanks inside; between the tokens of the others there may be
// blanks, tabs, carriage returns and comments that begin with //. A token is the
// longest text that its production derives; a literal that is a word does not match
// the beginning of a longer one.
package texttest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/exp/ebnf"

	"github.com/seed-ee968945/concert/internal/text"
)

// Grammar is a verified grammar.
type Grammar struct {
	productions ebnf.Grammar
	start       string
	depth       map[string]int // by production: the least nesting of names in what it derives
}

// Blocks returns the ebnf blocks of a Markdown text in order.
func Blocks(markdown string) []string {
	const fence = "```"
	var out []string
	for rest := markdown; ; {
		_, body, ok := strings.Cut(rest, fence+"ebnf\n")
		if !ok {
			return out
		}
		body, rest, _ = strings.Cut(body, fence)
		out = append(out, body)
	}
}

// New parses the productions of all blocks as one grammar and verifies that
// everything is defined and reached from start.
func New(start string, blocks ...string) (*Grammar, error) {
	g, err := ebnf.Parse(start, strings.NewReader(strings.Join(blocks, "\n")))
	if err != nil {
		return nil, err
	}
	if err := ebnf.Verify(g, start); err != nil {
		return nil, err
	}
	return &Grammar{g, start, depths(g)}, nil
}

// depths is a fixed point: a production is one deeper than what it needs.
func depths(g ebnf.Grammar) map[string]int {
	d := map[string]int{}
	for changed := true; changed; {
		changed = false
		for name, p := range g {
			if n := 1 + depthOf(p.Expr, d); n < endless && (d[name] == 0 || n < d[name]) {
				d[name], changed = n, true
			}
		}
	}
	return d
}

const endless = 1 << 20

func depthOf(x ebnf.Expression, d map[string]int) int {
	switch x := x.(type) {
	case ebnf.Alternative:
		least := endless
		for _, e := range x {
			least = min(least, depthOf(e, d))
		}
		return least
	case ebnf.Sequence:
		most := 0
		for _, e := range x {
			most = max(most, depthOf(e, d))
		}
		return most
	case *ebnf.Group:
		return depthOf(x.Body, d)
	case *ebnf.Name:
		if n := d[x.String]; n > 0 {
			return n
		}
		return endless
	}
	return 0
}

func lexical(name string) bool {
	r, _ := utf8.DecodeRuneInString(name)
	return !unicode.IsUpper(r)
}

// Match returns nil if s is a sentence, else an error that names the line and
// column up to which it could be one.
func (g *Grammar) Match(s string) error {
	m := &matcher{g: g.productions, s: s, memo: map[place][]int{}}
	for _, end := range m.name(g.start, 0) {
		if m.skip(end) == len(s) {
			return nil
		}
	}
	before := s[:m.far]
	line := strings.Count(before, "\n") + 1
	rest, _, _ := strings.Cut(s[m.far:], "\n")
	return fmt.Errorf("line %d, column %d: no sentence goes on with %q", line, m.far-strings.LastIndexByte(before, '\n'), rest)
}

type place struct {
	name string
	at   int
}

// matcher finds every end of what an expression derives from a place on.
type matcher struct {
	g     ebnf.Grammar
	s     string
	token bool // within a token: no blanks
	memo  map[place][]int
	far   int // how far any token reached
}

// skip passes blanks and comments.
func (m *matcher) skip(i int) int {
	for i < len(m.s) {
		switch {
		case strings.IndexByte(" \t\r", m.s[i]) >= 0:
			i++
		case strings.HasPrefix(m.s[i:], "//"):
			n := strings.IndexByte(m.s[i:], '\n')
			if n < 0 {
				return len(m.s)
			}
			i += n
		default:
			return i
		}
	}
	return i
}

func (m *matcher) name(name string, at int) []int {
	if m.token {
		return m.ends(m.g[name].Expr, at)
	}
	p := place{name, at}
	if ends, ok := m.memo[p]; ok {
		return ends
	}
	var ends []int
	if lexical(name) {
		m.token = true
		longest := -1
		for _, end := range m.ends(m.g[name].Expr, m.skip(at)) {
			longest = max(longest, end)
		}
		m.token = false
		if longest >= 0 {
			ends = []int{longest}
			m.far = max(m.far, longest)
		}
	} else {
		ends = m.ends(m.g[name].Expr, at)
	}
	m.memo[p] = ends
	return ends
}

func (m *matcher) ends(x ebnf.Expression, at int) []int {
	switch x := x.(type) {
	case ebnf.Alternative:
		var out []int
		for _, e := range x {
			out = union(out, m.ends(e, at))
		}
		return out
	case ebnf.Sequence:
		now := []int{at}
		for _, e := range x {
			var next []int
			for _, i := range now {
				next = union(next, m.ends(e, i))
			}
			now = next
		}
		return now
	case *ebnf.Group:
		return m.ends(x.Body, at)
	case *ebnf.Option:
		return union([]int{at}, m.ends(x.Body, at))
	case *ebnf.Repetition:
		seen := map[int]bool{at: true}
		out := []int{at}
		for k := 0; k < len(out); k++ {
			for _, end := range m.ends(x.Body, out[k]) {
				if !seen[end] {
					seen[end] = true
					out = append(out, end)
				}
			}
		}
		return out
	case *ebnf.Name:
		return m.name(x.String, at)
	case *ebnf.Range:
		r, n := utf8.DecodeRuneInString(m.s[at:])
		if n > 0 && x.Begin.String <= string(r) && string(r) <= x.End.String { // UTF-8 sorts as its code points
			return []int{at + n}
		}
		return nil
	case *ebnf.Token:
		return m.literal(x.String, at)
	}
	return nil
}

func (m *matcher) literal(lit string, at int) []int {
	if !m.token {
		at = m.skip(at)
	}
	if !strings.HasPrefix(m.s[at:], lit) {
		return nil
	}
	end := at + len(lit)
	if !m.token {
		if text.IdentByte(lit[len(lit)-1]) && end < len(m.s) && text.IdentByte(m.s[end]) {
			return nil
		}
		m.far = max(m.far, end)
	}
	return []int{end}
}

// union appends what is new; the lists are short.
func union(a, b []int) []int {
	for _, x := range b {
		fresh := true
		for _, y := range a {
			fresh = fresh && x != y
		}
		if fresh {
			a = append(a, x)
		}
	}
	return a
}

// Sentence derives a random sentence from a production. words gives the texts of
// some tokens instead of their productions, such as names that are declared. The
// same generator state gives the same sentence.
func (g *Grammar) Sentence(rng *rand.Rand, production string, words map[string][]string) string {
	w := &writer{g: g, rng: rng, words: words, room: sentenceRoom}
	w.name(production, false)
	return string(w.b)
}

// The names that a sentence, and a token of it, expand freely.
const (
	sentenceRoom = 300
	tokenRoom    = 20
)

type writer struct {
	g     *Grammar
	rng   *rand.Rand
	words map[string][]string
	b     []byte
	room  int // names that may still be expanded freely
}

func (w *writer) name(name string, token bool) {
	w.room--
	if words := w.words[name]; len(words) > 0 {
		w.emit(words[w.rng.IntN(len(words))], token)
		return
	}
	expr := w.g.productions[name].Expr
	if token || !lexical(name) {
		w.expr(expr, token)
		return
	}
	before, room := w.b, w.room
	w.b, w.room = nil, min(room, tokenRoom)
	w.expr(expr, true)
	tok := string(w.b)
	w.b, w.room = before, room
	w.emit(tok, false)
}

// emit appends a token, with a blank where it would run into the last one.
func (w *writer) emit(s string, token bool) {
	if !token && len(w.b) > 0 && s != "" {
		last := w.b[len(w.b)-1]
		if text.IdentByte(last) && text.IdentByte(s[0]) || last != '\n' && w.rng.IntN(2) == 0 {
			w.b = append(w.b, ' ')
		}
	}
	w.b = append(w.b, s...)
}

func (w *writer) expr(x ebnf.Expression, token bool) {
	switch x := x.(type) {
	case ebnf.Alternative:
		w.expr(w.choose(x), token)
	case ebnf.Sequence:
		for _, e := range x {
			w.expr(e, token)
		}
	case *ebnf.Group:
		w.expr(x.Body, token)
	case *ebnf.Option:
		if w.room > 0 && w.rng.IntN(2) == 0 {
			w.expr(x.Body, token)
		}
	case *ebnf.Repetition:
		for w.room > 0 && w.rng.IntN(3) > 0 {
			w.expr(x.Body, token)
		}
	case *ebnf.Name:
		w.name(x.String, token)
	case *ebnf.Range:
		lo, _ := utf8.DecodeRuneInString(x.Begin.String)
		hi, _ := utf8.DecodeRuneInString(x.End.String)
		w.b = utf8.AppendRune(w.b, lo+rune(w.rng.IntN(int(hi-lo)+1)))
	case *ebnf.Token:
		w.emit(x.String, token)
	}
}

// choose takes any alternative while there is room, then the shallowest.
func (w *writer) choose(x ebnf.Alternative) ebnf.Expression {
	if w.room > 0 {
		return x[w.rng.IntN(len(x))]
	}
	best := x[0]
	for _, e := range x[1:] {
		if depthOf(e, w.g.depth) < depthOf(best, w.g.depth) {
			best = e
		}
	}
	return best
}
