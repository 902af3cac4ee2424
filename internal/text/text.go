// Package text reads and prints what the text forms of the IR and of programs
// have in common: names, numbers, attributes, tensor types, comments and the
// errors that point at them.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Scanner reads a text from left to right without a token buffer. Its readers
// skip blanks and comments first and do nothing once Bad is set, so that a
// parser checks for errors where it likes.
type Scanner struct {
	Src  *diag.Source
	S    string // the text
	I    int    // the next byte
	Errs diag.List
	Bad  bool // the current line has an error; cleared by Recover
}

// NewScanner returns a scanner of a text; name is what messages call it.
func NewScanner(name, s string) Scanner { return Scanner{Src: diag.NewSource(name, s), S: s} }

// Failf reports an error at an offset and length, unless the line has one already.
func (p *Scanner) Failf(at, n int, rule, format string, args ...any) {
	if p.Bad {
		return
	}
	p.Bad = true
	p.Errs.Add(&diag.Finding{Source: p.Src, Pos: p.Src.PosAt(min(at, len(p.S))), Len: n, Rule: rule, Msg: fmt.Sprintf(format, args...)})
}

// Space skips blanks and comments within a line.
func (p *Scanner) Space() {
	for p.I < len(p.S) {
		switch c := p.S[p.I]; {
		case c == ' ' || c == '\t' || c == '\r':
			p.I++
		case c == '/' && p.I+1 < len(p.S) && p.S[p.I+1] == '/':
			for p.I < len(p.S) && p.S[p.I] != '\n' {
				p.I++
			}
		default:
			return
		}
	}
}

// Lines skips blanks, comments and line ends.
func (p *Scanner) Lines() {
	for {
		p.Space()
		if p.I >= len(p.S) || p.S[p.I] != '\n' {
			return
		}
		p.I++
	}
}

// Recover skips to the end of the line after an error.
func (p *Scanner) Recover() {
	for p.I < len(p.S) && p.S[p.I] != '\n' {
		p.I++
	}
	p.Bad = false
}

// Peek returns the next byte, 0 at the end.
func (p *Scanner) Peek() byte {
	p.Space()
	if p.I < len(p.S) {
		return p.S[p.I]
	}
	return 0
}

// Eat reads c if it is next.
func (p *Scanner) Eat(c byte) bool {
	if p.Peek() == c && p.I < len(p.S) {
		p.I++
		return true
	}
	return false
}

// Found describes the next token for an error message.
func (p *Scanner) Found() string {
	switch c := p.Peek(); {
	case p.I >= len(p.S):
		return "the end of the text"
	case c == '\n':
		return "the end of the line"
	case IdentByte(c):
		j := p.I
		for j < len(p.S) && IdentByte(p.S[j]) {
			j++
		}
		return strconv.Quote(p.S[p.I:j])
	default:
		return strconv.QuoteRune(rune(c))
	}
}

// Expect reads c or fails; where completes the message.
func (p *Scanner) Expect(c byte, where string) {
	if !p.Bad && !p.Eat(c) {
		p.Failf(p.I, 1, "syntax", "expected '%c' %s, found %s", c, where, p.Found())
	}
}

// IdentByte reports whether c may stand in a name.
func IdentByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '$'
}

// ValidName reports whether s can be a name: text of one line. Only plain ones stand in
// texts as they are, others in quotes.
func ValidName(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return false
		}
	}
	return s != "" && utf8.ValidString(s)
}

// PlainName reports whether s is a name that needs no quotes: letters, digits, '_', '.'
// and '$'.
func PlainName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !IdentByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// AppendName appends a name as Name reads it. It can stand in any comment of C.
func AppendName(b []byte, s string) []byte {
	if PlainName(s) {
		return append(b, s...)
	}
	return append(b, strings.ReplaceAll(strconv.Quote(s), "*/", `*\x2f`)...)
}

// Name reads a name, plain or in quotes; what says what it names, for the error.
func (p *Scanner) Name(what string) string {
	if p.Bad || p.Peek() != '"' {
		return p.Ident(what)
	}
	q, err := strconv.QuotedPrefix(p.S[p.I:])
	if err != nil || q[0] != '"' {
		p.Failf(p.I, 1, "syntax", "malformed quotes around %s", what)
		return ""
	}
	s, err := strconv.Unquote(q)
	if err != nil || !ValidName(s) {
		p.Failf(p.I, len(q), "syntax", "expected %s of one line, found %s", what, q)
	}
	p.I += len(q)
	return s
}

// Ident reads a plain name; what says what it names, for the error.
func (p *Scanner) Ident(what string) string {
	p.Space()
	j := p.I
	for j < len(p.S) && IdentByte(p.S[j]) {
		j++
	}
	if j == p.I {
		p.Failf(p.I, 1, "syntax", "expected %s, found %s", what, p.Found())
	}
	s := p.S[p.I:j]
	p.I = j
	return s
}

// Word reads the keyword w if it is next.
func (p *Scanner) Word(w string) bool {
	p.Space()
	j := p.I + len(w)
	if j <= len(p.S) && p.S[p.I:j] == w && (j == len(p.S) || !IdentByte(p.S[j])) {
		p.I = j
		return true
	}
	return false
}

// Keyword reads the keyword w or fails.
func (p *Scanner) Keyword(w string) {
	if !p.Bad && !p.Word(w) {
		p.Failf(p.I, 1, "syntax", "expected %s, found %s", w, p.Found())
	}
}

