package fx

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// pyKind is the kind of a Python value.
type pyKind uint8

const (
	pyNone pyKind = iota
	pyBool
	pyInt
	pyFloat
	pyStr
	pyName  // a bare name: a node
	pyDType // torch.float32
	pyConst // another dotted name or a repr that no operator needs: torch.strided
	pyTuple
	pyList
	pyDict // keys in kw, values in list
	pyCall // device(type='cuda', index=0): name in s; keywords in kw, values in list
)

func (k pyKind) String() string {
	return [...]string{"None", "a truth value", "an integer", "a number", "a string", "a node's name",
		"an element type", "a constant", "a tuple", "a list", "a dict", "a call"}[k]
}

// pyVal is a literal of the Python text in args and kwargs, or a node's name.
type pyVal struct {
	kind pyKind
	dt   dtype.DType
	col  int32 // 1-based byte column
	i    int64 // integer, or 0 and 1 for truth values
	f    float64
	s    string // string, name or constant
	list []pyVal
	kw   []string // keys of a dict; in a call "" for positional arguments
}

// pyParser reads the subset of Python that repr prints for operator arguments.
type pyParser struct {
	s     string
	i     int
	depth int
	err   *pyError
}

// pyError is a syntax error at a 0-based byte offset.
type pyError struct {
	at  int
	msg string
}

func (p *pyParser) failf(at int, format string, args ...any) pyVal {
	if p.err == nil {
		p.err = &pyError{at, fmt.Sprintf(format, args...)}
	}
	return pyVal{}
}

// parsePy reads one value that fills the whole text. Linear in its length.
func parsePy(s string) (pyVal, *pyError) {
	p := &pyParser{s: s}
	v := p.value()
	if p.peek(); p.err == nil && p.i < len(s) {
		p.failf(p.i, "unexpected %s after the value", p.found())
	}
	return v, p.err
}

func (p *pyParser) peek() byte {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t' || p.s[p.i] == '\n') {
		p.i++
	}
	if p.i >= len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *pyParser) found() string {
	if p.i >= len(p.s) {
		return "the end of the text"
	}
	r, _ := utf8.DecodeRuneInString(p.s[p.i:])
	return strconv.QuoteRune(r)
}

