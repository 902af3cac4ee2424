package stablehlo

import "strings"

// dict reads named attributes up to a closing bracket; the opening one was read.
func (p *parser) dict(closing string) attrs {
	var out attrs
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	for p.err == nil && !p.closed(closing) {
		if len(out) > 0 && !p.expect(",", "between attributes") {
			return out
		}
		at := p.i
		name := ""
		if p.peek() == '"' {
			name = p.str()
		} else if name = p.word(); name == "" {
			p.failf(p.i, "expected the name of an attribute, found %s", p.found())
		}
		v := attr{Kind: kindUnit, at: at}
		if p.eat("=") {
			v = p.attr(true)
		}
		out = append(out, named{name, v})
	}
	return out
}

// attr reads an attribute. typed: a number may be followed by its type in any spelling;
// else only by a scalar type, since the type of the operation follows.
func (p *parser) attr(typed bool) attr {
	if !p.enter() {
		return attr{}
	}
	defer func() { p.depth-- }()
	p.space()
	a := attr{at: p.i}
	switch c := p.peek(); {
	case c == '"':
		a.Kind, a.Text = kindString, p.str()
		p.typeOf(&a, typed)
	case c == '@':
		p.i++
		a.Kind, a.Text = kindSymbol, p.suffix("a symbol")
		for p.err == nil && strings.HasPrefix(p.s[p.i:], "::@") {
			p.i += 3
			a.Text += "::" + p.suffix("a symbol")
		}
	case c == '[':
		p.i++
		a.Kind = kindList
		for p.err == nil && !p.eat("]") {
			if len(a.List) > 0 && !p.expect(",", "in a list") {
				break
			}
			e := p.attr(typed)
			a.List, a.parts = append(a.List, e), a.parts+e.parts+1
		}
	case c == '{':
		p.i++
		a.Kind = kindDict
		a.Dict = p.dict("}")
		for _, e := range a.Dict {
			a.parts += e.Val.parts + 1
		}
	case c == '#':
		p.named(&a)
	case c == '!' || c == '(':
		t := p.typ()
		a.Kind, a.Type = kindTyped, &t
	case c == '<':
		p.i++
		a.Kind = kindOpaque
		a.start, a.end = p.balanced(a.at, '>')
	case c == '-' && strings.HasPrefix(p.s[p.i:], "-i"): // -inf
		p.i++
		a.Kind, a.Text = kindWord, "-"+p.word()
	case digit(c) || c == '-' || c == '+':
		if a.Kind, a.Text = kindNumber, p.number(); a.Text == "" {
			p.failf(p.i, "expected a number, found %s", p.found())
		}
		p.typeOf(&a, typed)
	case letter(c):
		p.wordAttr(&a, typed)
	default:
		p.failf(p.i, "expected an attribute, found %s", p.found())
	}
	return a
}

// typeOf reads the type behind a number or string, if there is one.
func (p *parser) typeOf(a *attr, typed bool) {
	at := p.i // a new line must not be taken for this one
	if p.peek() != ':' || strings.HasPrefix(p.s[p.i:], "::") {
		p.i = at
		return
	}
	p.i++
	if !typed {
		if c := p.peek(); !letter(c) || p.ahead("tensor") || p.ahead("tuple") {
			p.i = at
			return
		}
	}
	t := p.typ()
	a.Type = &t
}

// named reads an attribute that starts with #: one of a dialect, or an alias.
func (p *parser) named(a *attr) {
	p.i++
	a.Kind, a.Text = kindOpaque, p.suffix("an attribute")
	if p.i < len(p.s) && p.s[p.i] == '<' {
		p.i++
		a.start, a.end = p.balanced(p.i-1, '>')
		return
	}
	if v, ok := p.alias[a.Text]; ok {
		if p.meant += v.parts + 1; p.meant > maxMeant+len(p.s) {
			p.failf(a.at, "names stand for more than %d attributes", maxMeant)
			return
		}
		*a = v
	}
}

// maxMeant bounds what the names in a text stand for, beside its length: each may stand for
// others, twice.
const maxMeant = 1 << 16

// wordAttr reads an attribute that starts with a word.
func (p *parser) wordAttr(a *attr, typed bool) {
	at := p.i
	w := p.word()
	switch w {
	case "true", "false":
		a.Kind, a.Text = kindBool, w
		return
	case "unit":
		return
	case "dense", "array", "dense_resource", "opaque", "sparse":
		if p.i < len(p.s) && p.s[p.i] == '<' {
			p.i++
			a.Kind, a.Text = kindDense, w
			a.start, a.end = p.balanced(p.i-1, '>')
			if w != "array" && p.expect(":", "before the type of the elements") {
				t := p.typ()
				a.Type = &t
			}
			return
		}
	case "affine_map", "affine_set", "loc", "strided":
		if c := p.peek(); c == '<' || c == '(' {
			p.i++
			a.Kind, a.Text = kindOpaque, w
			a.start, a.end = p.balanced(p.i-1, closingOf(c))
			return
		}
	case "tensor", "tuple", "complex", "memref", "vector", "none", "index":
		p.i = at
		t := p.typ()
		a.Kind, a.Type = kindTyped, &t
		return
	}
	if scalarType(w) {
		a.Kind, a.Type = kindTyped, &Type{Text: w}
		return
	}
	a.Kind, a.Text = kindWord, w
	if typed && p.peek() == '<' { // of a dialect inside one of its own
		p.i++
		a.Kind = kindOpaque
		a.start, a.end = p.balanced(p.i-1, '>')
	}
}

