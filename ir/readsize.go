package ir

import "slices"

// Sizes that tensors hold. A read_size gives symbols their values from then on, on this rank:
//
//	%sizes = read_size %counts {symbols=["u0", "u1"]} : i64[2]
//	%sent = all_to_all %rows on @ep {in_splits=["u0,u1"], out_splits=["u2,u3"]} : async f32[u2+u3,8]
//
// What names such a symbol comes after it, which EffectOrder knows and the verifier checks.
// In functions that do not read it a symbol is a size as any other, which the caller gives.
// Memory is laid out for Symbol.Max; a value outside of Min..Max is an error on all ranks.

// SymbolsKey is the attribute of a read_size that names the symbols, one for each element.
const SymbolsKey = "symbols"

// SizeReads lists the nodes of f that read symbols from tensors, in their order.
func (f *Func) SizeReads() []*Node {
	var out []*Node
	for _, n := range f.Order() {
		if n.op == OpReadSize {
			out = append(out, n)
		}
	}
	return out
}

// sizeReaders finds, by symbol, the first node that reads it; nil if there is none.
func sizeReaders(f *Func) map[string]*Node {
	var by map[string]*Node
	for _, n := range f.SizeReads() {
		for _, s := range n.attrs.Strs(SymbolsKey) {
			if by == nil {
				by = map[string]*Node{}
			}
			if by[s] == nil {
				by[s] = n
			}
		}
	}
	return by
}

// SymbolsNamed are the symbols that n needs the values of: those of its results' types, of the
// pieces of an all_to_all, and what its bodies name.
func (n *Node) SymbolsNamed() []string {
	names := n.ownSymbols(nil)
	seen := []*Func{nil}
	for todo := n.Bodies(); len(todo) > 0; todo = todo[1:] {
		if slices.Contains(seen, todo[0]) {
			continue
		}
		seen = append(seen, todo[0])
		for _, inner := range todo[0].Order() {
			names = inner.ownSymbols(names)
			todo = append(todo, inner.Bodies()...)
		}
	}
	return names
}

func (n *Node) ownSymbols(names []string) []string {
	for _, r := range n.results {
		for _, t := range r.typ.Tensors() {
			for _, d := range t.Shape() {
				names = d.Symbols(names)
			}
		}
	}
	if n.op == OpAllToAll {
		in, out, _ := n.Splits() // rule range judges them
		for _, list := range append(in, out...) {
			for _, d := range list {
				names = d.Symbols(names)
			}
		}
	}
	return names
}

// ruleSizes checks who reads which symbol, and that its users come after that.
func ruleSizes(v *verifier) {
	readers := sizeReaders(v.f)
	if readers == nil {
		return
	}
	v.sizeReads(readers)
	for _, n := range v.f.Order() {
		if v.bad[n.id] {
			continue
		}
		for i, a := range n.DeclaredArgs() {
			if n.Writes(i) && a.Root().def.op == OpReadSize {
				v.at(n, i, nil, "%s writes %s, in which sizes lie", n.op.Name(), a)
			}
		}
		for _, s := range n.SymbolsNamed() {
			if r := readers[s]; r != nil && r.at >= n.at {
				v.at(n, -1, nil, "%s names symbol %s, which %%%s reads behind it", n.op.Name(), s, r.name)
				break
			}
		}
	}
}

func (v *verifier) sizeReads(readers map[string]*Node) {
	for _, n := range v.f.SizeReads() {
		if v.bad[n.id] {
			continue
		}
		if !slices.Contains(v.m.Entries(), v.f) {
			v.at(n, -1, nil, "@%s is the body of a while or a case, which cannot read sizes: read them before it", v.f.Name)
			continue
		}
		for _, s := range n.attrs.Strs(SymbolsKey) {
			switch {
			case v.m.Symbol(s) == nil:
				v.at(n, -1, nil, "symbol %s is not declared", s)
			case readers[s] != n:
				v.at(n, -1, nil, "symbol %s has been read by %%%s", s, readers[s].name)
			}
		}
	}
}