func (p *pyParser) value() pyVal {
	if p.err != nil {
		return pyVal{}
	}
	if p.depth++; p.depth > maxNesting {
		return p.failf(p.i, "nested more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	c := p.peek()
	at := p.i
	var v pyVal
	switch {
	case c == '(':
		v = p.tuple()
	case c == '[':
		p.i++
		v = pyVal{kind: pyList}
		v.list, _ = p.items(']', "in a list")
	case c == '{':
		v = p.dict()
	case c == '\'' || c == '"':
		v = pyVal{kind: pyStr, s: p.str(c)}
	case c == '<':
		v = p.repr()
	case c == '.' && strings.HasPrefix(p.s[p.i:], "..."):
		p.i += 3
		v = pyVal{kind: pyConst, s: "..."}
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		v = p.number()
	case nameByte(c):
		v = p.named()
	default:
		return p.failf(p.i, "expected a value, found %s", p.found())
	}
	v.col = int32(at + 1)
	return v
}

// items reads comma-separated values up to the closing byte; comma says whether
// one followed the last value.
func (p *pyParser) items(end byte, where string) (list []pyVal, comma bool) {
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

func (p *pyParser) tuple() pyVal {
	p.i++
	list, comma := p.items(')', "in a tuple")
	if len(list) == 1 && !comma { // parentheses around a value
		return list[0]
	}
	return pyVal{kind: pyTuple, list: list}
}

func (p *pyParser) dict() pyVal {
	p.i++
	v := pyVal{kind: pyDict}
	for p.err == nil {
		c := p.peek()
		if c == '}' {
			p.i++
			return v
		}
		if len(v.list) > 0 {
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
		v.kw = append(v.kw, key)
		v.list = append(v.list, p.value())
	}
	return v
}

// repr reads a text in angle brackets, as Python prints objects.
func (p *pyParser) repr() pyVal {
	start, open := p.i, 0
	for ; p.i < len(p.s); p.i++ {
		switch p.s[p.i] {
		case '<':
			open++
		case '>':
			if open--; open == 0 {
				p.i++
				return pyVal{kind: pyConst, s: p.s[start:p.i]}
			}
		}
	}
	return p.failf(start, "'<' is not closed")
}

func (p *pyParser) str(quote byte) string {
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

func (p *pyParser) number() pyVal {
	start := p.i
	if c := p.s[p.i]; c == '-' || c == '+' {
		p.i++
		if strings.HasPrefix(p.s[p.i:], "inf") {
			p.i += 3
			f := math.Inf(1)
			if c == '-' {
				f = math.Inf(-1)
			}
			return pyVal{kind: pyFloat, f: f}
		}
	}
	for p.i < len(p.s) {
		c := p.s[p.i]
		exp := (c == '-' || c == '+') && (p.s[p.i-1] == 'e' || p.s[p.i-1] == 'E')
		if !exp && c != '.' && c != 'e' && c != 'E' && c != 'j' && (c < '0' || c > '9') {
			break
		}
		p.i++
	}
	t := p.s[start:p.i]
	if strings.HasSuffix(t, "j") {
		return pyVal{kind: pyConst, s: t}
	}
	if !strings.ContainsAny(t, ".eE") {
		n, err := strconv.ParseInt(t, 10, 64)
		if err != nil {
			return p.failf(start, "%s is not an integer of 64 bits", clip(t))
		}
		return pyVal{kind: pyInt, i: n}
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil {
		return p.failf(start, "%s is not a number of 64 bits", clip(t))
	}
	return pyVal{kind: pyFloat, f: f}
}

func nameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= utf8.RuneSelf
}

// named reads a keyword, a node's name, a dotted constant or a call.
func (p *pyParser) named() pyVal {
	start := p.i
	for p.i < len(p.s) && (nameByte(p.s[p.i]) || p.s[p.i] == '.') {
		p.i++
	}
	name := p.s[start:p.i]
	if p.peek() == '(' {
		return p.call(name)
	}
	switch name {
	case "None":
		return pyVal{kind: pyNone}
	case "True":
		return pyVal{kind: pyBool, i: 1}
	case "False":
		return pyVal{kind: pyBool}
	case "inf":
		return pyVal{kind: pyFloat, f: math.Inf(1)}
	case "nan":
		return pyVal{kind: pyFloat, f: math.NaN()}
	}
	if !strings.Contains(name, ".") {
		return pyVal{kind: pyName, s: name}
	}
	if t, ok := strings.CutPrefix(name, "torch."); ok {
		if dt, ok := parseDType(t); ok {
			return pyVal{kind: pyDType, dt: dt, s: t}
		}
	}
	return pyVal{kind: pyConst, s: name}
}

// call reads the arguments of name(...). A keyword there is not a node.
func (p *pyParser) call(name string) pyVal {
	p.i++
	v := pyVal{kind: pyCall, s: name}
	for p.err == nil {
		c := p.peek()
		if c == ')' {
			p.i++
			return v
		}
		if len(v.list) > 0 {
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
		for j < len(p.s) && nameByte(p.s[j]) {
			j++
		}
		if j > p.i && j < len(p.s) && p.s[j] == '=' {
			key = p.s[p.i:j]
			p.i = j + 1
		}
		v.kw = append(v.kw, key)
		v.list = append(v.list, p.value())
	}
	return v
}

// dtypeNames pairs element types with PyTorch's names for them, its own first.
var dtypeNames = [...]struct {
	d     dtype.DType
	names []string
}{
	{dtype.F64, []string{"float64", "double"}}, {dtype.F32, []string{"float32", "float"}},
	{dtype.F16, []string{"float16", "half"}}, {dtype.BF16, []string{"bfloat16"}},
	{dtype.I64, []string{"int64", "long"}}, {dtype.I32, []string{"int32", "int"}},
	{dtype.I16, []string{"int16", "short"}}, {dtype.I8, []string{"int8"}},
	{dtype.U64, []string{"uint64"}}, {dtype.U32, []string{"uint32"}}, {dtype.U16, []string{"uint16"}},
	{dtype.U8, []string{"uint8"}}, {dtype.Bool, []string{"bool"}},
	{dtype.F8E4M3FN, []string{"float8_e4m3fn"}}, {dtype.F8E5M2, []string{"float8_e5m2"}}, {dtype.F8E8M0FNU, []string{"float8_e8m0fnu"}},
	{dtype.F8E4M3FNUZ, []string{"float8_e4m3fnuz"}}, {dtype.F8E5M2FNUZ, []string{"float8_e5m2fnuz"}},
}

// parseDType returns the element type of PyTorch's name for it.
func parseDType(s string) (dtype.DType, bool) {
	for _, t := range dtypeNames {
		if slices.Contains(t.names, s) {
			return t.d, true
		}
	}
	return dtype.Invalid, false
}

// torchDType is PyTorch's name of an element type.
func torchDType(d dtype.DType) string {
	for _, t := range dtypeNames {
		if t.d == d {
			return t.names[0]
		}
	}
	return d.String()
}
