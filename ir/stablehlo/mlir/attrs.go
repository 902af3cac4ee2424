package mlir

import "strings"

// dict reads named attributes up to a closing bracket; the opening one was read.
func (p *Parser) dict(closing string) Attrs {
	var out Attrs
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	for p.Err == nil && !p.closed(closing) {
		if len(out) > 0 && (!p.Expect(",", "between attributes") || closing == "" && p.Peek() == 0) { // structures may end in a comma
			return out
		}
		at := p.Pos
		name := ""
		if p.Peek() == '"' {
			name = p.Str()
		} else if name = p.Word(); name == "" {
			p.Failf(p.Pos, "expected the name of an attribute, found %s", p.found())
		}
		v := Attr{Kind: KindUnit, At: at}
		if p.Eat("=") {
			v = p.Attr(true)
		}
		out = append(out, Named{name, v})
	}
	return out
}

// Attr reads an attribute. typed: a number may be followed by its type in any spelling;
// else only by a scalar type, since the type of the operation follows.
func (p *Parser) Attr(typed bool) Attr {
	if !p.enter() {
		return Attr{}
	}
	defer func() { p.depth-- }()
	p.space()
	a := Attr{At: p.Pos}
	switch c := p.Peek(); {
	case c == '"':
		a.Kind, a.Text = KindString, p.Str()
		p.typeOf(&a, typed)
	case c == '@':
		p.Pos++
		a.Kind, a.Text = KindSymbol, p.Suffix("a symbol")
		for p.Err == nil && strings.HasPrefix(p.s[p.Pos:], "::@") {
			p.Pos += 3
			a.Text += "::" + p.Suffix("a symbol")
		}
	case c == '[':
		p.Pos++
		a.Kind = KindList
		for p.Err == nil && !p.Eat("]") {
			if len(a.List) > 0 && !p.Expect(",", "in a list") {
				break
			}
			e := p.Attr(typed)
			a.List, a.parts = append(a.List, e), a.parts+e.parts+1
		}
	case c == '{':
		p.Pos++
		a.Kind = KindDict
		a.Dict = p.dict("}")
		for _, e := range a.Dict {
			a.parts += e.Val.parts + 1
		}
	case c == '#':
		p.named(&a)
	case c == '!' || c == '(':
		t := p.typ()
		a.Kind, a.Type = KindTyped, &t
	case c == '<':
		p.Pos++
		a.Kind = KindOpaque
		a.Start, a.End = p.balanced(a.At, '>')
	case c == '-' && strings.HasPrefix(p.s[p.Pos:], "-i"): // -inf
		p.Pos++
		a.Kind, a.Text = KindWord, "-"+p.Word()
	case digit(c) || c == '-' || c == '+':
		if a.Kind, a.Text = KindNumber, p.number(); a.Text == "" {
			p.Failf(p.Pos, "expected a number, found %s", p.found())
		}
		p.typeOf(&a, typed)
	case Letter(c):
		p.wordAttr(&a, typed)
	default:
		p.Failf(p.Pos, "expected an attribute, found %s", p.found())
	}
	return a
}

// typeOf reads the type behind a number or string, if there is one.
func (p *Parser) typeOf(a *Attr, typed bool) {
	at := p.Pos // a new line must not be taken for this one
	if p.Peek() != ':' || strings.HasPrefix(p.s[p.Pos:], "::") {
		p.Pos = at
		return
	}
	p.Pos++
	if !typed {
		if c := p.Peek(); !Letter(c) || p.ahead("tensor") || p.ahead("tuple") {
			p.Pos = at
			return
		}
	}
	t := p.typ()
	a.Type = &t
}

// named reads an attribute that starts with #: one of a dialect, or an alias.
func (p *Parser) named(a *Attr) {
	p.Pos++
	a.Kind, a.Text = KindOpaque, p.Suffix("an attribute")
	if p.Pos < len(p.s) && p.s[p.Pos] == '<' {
		p.Pos++
		a.Start, a.End = p.balanced(p.Pos-1, '>')
		return
	}
	if v, ok := p.alias[a.Text]; ok {
		if p.meant += v.parts + 1; p.meant > maxMeant+len(p.s) {
			p.Failf(a.At, "names stand for more than %d attributes", maxMeant)
			return
		}
		*a = v
	}
}

// maxMeant bounds what the names in a text stand for, beside its length: each may stand for
// others, twice.
const maxMeant = 1 << 16

