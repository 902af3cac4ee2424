package interp

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// resolveSymbols gives every symbol a value on every rank: what the caller said,
// else what an input's shape says, else the hint.
func resolveSymbols(f *ir.Func, ranks []int, slots []Slot, inputs [][]Tensor, given []map[string]int64) ([]map[string]int64, error) {
	mod := f.Module()
	read := map[string]bool{} // look-up only
	for _, n := range f.SizeReads() {
		for _, s := range n.Attrs().Strs(ir.SymbolsKey) {
			read[s] = true
		}
	}
	var wanted []string // from the caller or the inputs
	for _, s := range mod.Symbols() {
		if !read[s.Name] {
			wanted = append(wanted, s.Name)
		}
	}
	if given != nil && len(given) != mod.World {
		return nil, fmt.Errorf("interp: symbols for %d ranks, the world has %d", len(given), mod.World)
	}
	out := make([]map[string]int64, mod.World)
	for _, r := range ranks {
		out[r] = map[string]int64{}
		if given != nil {
			for name := range given[r] {
				switch {
				case read[name]:
					return nil, fmt.Errorf("interp: rank %d is given symbol %s, which @%s reads from a tensor", r, name, f.Name)
				case mod.Symbol(name) == nil:
					return nil, fmt.Errorf("interp: rank %d is given symbol %s, which the module does not declare", r, name)
				}
			}
			maps.Copy(out[r], given[r])
		}
		if inputs != nil {
			solve(wanted, slots, inputs[r], out[r])
		}
		for _, s := range mod.Symbols() {
			if read[s.Name] {
				continue
			}
			n, ok := out[r][s.Name]
			if !ok {
				n = s.Hint
			}
			if n < s.Min || n > s.Max {
				return nil, &SymbolError{Rank: r, Symbol: s.Name, Value: n, Min: s.Min, Max: s.Max}
			}
			out[r][s.Name] = n
		}
	}
	return out, nil
}

// solve adds the values of symbols that the shapes of a rank's inputs give.
func solve(wanted []string, slots []Slot, in []Tensor, values map[string]int64) {
	var sizes []dim.Equation
	for i, s := range slots {
		for j, d := range s.Type.Shape() {
			if j < len(in[i].Shape) {
				sizes = append(sizes, dim.Equation{Size: d, Value: in[i].Shape[j]})
			}
		}
	}
	dim.Solve(sizes, wanted, values)
}

// input binds the caller's tensors in the layout that the input declares.
func (m *machine) input(n *ir.Node, inputs [][]Tensor) error {
	v := n.Result(0)
	types, async := tensorTypes(v)
	bs := make([]binding, m.world)
	for _, r := range m.ranks {
		for i, t := range types {
			x, err := m.inputView(t, inputs[r][m.slot[n.At()]+i], r)
			if err != nil {
				return nodeError(n, r, err)
			}
			bs[r].ts = append(bs[r].ts, x)
		}
		if async && m.opts.Poison {
			if err := m.takeOff(&bs[r], nil); err != nil {
				return nodeError(n, r, err)
			}
		}
	}
	m.bind(v, bs)
	return nil
}

func (m *machine) inputView(t ir.Type, x Tensor, rank int) (view, error) {
	if err := x.Check(); err != nil {
		return view{}, err
	}
	want, _, err := m.layout(t, rank)
	if err != nil {
		return view{}, err
	}
	if x.DType != want.DType || !slices.Equal(x.Shape, want.Shape) {
		return view{}, fmt.Errorf("got %s, want %s%v", x.typeText(), want.DType, want.Shape)
	}
	if t.Contiguous() && !m.writes && !m.opts.Poison {
		return m.own(x.host(), rank), nil // nobody writes to it
	}
	v, err := m.alloc(t, rank)
	if err != nil {
		return v, err
	}
	return v, fillView(v.Tensor, x.host())
}

// fillView copies src, in row-major order, to dst.
func fillView(dst, src hostops.Tensor) error {
	src, err := hostops.Distinct(src, dst.Strides)
	if err != nil {
		return err
	}
	if dst.Shape = src.Shape; len(dst.Shape) != len(dst.Strides) { // all that the layout spans
		dst.Strides = []int64{1}
	}
	return hostops.Copy(dst, src)
}
