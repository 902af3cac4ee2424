package hlo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file converts what the entry takes and gives: a parameter that is a tuple is an argument
// for each of its tensors.

// args are the arguments of a computation.
func (c *converter) args(k *computation, params []*instruction) ([]mlir.Arg, error) {
	var out []mlir.Arg
	for i, in := range params {
		if in == nil {
			return nil, errorAt(c.src, k.at, 1, "hlo", "computation %s has no parameter %d", k.name, i)
		}
		k.params = append(k.params, in.shape)
		if k != c.entry {
			out = append(out, mlir.Arg{Name: in.name, Type: c.typ(in.shape), At: in.at})
			continue
		}
		names := parts(in)
		for j, t := range tensors(in.shape, nil) {
			out = append(out, mlir.Arg{Name: names[j].Name, Type: c.typ(t.shape), At: in.at})
		}
	}
	return out, nil
}

// takes checks what a computation is given.
func (c *converter) takes(k *computation, args ...shape) error {
	if len(args) != len(k.params) {
		later := ""
		if strings.HasSuffix(c.in.opcode, "-start") {
			later = "; such that an update adds are not supported"
		}
		return c.errorf("computation %s takes %d operands, got %d%s", k.name, len(k.params), len(args), later)
	}
	for i, a := range args {
		if !a.like(k.params[i]) {
			return c.errorf("operand %d of computation %s is %s, got %s", i, k.name, c.typ(k.params[i]), c.typ(a))
		}
	}
	return nil
}

// gives checks what a computation gives where it is called.
func (c *converter) gives(k *computation, t shape) error {
	if !k.root.shape.like(t) {
		return c.errorf("computation %s gives %s, in the place of %s", k.name, c.typ(k.root.shape), c.typ(t))
	}
	return nil
}

// given are the types of the operands.
func (c *converter) given() []shape {
	out := make([]shape, len(c.in.operands))
	for i, o := range c.in.operands {
		out[i] = c.by[o].shape
	}
	return out
}

// parts are names for the tensors of a parameter, which the text does not have for those of a tuple.
func parts(in *instruction) []mlir.Use {
	var out []mlir.Use
	for _, t := range tensors(in.shape, nil) {
		name := in.name
		for _, i := range t.path {
			name += fmt.Sprintf("#%d", i)
		}
		out = append(out, mlir.Use{Name: name})
	}
	return out
}

// leaf is a tensor or a token of a value.
type leaf struct {
	shape
	path []int64 // in the tuples that the value is
}

// tensors are the leaves of a value.
func tensors(t shape, path []int64) []leaf {
	if !t.many {
		return []leaf{{t, path}}
	}
	var out []leaf
	for i, e := range t.tuple {
		out = append(out, tensors(e, append(path[:len(path):len(path)], int64(i)))...)
	}
	return out
}

// at is which leaf has a path; -1 if none does. Tokens count, or not.
func at(leaves []leaf, path []int64, tokens bool) int {
	n := 0
	for _, l := range leaves {
		if slices.Equal(l.path, path) {
			return n
		}
		if tokens || l.elem != "token" {
			n++
		}
	}
	return -1
}

// aliases gives arguments to the results that they lie in place of: {0}: (3, {1}, may-alias). One
// of another type is left as it is: its storage would be given only because it is as large.
func (c *converter) aliases(f *mlir.Func) error {
	a, ok := get(c.m.attrs, "input_output_alias")
	if !ok {
		return nil
	}
	results := tensors(c.entry.root.shape, nil)
	p := c.scan(a)
	p.expect("{", "before aliases")
	for first := true; p.err == nil && !p.eat("}"); first = false {
		if !first && !p.expect(",", "between aliases") {
			break
		}
		from := p.i
		path := p.list("{", "}")
		p.expect(":", "behind a result")
		p.expect("(", "before an argument")
		arg := p.integer("an argument")
		p.expect(",", "behind an argument")
		part := p.list("{", "}")
		if p.eat(",") {
			p.word()
		}
		p.expect(")", "behind an argument")
		if p.err != nil {
			break
		}
		if arg < 0 || arg >= int64(len(c.entry.params)) {
			p.failf(from, "there is no parameter %d", arg)
			break
		}
		in := tensors(c.entry.params[arg], nil)
		i, k := at(in, part, true), at(results, path, true)
		if i < 0 || k < 0 {
			p.failf(from, "parameter %d has no tensor %v, or the result none %v", arg, part, path)
			break
		}
		if !in[i].like(results[k].shape) {
			continue
		}
		for _, t := range c.entry.params[:arg] {
			i += len(tensors(t, nil))
		}
		to := mlir.Number(from, int64(at(results, path, false)))
		f.Args[i].Attrs = append(f.Args[i].Attrs, mlir.Named{Name: "tf.aliasing_output", Val: to})
	}
	return p.err
}
