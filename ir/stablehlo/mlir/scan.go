package mlir

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
)

// maxDepth bounds how deep regions, attributes and types nest.
const maxDepth = 200

// Parser reads a part of a text. After an error it stands at the end, so that whatever
// loops over the text ends.
type Parser struct {
	src       *diag.Source
	s         string // the text up to the end of the part
	Pos       int    // the next byte
	Err       error
	depth     int
	alias     map[string]Attr // by name
	meant     int             // attributes that names have stood for
	typeAlias map[string]Type // of tensors, by name
	other     *Operation      // the last one of a dialect whose formats are not known
	blamed    bool            // Err says that it is such a one
}

// ErrorAt makes an error that points into a text.
func ErrorAt(src *diag.Source, at, n int, rule, format string, args ...any) error {
	return &diag.Finding{Source: src, Pos: src.PosAt(min(at, len(src.Text))), Len: n, Rule: rule, Msg: fmt.Sprintf(format, args...)}
}

// Failf keeps the first error and goes to the end.
func (p *Parser) Failf(at int, format string, args ...any) {
	if p.Err == nil {
		p.Err = ErrorAt(p.src, at, 1, "syntax", format, args...)
	}
	p.Pos = len(p.s)
}

// enter goes one level deeper; leave with p.depth--.
func (p *Parser) enter() bool {
	if p.depth++; p.depth > maxDepth {
		p.Failf(p.Pos, "nested deeper than %d levels", maxDepth)
	}
	return p.Err == nil
}

// space skips blanks, line ends and comments.
func (p *Parser) space() {
	for p.Pos < len(p.s) {
		switch c := p.s[p.Pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.Pos++
		case c == '/' && strings.HasPrefix(p.s[p.Pos:], "//"):
			if n := strings.IndexByte(p.s[p.Pos:], '\n'); n >= 0 {
				p.Pos += n
			} else {
				p.Pos = len(p.s)
			}
		default:
			return
		}
	}
}

// Peek is the next byte that is no blank, 0 at the end.
func (p *Parser) Peek() byte {
	p.space()
	if p.Pos < len(p.s) {
		return p.s[p.Pos]
	}
	return 0
}

// sameLine reports whether something more stands on this line.
func (p *Parser) sameLine() bool {
	i := p.Pos
	for i < len(p.s) && (p.s[i] == ' ' || p.s[i] == '\t') {
		i++
	}
	return i < len(p.s) && p.s[i] != '\n' && p.s[i] != '\r' && !strings.HasPrefix(p.s[i:], "//")
}

// Eat reads a piece of punctuation if it is next.
func (p *Parser) Eat(s string) bool {
	p.space()
	if strings.HasPrefix(p.s[p.Pos:], s) {
		p.Pos += len(s)
		return true
	}
	return false
}

// Expect reads a piece of punctuation or fails.
func (p *Parser) Expect(s, where string) bool {
	if p.Err == nil && !p.Eat(s) {
		p.Failf(p.Pos, "expected %q %s, found %s", s, where, p.found())
	}
	return p.Err == nil
}

// found describes what is next.
func (p *Parser) found() string {
	switch c := p.Peek(); {
	case c == 0:
		return "the end of the text"
	case WordByte(c):
		return strconv.Quote(p.s[p.Pos:p.wordEnd()])
	default:
		return strconv.QuoteRune(rune(c))
	}
}

// WordByte reports whether c may stand in a name.
func WordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '.'
}

// Letter reports whether a name may start with a byte.
func Letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func (p *Parser) wordEnd() int {
	j := p.Pos
	for j < len(p.s) && WordByte(p.s[j]) {
		j++
	}
	return j
}

// Word reads a bare name, empty if none is next.
func (p *Parser) Word() string {
	if !Letter(p.Peek()) {
		return ""
	}
	j := p.wordEnd()
	w := p.s[p.Pos:j]
	p.Pos = j
	return w
}

// ahead reports whether the bare name w is next.
func (p *Parser) ahead(w string) bool {
	p.space()
	return strings.HasPrefix(p.s[p.Pos:], w) && p.wordEnd() == p.Pos+len(w)
}

// Keyword reads the bare name w if it is next.
func (p *Parser) Keyword(w string) bool {
	if p.ahead(w) {
		p.Pos += len(w)
		return true
	}
	return false
}

// Suffix reads what stands behind %, @, # or !: a name, which may have dashes, or a string.
func (p *Parser) Suffix(what string) string {
	if p.Pos < len(p.s) && p.s[p.Pos] == '"' {
		return p.Str()
	}
	j := p.Pos
	for j < len(p.s) && (WordByte(p.s[j]) || p.s[j] == '-' && !strings.HasPrefix(p.s[j:], "->")) {
		j++
	}
	if j == p.Pos {
		p.Failf(p.Pos, "expected the name of %s, found %s", what, p.found())
		return ""
	}
	s := p.s[p.Pos:j]
	p.Pos = j
	return s
}

// Str reads a string in quotes.
func (p *Parser) Str() string {
	at := p.Pos
	if !p.Expect("\"", "before a string") {
		return ""
	}
	start, plain := p.Pos, true
	for ; p.Pos < len(p.s); p.Pos++ {
		switch p.s[p.Pos] {
		case '\\':
			plain = false
			p.Pos++
		case '\n':
			p.Failf(at, "a string that does not end on its line")
			return ""
		case '"':
			s := p.s[start:p.Pos]
			p.Pos++
			if !plain {
				s = unescape(s)
			}
			return s
		}
	}
	p.Failf(at, "a string without an end")
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
func (p *Parser) number() string {
	p.space()
	j := p.Pos
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
	t := p.s[p.Pos:j]
	p.Pos = j
	return t
}

func hexDigit(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// IntBase is that of a whole number for strconv: zeros in front make no octal one.
func IntBase(t string) int {
	if strings.Contains(t, "0x") {
		return 0
	}
	return 10
}

// Integer reads a number without a fraction.
func (p *Parser) Integer(what string) int64 {
	p.space()
	at := p.Pos
	t := p.number()
	n, err := strconv.ParseInt(t, IntBase(t), 64)
	if err != nil {
		p.Failf(at, "expected %s, a whole number", what)
	}
	return n
}

// balanced skips what an opening bracket, which was read, encloses, up to the closing one
// of its kind, and returns where that stands. Strings are skipped; -> closes nothing.
func (p *Parser) balanced(opening int, closing byte) (start, end int) {
	start = p.Pos
	stack := []byte{closing}
	for ; p.Pos < len(p.s); p.Pos++ {
		switch c := p.s[p.Pos]; c {
		case '"':
			p.Str()
			p.Pos--
		case '<', '(', '[', '{':
			stack = append(stack, closingOf(c))
		case '>', ')', ']', '}':
			if c == '>' && p.s[p.Pos-1] == '-' {
				continue
			}
			if c != stack[len(stack)-1] {
				p.Failf(p.Pos, "expected %q, found %q", rune(stack[len(stack)-1]), rune(c))
				return start, start
			}
			if stack = stack[:len(stack)-1]; len(stack) == 0 {
				end = p.Pos
				p.Pos++
				return start, end
			}
		}
		if p.Err != nil {
			return start, start
		}
	}
	p.Failf(opening, "a bracket that nothing closes")
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
