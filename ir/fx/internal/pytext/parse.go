// Package pytext parses and prints the Python text in which a trace holds the arguments of its
// operators: literals, names of nodes and of element types.
package pytext

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Kind is the kind of a Python value.
type Kind uint8

const (
	None Kind = iota
	Bool
	Int
	Float
	Str
	Name  // a bare name: a node
	DType // torch.float32
	Const // another dotted name or a repr that no operator needs: torch.strided
	Tuple
	List
	Dict // keys in Keys, values in List
	Call // device(type='cuda', index=0): name in Text; keywords in Keys, values in List
)

// String is the kind as messages have it.
func (k Kind) String() string {
	return [...]string{"None", "a truth value", "an integer", "a number", "a string", "a node's name",
		"an element type", "a constant", "a tuple", "a list", "a dict", "a call"}[k]
}

// Value is a literal of the Python text in args and kwargs, or a node's name.
type Value struct {
	Kind  Kind
	DType dtype.DType
	Col   int32 // 1-based byte column
	Int   int64 // integer, or 0 and 1 for truth values
	Float float64
	Text  string // string, name or constant
	List  []Value
	Keys  []string // keys of a dict; in a call "" for positional arguments
}

// MaxNesting bounds the nesting of Python text, and of documents that hold it, so that hostile
// input cannot exhaust the stack.
const MaxNesting = 100

// parser reads the subset of Python that repr prints for operator arguments.
type parser struct {
	s     string
	i     int
	depth int
	err   *Error
}

// Error is a syntax error at a 0-based byte offset.
type Error struct {
	At  int
	Msg string
}

func (p *parser) failf(at int, format string, args ...any) Value {
	if p.err == nil {
		p.err = &Error{at, fmt.Sprintf(format, args...)}
	}
	return Value{}
}

// ParsePrefix reads the value that the text starts with; rest is what follows.
func ParsePrefix(s string) (v Value, rest string, err *Error) {
	p := &parser{s: s}
	v = p.value()
	return v, s[p.i:], p.err
}

// Parse reads one value that fills the whole text. Linear in its length.
func Parse(s string) (Value, *Error) {
	p := &parser{s: s}
	v := p.value()
	if p.peek(); p.err == nil && p.i < len(s) {
		p.failf(p.i, "unexpected %s after the value", p.found())
	}
	return v, p.err
}

func (p *parser) peek() byte {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t' || p.s[p.i] == '\n') {
		p.i++
	}
	if p.i >= len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *parser) found() string {
	if p.i >= len(p.s) {
		return "the end of the text"
	}
	r, _ := utf8.DecodeRuneInString(p.s[p.i:])
	return strconv.QuoteRune(r)
}

func (p *parser) value() Value {
	if p.err != nil {
		return Value{}
	}
	if p.depth++; p.depth > MaxNesting {
		return p.failf(p.i, "nested more than %d deep", MaxNesting)
	}
	defer func() { p.depth-- }()
	c := p.peek()
	at := p.i
	var v Value
	switch {
	case c == '(':
		v = p.tuple()
	case c == '[':
		p.i++
		v = Value{Kind: List}
		v.List, _ = p.items(']', "in a list")
	case c == '{':
		v = p.dict()
	case c == '\'' || c == '"':
		v = Value{Kind: Str, Text: p.str(c)}
	case c == '<':
		v = p.repr()
	case c == '.' && strings.HasPrefix(p.s[p.i:], "..."):
		p.i += 3
		v = Value{Kind: Const, Text: "..."}
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		v = p.number()
	case NameByte(c):
		v = p.named()
	default:
		return p.failf(p.i, "expected a value, found %s", p.found())
	}
	v.Col = int32(at + 1)
	return v
}

// items reads comma-separated values up to the closing byte; comma says whether
// one followed the last value.
func (p *parser) items(end byte, where string) (list []Value, comma bool) {
	for p.err == nil {
		if p.peek() == end && p.i < len(p.s) {
			p.i++
			return list, comma
		}
		if len(list) > 0 && !comma {
			p.failf(p.i, "expected ',' or '%c' %s, found %s", end, where, p.found())
			return list, false
		}
		list = append(list, p.value())
		comma = p.peek() == ','
		if comma {
			p.i++
		}
	}
	return list, comma
}

func (p *parser) tuple() Value {
	p.i++
	list, comma := p.items(')', "in a tuple")
	if len(list) == 1 && !comma { // parentheses around a value
		return list[0]
	}
	return Value{Kind: Tuple, List: list}
}

func (p *parser) dict() Value {
	p.i++
	v := Value{Kind: Dict}
	for p.err == nil {
		c := p.peek()
		if c == '}' {
			p.i++
			return v
		}
		if len(v.List) > 0 {
			if c != ',' {
				return p.failf(p.i, "expected ',' or '}' in a dict, found %s", p.found())
			}
			p.i++
			if c = p.peek(); c == '}' {
				continue
			}
		}
		if c != '\'' && c != '"' {
			return p.failf(p.i, "expected a quoted key, found %s", p.found())
		}
		key := p.str(c)
		if p.err == nil && p.peek() != ':' {
			return p.failf(p.i, "expected ':' after a key, found %s", p.found())
		}
		p.i++
		v.Keys = append(v.Keys, key)
		v.List = append(v.List, p.value())
	}
	return v
}

