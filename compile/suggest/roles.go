package suggest

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Role is what an axis of a mesh is for.
type Role uint8

// The roles.
const (
	Data           Role = iota // cuts the batch; parameters lie on all ranks
	FSDP                       // cuts the batch and where parameters are stored
	Sequence                   // cuts the sequence and where parameters are stored
	Tensor                     // cuts what parameters make
	TensorSequence             // and the sequence where no parameter's work is cut
	Expert                     // cuts the batch, experts, and where other parameters are stored
)

var roleNames = [...]string{"data", "fsdp", "sequence", "tensor", "tensor+sequence", "expert"}

func (r Role) String() string { return roleNames[r] }

func (r Role) batch() bool    { return r == Data || r == FSDP || r == Expert }
func (r Role) sequence() bool { return r == Sequence || r == TensorSequence }
func (r Role) tensor() bool   { return r == Tensor || r == TensorSequence }
func (r Role) stores() bool   { return r == FSDP || r == Sequence || r == Expert }

// roles are the combinations that the program's sizes allow on a mesh: the axes that cut the batch divide
// it, those of the sequence that, and experts are cut where there are some. Two parts of an axis have
// different roles in their order, so that tensor parallelism is among the nearest ranks.
func (p *program) roles(x *split) []*Strategy {
	out := [][]Role{nil}
	for range x.Axes {
		var next [][]Role
		for _, l := range out {
			for r := Data; r <= Expert; r++ {
				if x.Mesh == p.mesh || len(l) == 0 || l[len(l)-1] < r {
					next = append(next, append(slices.Clone(l), r))
				}
			}
		}
		out = next
	}
	var all []*Strategy
	for _, l := range out {
		batch, seq, ok := int64(1), int64(1), true
		for i, r := range l {
			n := x.Axes[i].Size
			if r.batch() {
				batch *= n
			}
			if r.sequence() {
				seq *= n
			}
			ok = ok && (r != Expert || slices.ContainsFunc(p.params, func(in *ir.Node) bool { return expert(in, n) }))
		}
		if ok && p.batch%batch == 0 && p.seq%seq == 0 {
			all = append(all, &Strategy{Axes: x.of, Roles: l, split: x})
		}
	}
	return all
}

// expert reports whether a parameter is one of experts, that n ranks can share.
func expert(in *ir.Node, n int64) bool {
	s := shape(in.Result(0))
	return len(s) == 3 && s[0]%n == 0 && slices.Contains(free(in.Result(0)), 0)
}
