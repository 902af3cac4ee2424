package hierarchy

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// split is a group whose subgroups all have as many ranks in each of as many domains.
type split struct {
	domains, ranks int       // how many, and how many ranks of a subgroup each has
	domain, rail   *ir.Group // within domains, and between ranks of one place in them; none of the module yet
	// outer says that the subgroup's list has one domain after the other; otherwise it has
	// the first ranks of all domains, then the second ones.
	outer bool
}

// split finds how g lies on the domains, nil if it does not lie as a split says or leaves
// none.
func (h *hierarchy) split(g *ir.Group) *split {
	if s, known := h.splits[g]; known {
		return s
	}
	s := h.domainSplit(g)
	h.splits[g] = s
	return s
}

func (h *hierarchy) domainSplit(g *ir.Group) *split {
	var s *split
	var within, between [][]int
	for i, list := range g.Ranks {
		blocks := h.blocks(list)
		d, n := len(blocks), len(list)/len(blocks)
		if slices.ContainsFunc(blocks, func(b []int) bool { return len(b) != n }) || d < 2 || n < 2 {
			return nil
		}
		outer := slices.Equal(slices.Concat(blocks...), list)
		var rails []int
		for j := range n {
			var rail []int
			for _, b := range blocks {
				rail = append(rail, b[j])
			}
			rails = append(rails, rail...)
			between = append(between, rail)
		}
		if !outer && !slices.Equal(rails, list) {
			return nil
		}
		if i == 0 {
			s = &split{domains: d, ranks: n, outer: outer}
		}
		if s.domains != d || s.ranks != n || s.outer != outer {
			return nil
		}
		within = append(within, blocks...)
	}
	s.domain, s.rail = sortedGroup(g.Name+".domain", within), sortedGroup(g.Name+".rail", between)
	return s
}

// sortedGroup is a group of those lists, in ascending order.
func sortedGroup(name string, lists [][]int) *ir.Group {
	lists = slices.Clone(lists)
	slices.SortFunc(lists, slices.Compare[[]int])
	return &ir.Group{Name: name, Ranks: lists}
}

// blocks is a list of ranks by domain, in the order in which domains and ranks come.
func (h *hierarchy) blocks(list []int) (out [][]int) {
	at := map[int]int{} // look-up only
	for _, r := range list {
		i, known := at[r/h.size]
		if !known {
			i = len(out)
			at[r/h.size] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// declare gives what was made groups of the module.
func (h *hierarchy) declare() {
	for _, n := range h.made {
		g := n.Group()
		if g == nil {
			continue
		}
		if h.declared[g] == nil {
			h.declared[g] = h.declaredAs(g)
		}
		h.f.SetGroup(n, h.declared[g])
	}
}

// declaredAs is a group of the module with the lists of g: one that is there already serves.
func (h *hierarchy) declaredAs(g *ir.Group) *ir.Group {
	m := h.f.Module()
	for _, d := range m.Groups() {
		if d.Size() == g.Size() && slices.EqualFunc(sortedGroup("", d.Ranks).Ranks, g.Ranks, slices.Equal[[]int]) {
			return d
		}
	}
	name := g.Name
	for m.Group(name) != nil {
		name += "x"
	}
	return m.AddGroup(name, g.Ranks)
}

// between is how many bytes leave each domain in one direction, for each of its ranks in the
// subgroup: of a flat ring all that it sends, of what goes along rails what each of their ranks sends.
func (s *split) between(n *ir.Node, bytes func(ir.Type) int64) float64 {
	sum := 0.0
	for k, t := range n.Result(0).Type().Tensors() {
		size := float64(max(bytes(n.Arg(k).Type()), bytes(t)))
		ranks, senders := float64(s.domains*s.ranks), float64(s.ranks)
		if n.Group() == s.rail {
			ranks, senders = float64(s.domains), 1
		}
		switch n.Op() {
		case ir.OpAllToAll: // to all other domains, from every rank
			sum += size * float64(s.domains-1) / float64(s.domains)
		case ir.OpAllReduce:
			sum += 2 * size * (ranks - 1) / ranks / senders
		default:
			sum += size * (ranks - 1) / ranks / senders
		}
	}
	return sum
}