// repr reads a text in angle brackets, as Python prints objects.
func (p *parser) repr() Value {
	start, open := p.i, 0
	for ; p.i < len(p.s); p.i++ {
		switch p.s[p.i] {
		case '<':
			open++
		case '>':
			if open--; open == 0 {
				p.i++
				return Value{Kind: Const, Text: p.s[start:p.i]}
			}
		}
	}
	return p.failf(start, "'<' is not closed")
}

func (p *parser) str(quote byte) string {
	start := p.i
	p.i++
	from := p.i
	for p.i < len(p.s) && p.s[p.i] != quote && p.s[p.i] != '\\' {
		p.i++
	}
	if p.i < len(p.s) && p.s[p.i] == quote {
		p.i++
		return p.s[from : p.i-1]
	}
	out := []byte(p.s[from:min(p.i, len(p.s))])
	for p.i < len(p.s) {
		c := p.s[p.i]
		p.i++
		switch {
		case c == quote:
			return string(out)
		case c != '\\' || p.i >= len(p.s):
			out = append(out, c)
			continue
		}
		c = p.s[p.i]
		p.i++
		switch c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case '\\', '\'', '"':
			out = append(out, c)
		default: // hexadecimal escapes stand in no operator's arguments; keep them as they are
			out = append(out, '\\', c)
		}
	}
	p.failf(start, "a string does not end")
	return ""
}

func (p *parser) number() Value {
	start := p.i
	if c := p.s[p.i]; c == '-' || c == '+' {
		p.i++
		if strings.HasPrefix(p.s[p.i:], "inf") {
			p.i += 3
			f := math.Inf(1)
			if c == '-' {
				f = math.Inf(-1)
			}
			return Value{Kind: Float, Float: f}
		}
	}
	p.digits()
	if n := p.i; n+1 < len(p.s) && (p.s[n] == '+' || p.s[n] == '-') && p.s[n+1] >= '0' && p.s[n+1] <= '9' { // of a complex number
		if p.i++; !strings.HasSuffix(p.digits(), "j") {
			p.i = n
		}
	}
	t := p.s[start:p.i]
	if strings.HasSuffix(t, "j") {
		return Value{Kind: Const, Text: t}
	}
	if !strings.ContainsAny(t, ".eE") {
		n, err := strconv.ParseInt(t, 10, 64)
		if err != nil {
			return p.failf(start, "%s is not an integer of 64 bits", Clip(t))
		}
		return Value{Kind: Int, Int: n}
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil {
		return p.failf(start, "%s is not a number of 64 bits", Clip(t))
	}
	return Value{Kind: Float, Float: f}
}

// digits passes over what a number is made of, and gives it.
func (p *parser) digits() string {
	start := p.i
	for p.i < len(p.s) {
		c := p.s[p.i]
		exp := (c == '-' || c == '+') && p.i > start && (p.s[p.i-1] == 'e' || p.s[p.i-1] == 'E')
		if !exp && c != '.' && c != 'e' && c != 'E' && c != 'j' && (c < '0' || c > '9') {
			break
		}
		p.i++
	}
	return p.s[start:p.i]
}

// NameByte reports whether names of nodes have a byte.
func NameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= utf8.RuneSelf
}

// named reads a keyword, a node's name, a dotted constant or a call.
func (p *parser) named() Value {
	start := p.i
	for p.i < len(p.s) && (NameByte(p.s[p.i]) || p.s[p.i] == '.') {
		p.i++
	}
	name := p.s[start:p.i]
	if p.peek() == '(' {
		return p.call(name)
	}
	switch name {
	case "None":
		return Value{Kind: None}
	case "True":
		return Value{Kind: Bool, Int: 1}
	case "False":
		return Value{Kind: Bool}
	case "inf":
		return Value{Kind: Float, Float: math.Inf(1)}
	case "nan":
		return Value{Kind: Float, Float: math.NaN()}
	}
	if !strings.Contains(name, ".") {
		return Value{Kind: Name, Text: name}
	}
	if t, ok := strings.CutPrefix(name, "torch."); ok {
		if dt, ok := ParseDType(t); ok {
			return Value{Kind: DType, DType: dt, Text: t}
		}
	}
	return Value{Kind: Const, Text: name}
}

// call reads the arguments of name(...). A keyword there is not a node.
func (p *parser) call(name string) Value {
	p.i++
	v := Value{Kind: Call, Text: name}
	for p.err == nil {
		c := p.peek()
		if c == ')' {
			p.i++
			return v
		}
		if len(v.List) > 0 {
			if c != ',' {
				return p.failf(p.i, "expected ',' or ')' in a call, found %s", p.found())
			}
			p.i++
			if p.peek() == ')' {
				continue
			}
		}
		key := ""
		p.peek()
		j := p.i
		for j < len(p.s) && NameByte(p.s[j]) {
			j++
		}
		if j > p.i && j < len(p.s) && p.s[j] == '=' {
			key = p.s[p.i:j]
			p.i = j + 1
		}
		v.Keys = append(v.Keys, key)
		v.List = append(v.List, p.value())
	}
	return v
}

// Clip shortens text from a file for an error message.
func Clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
