package ir

import "fmt"

// A donation gives the storage of an input to a result of the same type: when the function
// has ended, the result lies where the input lay, as parameters and optimizer states that a
// step updates do. It is the attribute donate of the input, the number of the result:
//
//	func @sgd(%w: f32[8] {donate=0} !{role="parameter"}, %g: f32[8]) -> (f32[8]) {
//	  %step = mul %g {scalar=0.1} : f32[8]
//	  %new = sub %w, %step : f32[8]
//	  return %new
//	}
//
// It says where the result is at the end and nothing about when it gets there: an input
// keeps its contents for all who read it, wherever they stand in the order. So passes move
// nodes as they would without. Pass reuse-buffers computes the result in place where every
// read of the input comes first; elsewhere lowering copies it there at the end, behind collectives in flight that read it.

// DonateKey is the attribute of an input that is donated.
const DonateKey = "donate"

// ShardingKey is the annotation of a node whose results lie on a mesh in a certain way;
// package sharding has its form.
const ShardingKey = "sharding"

// PiecesKey is the annotation of inputs and of the return of a function of ranks: which piece of
// a tensor of one device each rank has, as the axes along its dimensions, [{'x'}, {}]. Of a
// return it is a list; empty and missing ones are on all ranks.
const PiecesKey = "pieces"

// ShardingGroupKey is the annotation of nodes whose results lie alike: the number of their set.
const ShardingGroupKey = "sharding_group"

// Donation is an input that gives its storage to a result.
type Donation struct {
	Input  *Node
	Result int // of the return's operands
}

// Donations lists what inputs are donated, in the order of the inputs. O(inputs).
func (f *Func) Donations() []Donation {
	var out []Donation
	for _, n := range f.Inputs() {
		if n.attrs.Has(DonateKey) {
			out = append(out, Donation{n, int(n.attrs.Int(DonateKey, -1))})
		}
	}
	return out
}

// Donated reports whether n is an input that is donated.
func (n *Node) Donated() bool { return n.op == OpInput && n.attrs.Has(DonateKey) }

// ruleDonation checks donations: the result is there and of the input's type, no other
// input is donated to it, and of all inputs and results these two alone share the storage,
// since the input's contents are gone when the function has ended.
func ruleDonation(v *verifier) {
	ret, list := v.f.Return(), v.f.Donations()
	if ret == nil || len(list) == 0 {
		return
	}
	r := findRoots(v.f)
	inputs := map[int32]*Node{} // by root of plain inputs; look-up only
	for _, n := range v.f.Inputs() {
		if !n.results[0].typ.IsAsync() {
			inputs[r.of[n.results[0].id]] = n
		}
	}
	to := map[int]*Node{} // by result; look-up only
	for _, d := range list {
		at := func(format string, args ...any) { v.at(d.Input, -1, nil, format, args...) }
		in := d.Input.results[0]
		switch {
		case v.bad[d.Input.id]:
		case d.Result < 0 || d.Result >= len(ret.args):
			at("%s is donated to result %d of %d", in, d.Result, len(ret.args))
		case in.typ.IsAsync():
			at("%s is in flight and cannot be donated", in)
		case !in.typ.Equal(ret.args[d.Result].typ):
			at("%s of type %s is donated to result %d of type %s", in, in.typ, d.Result, ret.args[d.Result].typ)
		case to[d.Result] != nil:
			at("%s is donated to result %d, and so is %s", in, d.Result, to[d.Result].results[0])
		default:
			to[d.Result] = d.Input
			if why := r.donated(d, ret, inputs); why != "" {
				at("%s is donated to result %d, and %s", in, d.Result, why)
			}
		}
	}
}

// donated says what else needs the storage of a donated input, or of its result, at the end.
func (r *roots) donated(d Donation, ret *Node, inputs map[int32]*Node) string {
	in := d.Input.results[0]
	root, got := r.of[in.id], ret.args[d.Result]
	if other := inputs[r.of[got.id]]; other != nil && other != d.Input {
		return fmt.Sprintf("%s lies in the storage of %s; return a copy", got, other.results[0])
	}
	for i, a := range ret.args {
		for k := range a.typ.Tensors() {
			if i != d.Result && r.of[a.id]+int32(k) == root {
				return fmt.Sprintf("result %d lies in its storage, too; return a copy", i)
			}
		}
	}
	return ""
}
