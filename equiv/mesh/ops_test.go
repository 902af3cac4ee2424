package mesh

import (
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

// TestEveryOp shards the operands of every op's example along every choice of dimensions, on
// two ranks that run the same op on their pieces, and states every choice of the result: what
// is proved must agree with a run. Each op is proved at least with nothing sharded.
func TestEveryOp(t *testing.T) {
	for _, op := range ir.Ops() {
		m, err := ir.Example(op)
		if err != nil || op.IsCollective() || op == ir.OpWaitTensor || op == ir.OpShard || op == ir.OpReturn || op == ir.OpReadSize || op.Info().Bodies != nil {
			continue
		}
		device := m.Funcs()[0]
		o := Options{Mesh: placement.Mesh{Axes: []placement.Axis{{Name: "x", Size: 2}}}}
		proved, tried := 0, 0
		for _, in := range placements(device.Inputs()) {
			f := onTwo(device, in)
			if f == nil {
				continue
			}
			o.Inputs = in
			for _, out := range choices(device.Return().Args()) {
				o.Results = out
				tried++
				rep, err := Check(device, f, o)
				if err != nil {
					continue
				}
				proved++
				if len(rep.Unknown) > 0 {
					t.Errorf("%s of %v: proved with unknown steps %v", op, in, rep.Unknown)
				}
				if !agrees(t, device, f, o, 3) {
					t.Errorf("%s: inputs %v and results %v are proved, and a run says otherwise:\n%s", op, in, out, f.AppendText(nil))
				}
			}
		}
		if unruled := op == ir.OpCall || op == ir.OpAsStrided || op == ir.OpRand; unruled != (proved == 0) {
			t.Errorf("%s: %d of %d are proved", op, proved, tried)
		}
		t.Logf("%s: %d of %d", op, proved, tried)
	}
}

// placements are choices of a dimension of each input to be sharded, or none.
func placements(inputs []*ir.Node) [][]placement.Placement {
	var values []*ir.Value
	for _, n := range inputs {
		values = append(values, n.Result(0))
	}
	return choices(values)
}

// maxPlacements bounds the choices of one signature.
const maxPlacements = 200

func choices(values []*ir.Value) [][]placement.Placement {
	out := [][]placement.Placement{nil}
	for _, v := range values {
		var next [][]placement.Placement
		shape, _ := v.Type().Shape().Static()
		for _, l := range out {
			for d := -1; d < len(shape) && len(next) < maxPlacements; d++ {
				p := make(placement.Placement, len(shape))
				if d >= 0 {
					if shape[d]%2 != 0 {
						continue
					}
					p[d] = []string{"x"}
				}
				next = append(next, append(slices.Clone(l), p))
			}
		}
		out = next
	}
	return out
}

// onTwo is a function of one node on two ranks, by the shapes of their pieces; nil if there is
// none.
func onTwo(device *ir.Func, in []placement.Placement) *ir.Func {
	m := ir.NewModule(2)
	f := m.AddFunc(device.Name)
	at := map[*ir.Value]*ir.Value{}
	for i, n := range device.Inputs() {
		shape, ok := n.Result(0).Type().Shape().Static()
		if !ok {
			return nil
		}
		shape = slices.Clone(shape)
		for d, l := range in[i] {
			if len(l) > 0 {
				shape[d] /= 2
			}
		}
		x := f.Append(ir.NodeSpec{Op: ir.OpInput, Name: n.Name(), Results: []ir.Type{ir.Tensor(n.Result(0).Type().DType(), shape...)}})
		at[n.Result(0)] = x.Result(0)
	}
	for _, n := range device.Order() {
		if n.Op() == ir.OpInput {
			continue
		}
		s := ir.NodeSpec{Op: n.Op(), Name: n.Name(), Attrs: n.Attrs()}
		var types []ir.Type
		for _, a := range n.Args() {
			s.Args = append(s.Args, at[a])
			types = append(types, at[a].Type())
		}
		for _, r := range n.Results() {
			s.Results = append(s.Results, r.Type())
		}
		if n.Op() != ir.OpReturn {
			l, err := ir.Infer(n.Op(), nil, n.Attrs(), types, s.Results...)
			if err != nil {
				if l, err = ir.Infer(n.Op(), nil, n.Attrs(), types); err != nil {
					return nil
				}
			}
			s.Results = l
		}
		x := f.Append(s)
		for i, r := range n.Results() {
			at[r] = x.Result(i)
		}
	}
	if m.Verify() != nil {
		return nil
	}
	return f
}
