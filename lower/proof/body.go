package proof

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// fused runs the operations of a kernel's body.
func (m *machine) fused(in *program.Instr) error {
	k := m.kernel[in.Attrs.Str(program.KernelKey, "")] // the program is valid
	sizes, err := in.Sizes()
	if err != nil {
		return err
	}
	own := map[int]*tensor{} // by result, and by -1 - number of a temporary; look-up only
	space := func(t *program.BodyTensor) int {
		if t.Param < 0 {
			return -1 - t.Temp
		}
		return t.Param
	}
	read := func(t *program.BodyTensor, typ ir.Type) (termID, error) {
		if t.Param >= 0 && t.Param < len(in.Ins) {
			lo, hi := m.bytes(&program.Tensor{Buffer: in.Ins[t.Param].Buffer, Offset: in.Ins[t.Param].Offset + t.Offset}, typ)
			return m.read(lo, hi, typ), nil
		}
		x := own[space(t)]
		if x == nil {
			return 0, fmt.Errorf("%s reads a result that nothing has written", k.Name)
		}
		return m.b.window(x.holds, x.typ, t.Offset-x.at, typ), nil
	}
	for i := range k.Body {
		s := &k.Body[i]
		a := &application{node: in.Node, attrs: s.Attrs, group: -1}
		var ok bool
		if a.op, ok = ir.OpByName(s.Op); !ok || a.op.IsCollective() || a.op.IsView() || a.effects()&^ir.EffectSizes != 0 {
			return fmt.Errorf("%s is not an operation of a kernel", s.Op)
		}
		for j := range s.Ins {
			t := m.bodyType(&s.Ins[j], sizes)
			x, err := read(&s.Ins[j], t)
			if err != nil {
				return err
			}
			a.args, a.argTypes = append(a.args, x), append(a.argTypes, t)
		}
		for j := range s.Outs {
			t := m.bodyType(&s.Outs[j], sizes)
			a.outs = append(a.outs, t)
		}
		for j := range s.Outs {
			own[space(&s.Outs[j])] = &tensor{s.Outs[j].Offset, a.outs[j], m.b.result(a, j, "")}
		}
	}
	for j := range in.Outs {
		x := own[len(in.Ins)+j]
		if x == nil {
			continue
		}
		if !x.typ.NonOverlapping() {
			return fmt.Errorf("%s gives %s: its elements do not lie as results may", k.Name, x.typ)
		}
		m.write(&program.Tensor{Buffer: in.Outs[j].Buffer, Offset: in.Outs[j].Offset + x.at}, x.typ, m.known(in, j, x.holds))
	}
	return nil
}

// bodyType is the type of a tensor of a kernel's body at the sizes of a launch.
func (m *machine) bodyType(t *program.BodyTensor, sizes []ir.Dim) ir.Type {
	return m.typeOf(t.With(sizes))
}
