package stablehlo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
)

// maxDepth bounds how deep regions, attributes and types nest.
const maxDepth = 200

// parser reads a part of a text. After an error it stands at the end, so that whatever
// loops over the text ends.
type parser struct {
	src   *diag.Source
	s     string // the text up to the end of the part
	i     int    // the next byte
	err   error
	depth int
	alias map[string]attr // by name
	meant int             // attributes that names have stood for
}

// errorAt makes an error that points into a text.
func errorAt(src *diag.Source, at, n int, rule, format string, args ...any) error {
	return &diag.Finding{Source: src, Pos: src.PosAt(min(at, len(src.Text))), Len: n, Rule: rule, Msg: fmt.Sprintf(format, args...)}
}

// failf keeps the first error and goes to the end.
func (p *parser) failf(at int, format string, args ...any) {
	if p.err == nil {
		p.err = errorAt(p.src, at, 1, "syntax", format, args...)
	}
	p.i = len(p.s)
}

// enter goes one level deeper; leave with p.depth--.
func (p *parser) enter() bool {
	if p.depth++; p.depth > maxDepth {
		p.failf(p.i, "nested deeper than %d levels", maxDepth)
	}
	return p.err == nil
}

// space skips blanks, line ends and comments.
func (p *parser) space() {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.i++
		case c == '/' && strings.HasPrefix(p.s[p.i:], "//"):
			if n := strings.IndexByte(p.s[p.i:], '\n'); n >= 0 {
				p.i += n
			} else {
				p.i = len(p.s)
			}
		default:
			return
		}
	}
}

// peek is the next byte that is no blank, 0 at the end.
func (p *parser) peek() byte {
	p.space()
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

// sameLine reports whether something more stands on this line.
func (p *parser) sameLine() bool {
	i := p.i
	for i < len(p.s) && (p.s[i] == ' ' || p.s[i] == '\t') {
		i++
	}
	return i < len(p.s) && p.s[i] != '\n' && p.s[i] != '\r' && !strings.HasPrefix(p.s[i:], "//")
}

// eat reads a piece of punctuation if it is next.
func (p *parser) eat(s string) bool {
	p.space()
	if strings.HasPrefix(p.s[p.i:], s) {
		p.i += len(s)
		return true
	}
	return false
}

// expect reads a piece of punctuation or fails.
func (p *parser) expect(s, where string) bool {
	if p.err == nil && !p.eat(s) {
		p.failf(p.i, "expected %q %s, found %s", s, where, p.found())
	}
	return p.err == nil
}

// found describes what is next.
func (p *parser) found() string {
	switch c := p.peek(); {
	case c == 0:
		return "the end of the text"
	case wordByte(c):
		return strconv.Quote(p.s[p.i:p.wordEnd()])
	default:
		return strconv.QuoteRune(rune(c))
	}
}

// wordByte reports whether c may stand in a name.
func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '.'
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func (p *parser) wordEnd() int {
	j := p.i
	for j < len(p.s) && wordByte(p.s[j]) {
		j++
	}
	return j
}

// word reads a bare name, empty if none is next.
func (p *parser) word() string {
	if !letter(p.peek()) {
		return ""
	}
	j := p.wordEnd()
	w := p.s[p.i:j]
	p.i = j
	return w
}

// ahead reports whether the bare name w is next.
func (p *parser) ahead(w string) bool {
	p.space()
	return strings.HasPrefix(p.s[p.i:], w) && p.wordEnd() == p.i+len(w)
}

// keyword reads the bare name w if it is next.
func (p *parser) keyword(w string) bool {
	if p.ahead(w) {
		p.i += len(w)
		return true
	}
	return false
}

// suffix reads what stands behind %, @, # or !: a name, which may have dashes, or a string.
func (p *parser) suffix(what string) string {
	if p.i < len(p.s) && p.s[p.i] == '"' {
		return p.str()
	}
	j := p.i
	for j < len(p.s) && (wordByte(p.s[j]) || p.s[j] == '-' && !strings.HasPrefix(p.s[j:], "->")) {
		j++
	}
	if j == p.i {
		p.failf(p.i, "expected the name of %s, found %s", what, p.found())
		return ""
	}
	s := p.s[p.i:j]
	p.i = j
	return s
}

// str reads a string in quotes.
func (p *parser) str() string {
	at := p.i
	if !p.expect("\"", "before a string") {
		return ""
	}
	start, plain := p.i, true
	for ; p.i < len(p.s); p.i++ {
		switch p.s[p.i] {
		case '\\':
			plain = false
			p.i++
		case '\n':
			p.failf(at, "a string that does not end on its line")
			return ""
		case '"':
			s := p.s[start:p.i]
			p.i++
			if !plain {
				s = unescape(s)
			}
			return s
		}
	}
	p.failf(at, "a string without an end")
	return ""
}

// unescape resolves the escapes of MLIR's strings: \n, \t, \", \\ and two hexadecimal digits.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i+1 < len(s) {
			if n, err := strconv.ParseUint(s[i:i+2], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i++
				continue
			}
		}
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// number reads a number's text, empty if none is next.
func (p *parser) number() string {
	p.space()
	j := p.i
	if j < len(p.s) && (p.s[j] == '-' || p.s[j] == '+') {
		j++
	}
	if j >= len(p.s) || !digit(p.s[j]) {
		return ""
	}
	if strings.HasPrefix(p.s[j:], "0x") && j+2 < len(p.s) && hexDigit(p.s[j+2]) {
		for j += 2; j < len(p.s) && hexDigit(p.s[j]); j++ {
		}
	} else {
		for ; j < len(p.s) && (digit(p.s[j]) || p.s[j] == '.'); j++ {
		}
		if j < len(p.s) && (p.s[j] == 'e' || p.s[j] == 'E') {
			k := j + 1
			if k < len(p.s) && (p.s[k] == '-' || p.s[k] == '+') {
				k++
			}
			if k < len(p.s) && digit(p.s[k]) {
				for j = k; j < len(p.s) && digit(p.s[j]); j++ {
				}
			}
		}
	}
	t := p.s[p.i:j]
	p.i = j
	return t
}