// Int reads an integer; what says what it is, for the error.
func (p *Scanner) Int(what string) int64 {
	p.Space()
	j := p.I
	if j < len(p.S) && p.S[j] == '-' {
		j++
	}
	for j < len(p.S) && p.S[j] >= '0' && p.S[j] <= '9' {
		j++
	}
	n, err := strconv.ParseInt(p.S[p.I:j], 10, 64)
	if err != nil {
		p.Failf(p.I, j-p.I, "syntax", "expected %s, found %s", what, p.Found())
	}
	p.I = j
	return n
}

// EndOfLine fails if anything but a comment is left on the line.
func (p *Scanner) EndOfLine() {
	if c := p.Peek(); !p.Bad && c != '\n' && p.I < len(p.S) {
		p.Failf(p.I, 1, "syntax", "expected the end of the line, found %s", p.Found())
	}
}

// Attrs reads {key=value, ...} into a list, whose own keys it may not repeat.
func (p *Scanner) Attrs(into *attr.List) {
	p.Space()
	l, n, err := attr.Scan(p.S[p.I:])
	p.I += n
	if err != nil {
		p.Failf(p.I, 1, "syntax", "%v", err)
		return
	}
	for _, a := range l {
		if into.Has(a.Key) {
			p.Failf(p.I-1, 1, "syntax", "attribute %s given twice", a.Key)
			return
		}
		*into = into.With(a.Key, a.Val)
	}
}

// Ranks reads [[0, 1], [2, 3]].
func (p *Scanner) Ranks() [][]int {
	p.Expect('[', "before the subgroups")
	var ranks [][]int
	for !p.Bad && !p.Eat(']') {
		if len(ranks) > 0 {
			p.Expect(',', "between subgroups")
		}
		p.Expect('[', "before a subgroup's ranks")
		sub := []int{}
		for !p.Bad && !p.Eat(']') {
			if len(sub) > 0 {
				p.Expect(',', "between ranks")
			}
			sub = append(sub, int(p.Int("a rank")))
		}
		ranks = append(ranks, sub)
	}
	return ranks
}

// AppendRanks appends [[0, 1], [2, 3]].
func AppendRanks(b []byte, ranks [][]int) []byte {
	b = append(b, '[')
	for i, sub := range ranks {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, '[')
		for j, r := range sub {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = strconv.AppendInt(b, int64(r), 10)
		}
		b = append(b, ']')
	}
	return append(b, ']')
}

// Tensor is a tensor type as text has it; Strides is nil where none are given.
type Tensor struct {
	DType   dtype.DType
	Shape   []dim.Dim
	Strides []dim.Dim
}

// Tensor reads bf16[8,4] or, with element strides after the colon,
// bf16[8,4:1,8]. known tells whether a symbol is declared; nil allows all.
func (p *Scanner) Tensor(known func(sym string) bool) Tensor {
	p.Space()
	at := p.I
	name := p.Ident("a type")
	var t Tensor
	if p.Bad {
		return t
	}
	var ok bool
	if t.DType, ok = dtype.Parse(name); !ok {
		p.Failf(at, len(name), "syntax", "%q is not an element type; have f64 f32 f16 bf16 i64 i32 i8 u8 bool i16 u16 u32 u64 and f8e5m2 f8e4m3 f8e3m4 f8e4m3fn f8e5m2fnuz f8e4m3fnuz f8e4m3b11fnuz f8e8m0fnu", name)
		return t
	}
	p.Expect('[', "after an element type")
	if p.Eat(']') {
		return t
	}
	for {
		t.Shape = append(t.Shape, p.Dim(known))
		if p.Bad || !p.Eat(',') {
			break
		}
	}
	if !p.Bad && p.Eat(':') {
		p.strides(&t, known)
	}
	p.Expect(']', "after the dimensions")
	return t
}

func (p *Scanner) strides(t *Tensor, known func(sym string) bool) {
	at := p.I
	for {
		t.Strides = append(t.Strides, p.Dim(known))
		if p.Bad || !p.Eat(',') {
			break
		}
	}
	if len(t.Strides) != len(t.Shape) {
		p.Failf(at, p.I-at, "syntax", "strides go with as many dimensions")
	}
}

// Dim reads a dimension expression.
func (p *Scanner) Dim(known func(sym string) bool) dim.Dim {
	p.Space()
	d, n, err := dim.Scan(p.S[p.I:])
	if err != nil {
		p.I += n
		p.Failf(p.I, 1, "syntax", "%v", err)
		return dim.Dim{}
	}
	at := p.I
	p.I += n
	if _, static := d.Const(); !static && known != nil {
		for _, name := range d.Symbols(nil) {
			if !known(name) {
				p.Failf(at, n, "undefined", "symbol %s is not declared", name)
			}
		}
	}
	return d
}

// AppendTensor appends the text form that Tensor reads; nil strides print none.
func AppendTensor(b []byte, dt dtype.DType, shape, strides []dim.Dim) []byte {
	b = append(b, dt.String()...)
	for i, d := range shape {
		b = d.AppendText(append(b, "[,"[min(i, 1)]))
	}
	if len(shape) == 0 {
		b = append(b, '[')
	}
	for i, s := range strides {
		b = s.AppendText(append(b, ":,"[min(i, 1)]))
	}
	return append(b, ']')
}
