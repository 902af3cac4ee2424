package ir

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/seed-ee968945/concert/internal/text"
)

// Text form. One line is one node, so that a change is a one-line diff:
//
//	world 8
//	group @tp = [[0, 1, 2, 3], [4, 5, 6, 7]]
//	sym s0 hint 16 max 64
//
//	func @mlp(%x: bf16[256,4096] !{role="data"}, %w: bf16[4096,512]) -> (bf16[256,512]) {
//	  %h = matmul %x, %w : bf16[256,512] ms 0.0102
//	  %r = all_reduce.sum %h on @tp : async bf16[256,512] ms 0.0311
//	  %y = wait_tensor %r : bf16[256,512]
//	  return %y
//	}
//
// A node of several results is written %n:2 = ..., its results %n#0 and %n#1; one
// without results %n:0 = .... %h@n is the version of %h that %n made by writing in
// place; see versions.go.
// Names hold letters, digits, '_', '.' and '$', or anything printable in quotes, as in
// %"fusion/add-1". {...} holds attributes, !{...} annotations, ms the attached cost. Comments run
// from // to the end of the line. Print and Parse are exact inverses, comments
// and blank lines aside.

// WriteTo writes the module's text form.
func (m *Module) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(m.AppendText(nil))
	return int64(n), err
}

// String returns the module's text form.
func (m *Module) String() string { return string(m.AppendText(nil)) }

// Digest is the SHA-256 of the text form in hexadecimal: the identity of a program.
func (m *Module) Digest() string {
	h := sha256.Sum256(m.AppendText(nil))
	return hex.EncodeToString(h[:])
}

// AppendText appends the module's text form.
func (m *Module) AppendText(b []byte) []byte {
	b = append(b, "world "...)
	b = strconv.AppendInt(b, int64(m.World), 10)
	b = append(b, '\n')
	for _, g := range m.groups {
		b = append(text.AppendName(append(b, "group @"...), g.Name), " = "...)
		b = append(text.AppendRanks(b, g.Ranks), '\n')
	}
	for _, s := range m.syms {
		b = append(append(append(b, "sym "...), s.Name...), " hint "...)
		b = strconv.AppendInt(b, s.Hint, 10)
		if s.Min != 0 {
			b = strconv.AppendInt(append(b, " min "...), s.Min, 10)
		}
		b = strconv.AppendInt(append(b, " max "...), s.Max, 10)
		b = append(b, '\n')
	}
	for _, c := range m.checks {
		b = append(c.Size.AppendText(append(b, "need "...)), '\n')
	}
	for _, s := range m.stages {
		b = text.AppendName(append(b, "stages @"...), s.Name)
		b = append(text.AppendName(append(b, " on @"...), s.Group.Name), " = "...)
		for i, f := range s.Funcs {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = text.AppendName(append(b, '@'), f)
		}
		b = append(b, '\n')
	}
	for _, f := range m.funcs {
		b = append(b, '\n')
		b = f.AppendText(b)
	}
	return b
}

// AppendText appends the function's text form.
func (f *Func) AppendText(b []byte) []byte {
	b = append(text.AppendName(append(b, "func @"...), f.Name), '(')
	order := f.Order()
	inputs := f.Inputs()
	for i, n := range inputs {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(text.AppendName(append(b, '%'), n.name), ": "...)
		b = n.results[0].typ.AppendText(b)
		if len(n.attrs) > 0 {
			b = n.attrs.AppendText(append(b, ' '))
		}
		b = n.appendTail(b)
	}
	b = append(b, ") -> ("...)
	if r := f.Return(); r != nil {
		for i, v := range r.args {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = v.typ.AppendText(b)
		}
	}
	b = append(b, ") {\n"...)
	for _, n := range order[len(inputs):] {
		b = n.AppendText(append(b, "  "...))
		b = append(b, '\n')
	}
	return append(b, "}\n"...)
}

// String returns the node's line of text.
func (n *Node) String() string { return string(n.AppendText(nil)) }

// AppendText appends the node's line of text, without indent or line end.
func (n *Node) AppendText(b []byte) []byte {
	if n.op != OpReturn {
		b = text.AppendName(append(b, '%'), n.name)
		if count := n.declaredResults(); count != 1 {
			b = strconv.AppendInt(append(b, ':'), int64(count), 10)
		}
		b = append(b, " = "...)
	}
	b = append(b, n.op.Name()...)
	attrs := n.attrs
	if n.op.info().Reduces && n.Reduction().Valid() {
		b = append(append(b, '.'), n.Reduction()...)
		attrs = attrs.Without("reduce")
	}
	for i, v := range n.DeclaredArgs() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, ' ')
		b = v.appendName(b)
	}
	if n.group != nil {
		b = text.AppendName(append(b, " on @"...), n.group.Name)
	}
	if len(attrs) > 0 {
		b = attrs.AppendText(append(b, ' '))
	}
	for i, v := range n.DeclaredResults() {
		if i == 0 {
			b = append(b, " : "...)
		} else {
			b = append(b, ", "...)
		}
		b = v.typ.AppendText(b)
	}
	return n.appendTail(b)
}

// appendTail appends the cost and the annotations.
func (n *Node) appendTail(b []byte) []byte {
	if ms, ok := n.Cost(); ok {
		b = strconv.AppendFloat(append(b, " ms "...), ms, 'g', -1, 64)
	}
	if len(n.meta) > 0 {
		b = n.meta.AppendText(append(b, " !"...))
	}
	for i, o := range n.after {
		if i == 0 {
			b = append(b, " after %"...)
		} else {
			b = append(b, ", %"...)
		}
		b = text.AppendName(b, o.name)
	}
	return b
}

func (v *Value) appendName(b []byte) []byte {
	if v.IsVersion() {
		return text.AppendName(append(v.Base().appendName(b), '@'), v.def.name)
	}
	b = text.AppendName(append(b, '%'), v.def.name)
	if v.def.declaredResults() != 1 {
		b = strconv.AppendInt(append(b, '#'), int64(v.index), 10)
	}
	return b
}