func hexDigit(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// base is that of a whole number for strconv: zeros in front make no octal one.
func base(t string) int {
	if strings.Contains(t, "0x") {
		return 0
	}
	return 10
}

// integer reads a number without a fraction.
func (p *parser) integer(what string) int64 {
	p.space()
	at := p.i
	t := p.number()
	n, err := strconv.ParseInt(t, base(t), 64)
	if err != nil {
		p.failf(at, "expected %s, a whole number", what)
	}
	return n
}

// balanced skips what an opening bracket, which was read, encloses, up to the closing one
// of its kind, and returns where that stands. Strings are skipped; -> closes nothing.
func (p *parser) balanced(opening int, closing byte) (start, end int) {
	start = p.i
	stack := []byte{closing}
	for ; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; c {
		case '"':
			p.str()
			p.i--
		case '<', '(', '[', '{':
			stack = append(stack, closingOf(c))
		case '>', ')', ']', '}':
			if c == '>' && p.s[p.i-1] == '-' {
				continue
			}
			if c != stack[len(stack)-1] {
				p.failf(p.i, "expected %q, found %q", rune(stack[len(stack)-1]), rune(c))
				return start, start
			}
			if stack = stack[:len(stack)-1]; len(stack) == 0 {
				end = p.i
				p.i++
				return start, end
			}
		}
		if p.err != nil {
			return start, start
		}
	}
	p.failf(opening, "a bracket that nothing closes")
	return start, start
}

func closingOf(c byte) byte {
	switch c {
	case '<':
		return '>'
	case '(':
		return ')'
	case '[':
		return ']'
	}
	return '}'
}
