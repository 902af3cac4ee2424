package attr

import (
	"fmt"
	"strconv"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Scan reads a list's text form from the start of s, which must begin with '{',
// and returns the list and the number of bytes read. An error comes with the
// offset in s at which it was noticed.
func Scan(s string) (List, int, error) {
	p := scanner{s: s}
	l, err := p.list()
	return l, p.i, err
}

// scanner reads attribute text; i is the next byte.
type scanner struct {
	s string
	i int
}

func (p *scanner) space() {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t') {
		p.i++
	}
}

func (p *scanner) eat(c byte) bool {
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *scanner) word() string {
	p.space()
	j := p.i
	for p.i < len(p.s) {
		c := p.s[p.i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-' || c == '+' {
			p.i++
			continue
		}
		break
	}
	return p.s[j:p.i]
}

func (p *scanner) list() (List, error) {
	if !p.eat('{') {
		return nil, fmt.Errorf("expected '{'")
	}
	var l List
	for !p.eat('}') {
		if len(l) > 0 && !p.eat(',') {
			return nil, fmt.Errorf("expected ',' or '}' in attributes")
		}
		key := p.word()
		if key == "" {
			return nil, fmt.Errorf("expected an attribute name")
		}
		if l.Has(key) {
			return nil, fmt.Errorf("attribute %s given twice", key)
		}
		if !p.eat('=') {
			return nil, fmt.Errorf("expected '=' after attribute %s", key)
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		l = l.With(key, v)
	}
	return l, nil
}

func (p *scanner) value() (Value, error) {
	p.space()
	if p.i >= len(p.s) {
		return Value{}, fmt.Errorf("expected a value")
	}
	switch p.s[p.i] {
	case '"':
		s, err := p.quoted()
		return String(s), err
	case '[':
		return p.array()
	}
	start := p.i
	v, err := scalar(p.word())
	if err != nil {
		p.i = start
	}
	return v, err
}

func (p *scanner) quoted() (string, error) {
	q, err := strconv.QuotedPrefix(p.s[p.i:])
	if err != nil {
		return "", fmt.Errorf("malformed string")
	}
	p.i += len(q)
	return strconv.Unquote(q)
}

func (p *scanner) array() (Value, error) {
	p.eat('[')
	if p.eat(']') {
		return Ints(), nil
	}
	var ints []int64
	var strs []string
	for {
		p.space()
		if p.i < len(p.s) && p.s[p.i] == '"' && ints == nil {
			s, err := p.quoted()
			if err != nil {
				return Value{}, err
			}
			strs = append(strs, s)
		} else {
			start := p.i
			n, err := strconv.ParseInt(p.word(), 10, 64)
			if err != nil || strs != nil {
				p.i = start
				return Value{}, fmt.Errorf("a list holds integers or strings, not both")
			}
			ints = append(ints, n)
		}
		if p.eat(']') {
			break
		}
		if !p.eat(',') {
			return Value{}, fmt.Errorf("expected ',' or ']' in a list")
		}
	}
	if strs != nil {
		return Value{kind: KindStrings, strs: strs}, nil
	}
	return Value{kind: KindInts, ints: ints}, nil
}

// scalar reads a number, a truth value or an element type.
func scalar(w string) (Value, error) {
	switch w {
	case "true", "false":
		return Bool(w == "true"), nil
	case "":
		return Value{}, fmt.Errorf("expected a value")
	case "nan", "inf", "-inf":
		f, _ := strconv.ParseFloat(w, 64)
		return Float(f), nil
	}
	if d, ok := dtype.Parse(w); ok {
		return DType(d), nil
	}
	if n, err := strconv.ParseInt(w, 10, 64); err == nil {
		return Int(n), nil
	}
	if c := w[0]; c >= '0' && c <= '9' || c == '-' || c == '.' {
		if f, err := strconv.ParseFloat(w, 64); err == nil {
			return Float(f), nil
		}
	}
	return Value{}, fmt.Errorf("%q is not a number, true, false, a string, a list or an element type", w)
}
