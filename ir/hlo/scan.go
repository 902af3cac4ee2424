package hlo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
)

// maxDepth bounds how deep types, literals and attributes nest.
const maxDepth = 200

// scanner reads a part of a text. After an error it stands at the end, so that whatever
// loops over the text ends.
type scanner struct {
	src *diag.Source
	s   string // the text up to the end of the part
	i   int    // the next byte
	err error

	nested []*instruction // those in the place of operands of the one that is read
	depth  int            // of these
}

// errorAt makes an error that points into a text.
func errorAt(src *diag.Source, at, n int, rule, format string, args ...any) error {
	return &diag.Finding{Source: src, Pos: src.PosAt(min(at, len(src.Text))), Len: n, Rule: rule, Msg: fmt.Sprintf(format, args...)}
}

// failf keeps the first error and goes to the end.
func (p *scanner) failf(at int, format string, args ...any) {
	if p.err == nil {
		p.err = errorAt(p.src, at, 1, "syntax", format, args...)
	}
	p.i = len(p.s)
}

// space skips blanks, line ends and comments.
func (p *scanner) space() {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.i++
		case p.comment():
		default:
			return
		}
	}
}

// comment skips a comment if it is next, but not the end of a line.
func (p *scanner) comment() bool {
	switch {
	case strings.HasPrefix(p.s[p.i:], "//"):
		p.line()
	case strings.HasPrefix(p.s[p.i:], "/*"):
		n := strings.Index(p.s[p.i:], "*/")
		if n < 0 {
			p.failf(p.i, "a comment without an end")
			break
		}
		p.i += n + 2
	default:
		return false
	}
	return true
}

// line goes to the end of the line.
func (p *scanner) line() {
	if n := strings.IndexByte(p.s[p.i:], '\n'); n >= 0 {
		p.i += n
	} else {
		p.i = len(p.s)
	}
}

// peek is the next byte that is no blank, 0 at the end.
func (p *scanner) peek() byte {
	p.space()
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

// eat reads a piece of punctuation if it is next.
func (p *scanner) eat(s string) bool {
	p.space()
	if strings.HasPrefix(p.s[p.i:], s) {
		p.i += len(s)
		return true
	}
	return false
}

// expect reads a piece of punctuation or fails.
func (p *scanner) expect(s, where string) bool {
	if p.err == nil && !p.eat(s) {
		p.failf(p.i, "expected %q %s, found %s", s, where, p.found())
	}
	return p.err == nil
}

// found describes what is next.
func (p *scanner) found() string {
	c := p.peek()
	if c == 0 {
		return "the end of the text"
	}
	end := p.i
	for end < len(p.s) && wordByte(p.s[end]) {
		end++
	}
	if end > p.i {
		return strconv.Quote(p.s[p.i:end])
	}
	return strconv.QuoteRune(rune(c))
}

// wordByte reports whether c may stand in a name.
func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digit(c) || c == '_' || c == '.' || c == '-' || c == '$'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// word reads a name, empty if there is none.
func (p *scanner) word() string {
	p.space()
	start := p.i
	for p.i < len(p.s) && wordByte(p.s[p.i]) {
		p.i++
	}
	return p.s[start:p.i]
}

// name reads a name, with a sign in front, behind it or without.
func (p *scanner) name(what string) string {
	signed := p.eat("%")
	w := p.word()
	if !signed && w != "" && p.i < len(p.s) && p.s[p.i] == ':' {
		p.i++
	}
	if w == "" && p.err == nil {
		p.failf(p.i, "expected the name of %s, found %s", what, p.found())
	}
	return w
}

// integer reads a whole number.
func (p *scanner) integer(what string) int64 {
	p.space()
	at := p.i
	if p.i < len(p.s) && p.s[p.i] == '-' {
		p.i++
	}
	for p.i < len(p.s) && digit(p.s[p.i]) {
		p.i++
	}
	n, err := strconv.ParseInt(p.s[at:p.i], 10, 64)
	if err != nil && p.err == nil {
		p.i = at
		p.failf(at, "expected %s, found %s", what, p.found())
	}
	return n
}

// balanced goes behind the bracket that closes the next one and returns what stands between.
func (p *scanner) balanced() (start, end int) {
	p.space()
	at := p.i
	var open []byte
	for p.i < len(p.s) {
		c := p.s[p.i]
		switch c {
		case '/':
			if p.comment() {
				continue
			}
		case '(', '{', '[':
			if open = append(open, c); len(open) > maxDepth {
				p.failf(p.i, "nested deeper than %d levels", maxDepth)
				return at, at
			}
		case ')', '}', ']':
			if n := len(open); n == 0 || open[n-1] != map[byte]byte{')': '(', '}': '{', ']': '['}[c] {
				p.failf(p.i, "%q closes nothing", c)
				return at, at
			}
			open = open[:len(open)-1]
		case '"', '\'':
			if !p.quoted(c) {
				return at, at
			}
			continue
		}
		p.i++
		if len(open) == 0 {
			return at + 1, p.i - 1
		}
	}
	p.failf(at, "a bracket without an end")
	return at, at
}

// quoted goes behind a text in quotes.
func (p *scanner) quoted(q byte) bool {
	at := p.i
	for p.i++; p.i < len(p.s); p.i++ {
		switch p.s[p.i] {
		case '\\':
			p.i++
		case q:
			p.i++
			return true
		}
	}
	p.failf(at, "a text without an end")
	return false
}
