package fx

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// scanner is a strict JSON reader over a whole document. It exists beside
// encoding/json because the importer keeps each node's own bytes for an exact
// export, names the node and field of an error, rejects repeated keys, and reads
// a large graph in one pass. The first error sticks; every later call is a no-op.
type scanner struct {
	label  string
	b      []byte
	i      int
	depth  int
	err    *Error
	intern map[string]string // one copy of each repeated text

	// Where the reader is, for errors.
	node, field string
}

// maxInterned bounds the length of texts that are kept once: names, not arguments.
const maxInterned = 128

func (s *scanner) failf(format string, args ...any) {
	if s.err == nil {
		s.err = &Error{File: s.label, Node: s.node, Field: s.field, Rule: "format", Msg: fmt.Sprintf(format, args...)}
	}
}

// syntax reports malformed JSON at the current byte, with line and column.
func (s *scanner) syntax(format string, args ...any) {
	if s.err != nil {
		return
	}
	doc := diag.NewSource(s.label, string(s.b))
	pos := doc.PosAt(min(s.i, len(s.b)))
	s.failf(format, args...)
	s.err.Rule, s.err.text, s.err.pos, s.err.size = "json", doc.Text, pos, 1
}

func (s *scanner) found() string {
	if s.i >= len(s.b) {
		return "the end of the file"
	}
	r, _ := utf8.DecodeRune(s.b[s.i:])
	return strconv.QuoteRune(r)
}

// peek returns the next byte that is not blank, 0 at the end or after an error.
func (s *scanner) peek() byte {
	if s.err != nil {
		return 0
	}
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte, what string) bool {
	if s.peek() != c || s.i >= len(s.b) {
		s.syntax("expected %s, found %s", what, s.found())
		return false
	}
	s.i++
	return true
}

// object calls f for each member; f must read the value.
func (s *scanner) object(what string, f func(key string)) {
	if !s.enter('{', what) {
		return
	}
	var few [16]string
	keys := few[:0]
	var many map[string]bool
	for n := 0; s.err == nil && s.peek() != '}'; n++ {
		if n > 0 && !s.expect(',', "',' or '}'") {
			return
		}
		key := s.str()
		if s.err != nil || !s.expect(':', "':' after a key") {
			return
		}
		repeated := many[key]
		for _, k := range keys {
			repeated = repeated || k == key
		}
		if repeated {
			s.failf("key %q appears twice in %s", pytext.Clip(key), what)
			return
		}
		if len(keys) < cap(few[:]) {
			keys = append(keys, key)
		} else {
			if many == nil {
				many = map[string]bool{}
			}
			many[key] = true
		}
		f(key)
	}
	s.expect('}', "'}'")
	s.depth--
}

// array calls f for each element; f must read the value.
func (s *scanner) array(what string, f func(i int)) {
	if !s.enter('[', what) {
		return
	}
	for n := 0; s.err == nil && s.peek() != ']'; n++ {
		if n > 0 && !s.expect(',', "',' or ']'") {
			return
		}
		f(n)
	}
	s.expect(']', "']'")
	s.depth--
}

func (s *scanner) enter(c byte, what string) bool {
	if s.err != nil {
		return false
	}
	if s.peek() != c || s.i >= len(s.b) {
		s.syntax("expected %s, which starts with '%c', found %s", what, c, s.found())
		return false
	}
	s.i++
	if s.depth++; s.depth > pytext.MaxNesting {
		s.syntax("nested more than %d deep", pytext.MaxNesting)
		return false
	}
	return true
}

// skip reads a value of any kind.
func (s *scanner) skip() {
	c := s.peek()
	switch {
	case s.err != nil:
	case c == '{':
		s.object("an object", func(string) { s.skip() })
	case c == '[':
		s.array("an array", func(int) { s.skip() })
	case c == '"':
		s.str()
	case c == '-' || c >= '0' && c <= '9':
		s.number("a number")
	default:
		for _, w := range []string{"true", "false", "null"} {
			if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
				s.i += len(w)
				return
			}
		}
		s.syntax("expected a value, found %s", s.found())
	}
}

// str reads a string.
func (s *scanner) str() string {
	if s.peek() != '"' {
		s.syntax("expected a string, found %s", s.found())
		return ""
	}
	s.i++
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			raw := s.b[start:s.i]
			if !utf8.Valid(raw) {
				s.i = start
				s.syntax("a string is not valid UTF-8")
				return ""
			}
			s.i++
			return s.keep(raw)
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			s.syntax("control character in a string")
			return ""
		}
		s.i++
	}
	s.syntax("a string does not end")
	return ""
}

// optional reads a string or null, which is as if the field were absent.
func (s *scanner) optional() string {
	if s.peek() == 'n' {
		s.skip()
		return ""
	}
	return s.str()
}

// keep returns the text, one copy for all that are equal and short.
func (s *scanner) keep(raw []byte) string {
	if len(raw) > maxInterned {
		return string(raw)
	}
	if t, ok := s.intern[string(raw)]; ok {
		return t
	}
	t := string(raw)
	s.intern[t] = t
	return t
}

// escaped reads the rest of a string that has escapes.
func (s *scanner) escaped(start int) string {
	out := append([]byte(nil), s.b[start:s.i]...)
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				s.syntax("a string is not valid UTF-8")
				return ""
			}
			return string(out)
		case c < ' ':
			s.syntax("control character in a string")
			return ""
		case c != '\\':
			out = append(out, c)
			continue
		}
		if s.i >= len(s.b) {
			break
		}
		c = s.b[s.i]
		s.i++
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := s.hex4()
			if utf16.IsSurrogate(r) && s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
				s.i += 2
				r = utf16.DecodeRune(r, s.hex4())
			}
			out = utf8.AppendRune(out, r)
		default:
			s.syntax("unknown escape \\%c", c)
		}
		if s.err != nil {
			return ""
		}
	}
	s.syntax("a string does not end")
	return ""
}

func (s *scanner) hex4() rune {
	if s.i+4 > len(s.b) {
		s.syntax("a string does not end")
		return 0
	}
	n, err := strconv.ParseUint(string(s.b[s.i:s.i+4]), 16, 32)
	if err != nil {
		s.syntax("expected four hexadecimal digits")
		return 0
	}
	s.i += 4
	return rune(n)
}

// number reads a JSON number and returns its text.
func (s *scanner) number(what string) []byte {
	s.peek()
	start := s.i
	digits := func() bool {
		j := s.i
		for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
			s.i++
		}
		return s.i > j
	}
	at := func(c ...byte) bool {
		for _, x := range c {
			if s.i < len(s.b) && s.b[s.i] == x {
				s.i++
				return true
			}
		}
		return false
	}
	if s.err != nil {
		return nil
	}
	at('-')
	ok := at('0') || digits()
	if ok && at('.') {
		ok = digits()
	}
	if ok && at('e', 'E') {
		at('+', '-')
		ok = digits()
	}
	if !ok {
		s.syntax("expected %s, found %s", what, s.found())
		return nil
	}
	return s.b[start:s.i]
}

// int64 reads an integer.
func (s *scanner) int64(what string) int64 {
	t := s.number(what)
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil {
		s.failf("%s is not %s of 64 bits", pytext.Clip(string(t)), what)
	}
	return n
}

// float reads a finite number.
func (s *scanner) float(what string) float64 {
	t := s.number(what)
	if s.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(t), 64)
	if err != nil || math.IsInf(f, 0) {
		s.failf("%s is not %s of 64 bits", pytext.Clip(string(t)), what)
	}
	return f
}
