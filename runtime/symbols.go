package runtime

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/program"
)

// Run-time sizes. A program has been proved to fit for every value of its symbols in
// Min..Max: no size or split is negative, and all tensors are within their buffers. So
// what a run checks is that the values are in their bounds and what the program's Needs
// say, and that inputs have the shapes that follow from them.

// SymbolError says that the value of a symbol is not in Min..Max, on this rank. Nothing has run, unless a tensor held it:
// then the world is broken. It comes within a CallError, which names rank and module in its text.
type SymbolError struct {
	Rank            int
	Module          string
	Symbol          string
	Value, Min, Max int64
	Input           string // the input whose shape gave the value; empty if Options.Symbols did
	Node            string // the IR node that read it from a tensor, while the run went on; else empty
}

// Error implements error.
func (e *SymbolError) Error() string {
	from := ""
	if e.Node != "" {
		from = fmt.Sprintf(" (read by %%%s)", e.Node)
	}
	if e.Input != "" {
		from = fmt.Sprintf(" (by the shape of input %s)", e.Input)
	}
	return fmt.Sprintf("symbol %s is %d, expected %d to %d%s", e.Symbol, e.Value, e.Min, e.Max, from)
}

// Is reports a match with ErrSymbol.
func (e *SymbolError) Is(t error) bool { return t == ErrSymbol }

// SizeError says that the values of the symbols on this rank leave an operation without
// what it takes: a slice that ends behind its operand's last row, say. Nothing has run. It
// comes within a CallError, which names rank and module in its text.
type SizeError struct {
	Rank         int
	Module, Node string           // the IR node; empty for a check of the module's own
	Size         string           // the expression that must not be negative
	Value        int64            // its value
	Symbols      map[string]int64 // by name
}

// Error implements error.
func (e *SizeError) Error() string {
	node := "the program"
	if e.Node != "" {
		node = "%" + e.Node
	}
	return fmt.Sprintf("%s needs %s not to be negative, which is %d with the sizes %v", node, e.Size, e.Value, e.Symbols)
}

// Is reports a match with ErrSymbol.
func (e *SizeError) Is(t error) bool { return t == ErrSymbol }

// needs checks values against what the module needs, as far as they are known.
func (m *Module) needs(rank int, syms map[string]int64) error {
	for _, n := range m.Needs {
		d, err := dim.Parse(n.Size)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(d.Symbols(nil), func(s string) bool { _, ok := syms[s]; return !ok && m.reads(s) }) {
			continue
		}
		v, ok := d.Eval(func(name string) (int64, bool) { v, ok := syms[name]; return v, ok })
		if !ok || v < 0 {
			return &SizeError{Rank: rank, Module: m.Name, Node: n.Node, Size: n.Size, Value: v, Symbols: maps.Clone(syms)}
		}
	}
	return nil
}

// reads reports whether a tensor holds the value of a symbol.
func (m *Module) reads(name string) bool {
	return slices.ContainsFunc(m.Symbols, func(s Symbol) bool { return s.Name == name && s.Read })
}

// symbols finds the value of every symbol on a rank but those that tensors hold.
func (m *Module) symbols(rank int, inputs []Value, given map[string]int64) (map[string]int64, error) {
	syms := make(map[string]int64, len(m.Symbols))
	solved, from, err := m.fromShapes(inputs, given)
	if err != nil {
		return nil, err
	}
	for _, s := range m.Symbols {
		v, ok := given[s.Name]
		if s.Read {
			if ok {
				return nil, fmt.Errorf("symbol %q: %w", s.Name, errGiven)
			}
			continue
		}
		if !ok {
			v, ok = solved[s.Name]
		}
		input := from[s.Name]
		if !ok {
			v = s.Hint
		}
		if v < s.Min || v > s.Max {
			return nil, &SymbolError{Rank: rank, Module: m.Name, Symbol: s.Name, Value: v, Min: s.Min, Max: s.Max, Input: input}
		}
		syms[s.Name] = v
	}
	for name := range given {
		if _, ok := syms[name]; !ok {
			return nil, fmt.Errorf("no symbol %q", name)
		}
	}
	return syms, m.needs(rank, syms)
}