// wordAttr reads an attribute that starts with a word.
func (p *Parser) wordAttr(a *Attr, typed bool) {
	at := p.Pos
	w := p.Word()
	switch w {
	case "true", "false":
		a.Kind, a.Text = KindBool, w
		return
	case "unit":
		return
	case "dense", "array", "dense_resource", "opaque", "sparse":
		if p.Pos < len(p.s) && p.s[p.Pos] == '<' {
			p.Pos++
			a.Kind, a.Text = KindDense, w
			a.Start, a.End = p.balanced(p.Pos-1, '>')
			if w != "array" && p.Expect(":", "before the type of the elements") {
				t := p.typ()
				a.Type = &t
			}
			return
		}
	case "affine_map", "affine_set", "loc", "strided":
		if c := p.Peek(); c == '<' || c == '(' {
			p.Pos++
			a.Kind, a.Text = KindOpaque, w
			a.Start, a.End = p.balanced(p.Pos-1, closingOf(c))
			return
		}
	case "tensor", "tuple", "complex", "memref", "vector", "none", "index":
		p.Pos = at
		t := p.typ()
		a.Kind, a.Type = KindTyped, &t
		return
	}
	if scalarType(w) {
		a.Kind, a.Type = KindTyped, &Type{Text: w}
		return
	}
	a.Kind, a.Text = KindWord, w
	if typed && p.Peek() == '<' { // of a dialect inside one of its own
		p.Pos++
		a.Kind = KindOpaque
		a.Start, a.End = p.balanced(p.Pos-1, '>')
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
func (p *Parser) typ() Type {
	if !p.enter() {
		return Type{}
	}
	defer func() { p.depth-- }()
	p.space()
	at := p.Pos
	switch c := p.Peek(); {
	case c == '!':
		p.Pos++
		name := p.Suffix("a type")
		p.angle()
		if t, ok := p.typeAlias[name]; ok {
			return t
		}
	case c == '(': // a function's
		p.types()
		p.Expect("->", "in the type of a function")
		p.resultTypes()
	case p.Keyword("tensor"):
		return p.tensor()
	case p.Keyword("tuple"):
		p.Expect("<", "behind tuple")
		t := Type{}
		for p.Err == nil && !p.Eat(">") {
			if len(t.Tuple) > 0 && !p.Expect(",", "between the types of a tuple") {
				break
			}
			t.Tuple = append(t.Tuple, p.typ())
		}
		return t
	case Letter(c):
		p.Word()
		p.angle()
	default:
		p.Failf(p.Pos, "expected a type, found %s", p.found())
	}
	return Type{Text: p.s[at:max(at, p.Pos)]}
}

// angle skips what stands in angle brackets, if they are next.
func (p *Parser) angle() {
	if p.Pos < len(p.s) && p.s[p.Pos] == '<' {
		p.Pos++
		p.balanced(p.Pos-1, '>')
	}
}

// tensor reads a tensor type behind the word.
func (p *Parser) tensor() Type {
	t := Type{Tensor: true}
	if !p.Expect("<", "behind tensor") {
		return t
	}
	for p.Err == nil {
		c := p.Peek()
		if c == '*' {
			p.Failf(p.Pos, "a tensor without a rank")
			return t
		}
		if c == '?' {
			p.Pos++
			t.Shape = append(t.Shape, -1)
		} else if digit(c) {
			at, n := p.Pos, int64(0)
			for ; p.Pos < len(p.s) && digit(p.s[p.Pos]); p.Pos++ {
				if n = n*10 + int64(p.s[p.Pos]-'0'); n > 1<<40 {
					p.Failf(at, "a dimension larger than 2^40")
					return t
				}
			}
			t.Shape = append(t.Shape, n)
		} else {
			break
		}
		p.Expect("x", "behind a dimension")
	}
	at := p.Pos
	if p.Peek() == '!' {
		p.Pos++
	}
	p.Word()
	p.angle()
	t.Elem = p.s[min(at, p.Pos):p.Pos]
	if t.Elem == "" {
		p.Failf(at, "expected the type of the elements, found %s", p.found())
	}
	if p.Eat(",") { // an encoding: bounds, layouts
		p.Attr(true)
	}
	p.Expect(">", "behind the type of the elements")
	if len(t.Shape) > MaxRank {
		p.Failf(at, "a tensor of %d dimensions, %d at most", len(t.Shape), MaxRank)
	}
	return t
}

// MaxRank bounds the dimensions of a tensor.
const MaxRank = 64

// types reads types in parentheses, each perhaps with attributes.
func (p *Parser) types() []Type {
	out := []Type{}
	if !p.Expect("(", "before types") {
		return out
	}
	for p.Err == nil && !p.Eat(")") {
		if len(out) > 0 && !p.Expect(",", "between types") {
			break
		}
		out = append(out, p.typ())
	}
	return out
}

// resultTypes reads one type, or several in parentheses.
func (p *Parser) resultTypes() []Type {
	if p.Peek() == '(' {
		return p.types()
	}
	return []Type{p.typ()}
}

// closed reads a closing bracket if it is next; an empty one is the end of the text.
func (p *Parser) closed(closing string) bool {
	if closing == "" {
		return p.Peek() == 0
	}
	return p.Eat(closing)
}
