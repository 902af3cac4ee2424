package program

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Sizes that tensors hold. A launch of read_size, or of a kernel that is one, gives symbols their
// values: the elements of its result, which stay there to the end. Whatever names such a symbol reads
// it there when it runs; the checker counts that as an access to its eight bytes.

// OpReadSize reads sizes, and SymbolsKey is its attribute with their symbols, one for each
// element.
const (
	OpReadSize = "read_size"
	SymbolsKey = "symbols"
)

// SymbolsRead are the symbols that an instruction gives values, one for each element of its
// result; nil for most.
func (p *Program) SymbolsRead(in *Instr) []string {
	if in.Kind != Launch {
		return nil
	}
	if k := p.Kernel(in); k != nil && len(k.Body) == 1 && k.Body[0].Op == OpReadSize {
		return k.Body[0].Attrs.Strs(SymbolsKey)
	}
	if in.Op == OpReadSize {
		return in.Attrs.Strs(SymbolsKey)
	}
	return nil
}

// SizesRead gives, by symbol, the number in memory that is its value; nil if the caller gives
// all of them.
func (p *Program) SizesRead() map[string]Tensor {
	var out map[string]Tensor
	for i := range p.Instrs {
		in := &p.Instrs[i]
		for k, s := range p.SymbolsRead(in) {
			if out == nil {
				out = map[string]Tensor{}
			}
			if len(in.Outs) == 0 {
				break // Validate says so
			}
			t, step := in.Outs[0], int64(1)
			if len(t.Strides) == 1 {
				step, _ = t.Strides[0].Const() // Validate says so
			}
			out[s] = Tensor{Buffer: t.Buffer, Offset: t.Offset + 8*int64(k)*step, DType: dtype.I64}
		}
	}
	return out
}

// symbolsOf appends the symbols that tensors name.
func symbolsOf(names []string, ts []Tensor) []string {
	for i := range ts {
		for _, d := range slices.Concat(ts[i].Shape, ts[i].Strides) {
			names = d.Symbols(names)
		}
	}
	return names
}

// SymbolsNamed are the symbols whose values an instruction needs.
func (in *Instr) SymbolsNamed() []string {
	names := symbolsOf(symbolsOf(nil, in.Ins), in.Outs)
	send, receive, _ := in.Splits() // Validate checks them
	sizes, _ := in.Sizes()
	for _, list := range append(append(send, receive...), sizes) {
		for _, d := range list {
			names = d.Symbols(names)
		}
	}
	return names
}

// sizesNamed are the numbers in memory that what names these symbols reads.
func sizesNamed(read map[string]Tensor, names []string) []Tensor {
	var out []Tensor
	for _, s := range names {
		if t, ok := read[s]; ok {
			out = append(out, t)
		}
	}
	return out
}

// checkSizes checks that symbols are read once, ahead of what names them, and not in a block.
func (p *Program) checkSizes(blocks []*Block) error {
	unread := p.SizesRead()
	if unread == nil {
		return nil
	}
	for i := range p.Inputs {
		if ts := sizesNamed(unread, symbolsOf(nil, p.Inputs[i].Tensors)); len(ts) > 0 {
			return fmt.Errorf("input %s has a size that is read behind it", p.Inputs[i].Name)
		}
	}
	depth := 0
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if blocks != nil && blocks[i] != nil {
			if blocks[i].At == i {
				depth++
			} else if blocks[i].End == i {
				depth--
			}
		}
		if ts := sizesNamed(unread, in.SymbolsNamed()); len(ts) > 0 {
			return fmt.Errorf("instruction %d (%s) names a symbol that is read behind it", i, in.Node)
		}
		names := p.SymbolsRead(in)
		if names == nil {
			continue
		}
		var t Tensor
		if len(in.Outs) == 1 {
			t = in.Outs[0]
		}
		if depth > 0 || t.DType != dtype.I64 || len(t.Shape) != 1 || !t.Shape[0].Equal(dim.New(int64(len(names)))) || len(t.SymbolicStrides()[0].Symbols(nil)) > 0 {
			return fmt.Errorf("instruction %d (%s) reads %d symbols: its result is i64[%d], and it is in no loop or case", i, in.Node, len(names), len(names))
		}
		for _, s := range names {
			if _, ok := unread[s]; !ok || !slices.ContainsFunc(p.Symbols, func(y Symbol) bool { return y.Name == s }) {
				return fmt.Errorf("instruction %d (%s): symbol %s is not declared, or read twice", i, in.Node, s)
			}
			delete(unread, s)
		}
	}
	return nil
}