// fromShapes finds the values of symbols in the shapes of inputs, with the inputs' names.
func (m *Module) fromShapes(inputs []Value, given map[string]int64) (values map[string]int64, from map[string]string, err error) {
	var open []string // without a value
	for _, s := range m.Symbols {
		if _, has := given[s.Name]; !has && !s.Read {
			open = append(open, s.Name)
		}
	}
	if len(open) == 0 {
		return given, nil, nil
	}
	var sizes []dim.Equation
	var of []string // the inputs that have them
	for i, q := range m.Inputs {
		for k, dims := range q.Dims {
			shape := inputs[i].Shape
			if w := inputs[i].Work; w != nil && k < len(w.tensors) {
				shape = w.tensors[k].Shape
			}
			for j := range dims {
				if len(shape) != len(dims) {
					continue
				}
				d, err := dim.Parse(dims[j])
				if err != nil {
					return nil, nil, fmt.Errorf("input %s: dimension %q: %w", q.Name, dims[j], err)
				}
				sizes, of = append(sizes, dim.Equation{Size: d, Value: shape[j]}), append(of, q.Name)
			}
		}
	}
	values, from = map[string]int64{}, map[string]string{}
	maps.Copy(values, given)
	for s, i := range dim.Solve(sizes, open, values) {
		from[s] = of[i]
	}
	return values, from, nil
}

// tensor is tensor i of q with symbols evaluated, in the rank's arena.
func (x *Exec) tensor(q *Param, i int) (Tensor, error) {
	lo, _, err := q.Tensors[i].Span()
	if err != nil {
		return Tensor{}, err
	}
	t := x.l.place(q.Tensors[i], lo)
	if t.Shape, err = x.evaluated(q.Dims, i, t.Shape); err == nil {
		t.Strides, err = x.evaluated(q.Strides, i, t.Strides)
	}
	return t, err
}

// tensors are those of q.
func (x *Exec) tensors(q *Param) ([]Tensor, error) {
	out := make([]Tensor, len(q.Tensors))
	for i := range out {
		var err error
		if out[i], err = x.tensor(q, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// evaluated are the sizes of the expressions for tensor i, which has them at their bounds.
func (x *Exec) evaluated(texts [][]string, i int, most []int64) ([]int64, error) {
	if texts == nil || texts[i] == nil {
		return most, nil
	}
	if len(texts[i]) != len(most) {
		return nil, fmt.Errorf("%d dimensions for %v", len(texts[i]), most)
	}
	out := make([]int64, len(most))
	for k, text := range texts[i] {
		d, err := dim.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("dimension %q: %w", text, err)
		}
		n, ok := d.Eval(x.symbol)
		if !ok || n < 0 || n > most[k] {
			return nil, fmt.Errorf("dimension %q is %d, expected 0 to %d", text, n, most[k])
		}
		out[k] = n
	}
	return out, nil
}

// atBounds places a program's tensor in the arena, with each dimension and stride at its bound.
func atBounds(p *program.Program, t *program.Tensor) (Tensor, error) {
	bounds := func(list []dim.Dim) (out []int64, err error) {
		for _, d := range list {
			n, ok := p.Bound(d)
			if !ok {
				return nil, fmt.Errorf("dimension %v of %%%s has no bound, or may be negative", d, p.Buffers[t.Buffer].Name)
			}
			out = append(out, n)
		}
		return out, nil
	}
	out := Tensor{Off: p.Buffers[t.Buffer].Offset + t.Offset, DType: t.DType}
	var err error
	if out.Shape, err = bounds(t.Shape); err == nil {
		out.Strides, err = bounds(t.Strides)
	}
	return out, err
}

// span is the part of the module's arena that tensor i of q may be in.
func (m *Module) span(q *Param, i int) (lo, hi int64, err error) {
	t := &q.Tensors[i]
	if q.Dims == nil || q.Dims[i] == nil || t.Strides != nil {
		return t.Span()
	}
	n := dim.New(int64(t.DType.Size()))
	if len(q.Dims[i]) != len(t.Shape) {
		return 0, 0, fmt.Errorf("%d dimensions for the shape %v", len(q.Dims[i]), t.Shape)
	}
	for _, text := range q.Dims[i] {
		d, err := dim.Parse(text)
		if err != nil {
			return 0, 0, err
		}
		if _, err := m.bound(d); err != nil {
			return 0, 0, err
		}
		n = n.Mul(d)
	}
	most, err := m.bound(n)
	return t.Off, t.Off + most, err
}

// bound is the greatest value of a size.
func (m *Module) bound(d dim.Dim) (int64, error) {
	r, ok := d.Bounds(func(name string) (dim.Range, bool) {
		i := slices.IndexFunc(m.Symbols, func(s Symbol) bool { return s.Name == name })
		if i < 0 || m.Symbols[i].Max < 0 {
			return dim.Range{}, false
		}
		return dim.Range{Min: m.Symbols[i].Min, Max: m.Symbols[i].Max}, true
	})
	if !ok || r.Min < 0 {
		return 0, fmt.Errorf("size %v has no bound, or may be negative", d)
	}
	return r.Max, nil
}