// scalarType reports whether a word is the name of a number's type.
func scalarType(w string) bool {
	if w == "bf16" || w == "tf32" {
		return true
	}
	t := strings.TrimLeft(w, "sui")
	if t == w {
		if t = strings.TrimPrefix(w, "f"); t == w {
			return false
		}
		return t == "16" || t == "32" || t == "64" || t == "80" || t == "128" || len(t) > 1 && digit(t[0]) && strings.Contains(t, "E")
	}
	if !strings.HasSuffix(w[:len(w)-len(t)], "i") || t == "" {
		return false
	}
	for _, c := range []byte(t) {
		if !digit(c) {
			return false
		}
	}
	return true
}

// typ reads a type.
func (p *parser) typ() Type {
	if !p.enter() {
		return Type{}
	}
	defer func() { p.depth-- }()
	p.space()
	at := p.i
	switch c := p.peek(); {
	case c == '!':
		p.i++
		p.suffix("a type")
		p.angle()
	case c == '(': // a function's
		p.types()
		p.expect("->", "in the type of a function")
		p.resultTypes()
	case p.keyword("tensor"):
		return p.tensor()
	case p.keyword("tuple"):
		p.expect("<", "behind tuple")
		t := Type{}
		for p.err == nil && !p.eat(">") {
			if len(t.Tuple) > 0 && !p.expect(",", "between the types of a tuple") {
				break
			}
			t.Tuple = append(t.Tuple, p.typ())
		}
		return t
	case letter(c):
		p.word()
		p.angle()
	default:
		p.failf(p.i, "expected a type, found %s", p.found())
	}
	return Type{Text: p.s[at:max(at, p.i)]}
}

// angle skips what stands in angle brackets, if they are next.
func (p *parser) angle() {
	if p.i < len(p.s) && p.s[p.i] == '<' {
		p.i++
		p.balanced(p.i-1, '>')
	}
}

// tensor reads a tensor type behind the word.
func (p *parser) tensor() Type {
	t := Type{Tensor: true}
	if !p.expect("<", "behind tensor") {
		return t
	}
	for p.err == nil {
		c := p.peek()
		if c == '*' {
			p.failf(p.i, "a tensor without a rank")
			return t
		}
		if c == '?' {
			p.i++
			t.Shape = append(t.Shape, -1)
		} else if digit(c) {
			at, n := p.i, int64(0)
			for ; p.i < len(p.s) && digit(p.s[p.i]); p.i++ {
				if n = n*10 + int64(p.s[p.i]-'0'); n > 1<<40 {
					p.failf(at, "a dimension larger than 2^40")
					return t
				}
			}
			t.Shape = append(t.Shape, n)
		} else {
			break
		}
		p.expect("x", "behind a dimension")
	}
	at := p.i
	if p.peek() == '!' {
		p.i++
	}
	p.word()
	p.angle()
	t.Elem = p.s[min(at, p.i):p.i]
	if t.Elem == "" {
		p.failf(at, "expected the type of the elements, found %s", p.found())
	}
	if p.eat(",") { // an encoding: bounds, layouts
		p.attr(true)
	}
	p.expect(">", "behind the type of the elements")
	if len(t.Shape) > maxRank {
		p.failf(at, "a tensor of %d dimensions, %d at most", len(t.Shape), maxRank)
	}
	return t
}

// maxRank bounds the dimensions of a tensor.
const maxRank = 64

// types reads types in parentheses, each perhaps with attributes.
func (p *parser) types() []Type {
	out := []Type{}
	if !p.expect("(", "before types") {
		return out
	}
	for p.err == nil && !p.eat(")") {
		if len(out) > 0 && !p.expect(",", "between types") {
			break
		}
		out = append(out, p.typ())
	}
	return out
}

// resultTypes reads one type, or several in parentheses.
func (p *parser) resultTypes() []Type {
	if p.peek() == '(' {
		return p.types()
	}
	return []Type{p.typ()}
}

// closed reads a closing bracket if it is next; an empty one is the end of the text.
func (p *parser) closed(closing string) bool {
	if closing == "" {
		return p.peek() == 0
	}
	return p.eat(closing)
}
