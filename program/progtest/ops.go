package progtest

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/program"
)

// Inputs are the dense bytes of the inputs' tensors, by rank, input and tensor.
type Inputs [][][][]byte

// InputsOf are inputs of p of which data gives tensor k of a rank, counted over all inputs.
func InputsOf(p *program.Program, data func(rank, k int) []byte) Inputs {
	in := make(Inputs, p.World)
	for r := range in {
		next := 0
		for i := range p.Inputs {
			var ts [][]byte
			for range p.Inputs[i].Tensors {
				ts = append(ts, data(r, next))
				next++
			}
			in[r] = append(in[r], ts)
		}
	}
	return in
}

// RandomInputs makes inputs for p: small whole numbers, different on each rank.
func RandomInputs(p *program.Program, seed uint64) (Inputs, error) {
	in := make(Inputs, p.World)
	for r := range in {
		for i := range p.Inputs {
			var ts [][]byte
			for k := range p.Inputs[i].Tensors {
				t := &p.Inputs[i].Tensors[k]
				shape, err := evalAll(p, t.Shape)
				if err != nil {
					return nil, err
				}
				x, err := hostops.New(dtype.I64, shape...)
				if err != nil {
					return nil, err
				}
				g := generator(seed + uint64(r)*1000003 + uint64(i)*1009 + uint64(k))
				for at := 0; at < len(x.Data); at += 8 {
					x.Data[at] = byte(1 + g.next()%7)
				}
				y, err := hostops.New(t.DType, shape...)
				if err != nil {
					return nil, err
				}
				if err := hostops.Run("convert", nil, []hostops.Tensor{y}, []hostops.Tensor{x}); err != nil {
					return nil, err
				}
				ts = append(ts, y.Data)
			}
			in[r] = append(in[r], ts)
		}
	}
	return in, nil
}

// generator is splitmix64.
type generator uint64

func (g *generator) next() uint64 {
	*g += 0x9e3779b97f4a7c15
	z := uint64(*g)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func fill(b []byte, seed uint64) {
	g := generator(seed)
	for i := range b {
		b[i] = byte(g.next())
	}
}

// evalAll evaluates dimensions with symbols at their hints.
func evalAll(p *program.Program, ds []dim.Dim) ([]int64, error) {
	out := make([]int64, len(ds))
	for i, d := range ds {
		n, ok := d.Eval(func(name string) (int64, bool) {
			k := slices.IndexFunc(p.Symbols, func(s program.Symbol) bool { return s.Name == name })
			if k < 0 {
				return 0, false
			}
			return p.Symbols[k].Hint, true
		})
		if !ok || n < 0 {
			return nil, fmt.Errorf("dimension %v has no value", d)
		}
		out[i] = n
	}
	return out, nil
}

// view is a tensor in a rank's arena.
func (m *machine) view(r int, t *program.Tensor) (hostops.Tensor, error) {
	shape, err := evalAll(m.p, t.Shape)
	if err != nil {
		return hostops.Tensor{}, err
	}
	strides, err := evalAll(m.p, t.SymbolicStrides())
	if err != nil {
		return hostops.Tensor{}, err
	}
	v := hostops.Tensor{DType: t.DType, Shape: shape, Strides: strides}
	span, ok := m.p.Span(t)
	if !ok {
		return v, fmt.Errorf("a tensor of buffer %d has no extent", t.Buffer)
	}
	lo := m.p.Buffers[t.Buffer].Offset + t.Offset
	v.Data = m.ranks[r].arena[lo : lo+span : lo+span]
	return v, nil
}

// read returns a tensor's elements as dense bytes.
func (m *machine) read(r int, t *program.Tensor) ([]byte, error) {
	v, err := m.view(r, t)
	if err != nil {
		return nil, err
	}
	out, err := hostops.New(v.DType, v.Shape...)
	if err != nil {
		return nil, err
	}
	return out.Data, hostops.Copy(out, v)
}

func (m *machine) views(r int, ts []program.Tensor) ([]hostops.Tensor, error) {
	out := make([]hostops.Tensor, len(ts))
	for i := range ts {
		var err error
		if out[i], err = m.view(r, &ts[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// launch runs a kernel or a copy.
func (m *machine) launch(r, i int) error {
	in := &m.p.Instrs[i]
	var ins []hostops.Tensor
	if all := m.ranks[r].began[i]; all != nil {
		ins = all[0]
		delete(m.ranks[r].began, i)
	} else {
		// Where they are: a kernel whose result overlaps an operand shows.
		var err error
		if ins, err = m.views(r, in.Ins); err != nil {
			return err
		}
	}
	outs, err := m.views(r, in.Outs)
	if err != nil {
		return err
	}
	switch {
	case in.Kind == program.Copy:
		err = hostops.Copy(outs[0], ins[0])
	case in.Op == "shard":
		members := m.members(r, in.Group)
		err = m.part(outs[0], ins[0], int(in.Attrs.Int("dim", 0)), slices.Index(members, r), len(members))
	case in.IsCall():
		err = m.call(r, in, [][]hostops.Tensor{ins})
	case in.Op == program.OpFused:
		var dims []dim.Dim
		var sizes []int64
		if dims, err = in.Sizes(); err == nil {
			if sizes, err = evalAll(m.p, dims); err == nil {
				err = RunKernel(m.p.Kernel(in), outs, ins, sizes...)
			}
		}
	default:
		err = hostops.Run(in.Op, in.Attrs, outs, ins)
	}
	if err != nil {
		return fmt.Errorf("instruction %d on rank %d: %w", i, r, err)
	}
	return nil
}

// part copies piece pos of n of src along d.
func (m *machine) part(dst, src hostops.Tensor, d, pos, n int) error {
	if d >= len(src.Shape) {
		return fmt.Errorf("dimension %d of %v", d, src.Shape)
	}
	size := src.Shape[d] / int64(n)
	w, err := src.Narrow(d, int64(pos)*size, int64(pos+1)*size)
	if err != nil {
		return err
	}
	return hostops.Copy(dst, w)
}

// call writes what a call does: on rank r, after the operands of all members.
func (m *machine) call(r int, in *program.Instr, all [][]hostops.Tensor) error {
	written, err := m.views(r, in.Written())
	if err != nil {
		return err
	}
	return mix(written, all, r)
}

// Target is what the calls of random programs name.
const Target = "t"

// Call does on rank r what the simulator does for a call that does not communicate, so that
// a device can run random programs: written and operands are those of the instruction.
func Call(r int, written, operands []hostops.Tensor) error {
	return mix(written, [][]hostops.Tensor{operands}, r)
}

// mix stands for a function: every element of what it writes depends on every byte of
// every operand, by whole numbers that all element types can hold.
func mix(outs []hostops.Tensor, all [][]hostops.Tensor, salt int) error {
	g := generator(salt + 1)
	for _, ins := range all {
		for _, t := range ins {
			dense, err := hostops.New(t.DType, t.Shape...)
			if err != nil {
				return err
			}
			if err := hostops.Copy(dense, t); err != nil {
				return err
			}
			for _, b := range dense.Data {
				g = generator(g.next() ^ uint64(b))
			}
		}
	}
	for _, out := range outs {
		x, err := hostops.New(dtype.I64, out.Shape...)
		if err != nil {
			return err
		}
		for at := 0; at < len(x.Data); at += 8 {
			x.Data[at] = byte(g.next() % 97)
		}
		if err := hostops.Run("convert", nil, []hostops.Tensor{out}, []hostops.Tensor{x}); err != nil {
			return err
		}
	}
	return nil
}

// collective runs instruction i on all members at once.
func (m *machine) collective(members []int, i int) error {
	in := &m.p.Instrs[i]
	all, err := m.operands(members[0], i)
	if err != nil {
		return err
	}
	for pos, r := range members {
		delete(m.ranks[r].began, i)
		outs, err := m.views(r, in.Outs)
		if err != nil {
			return err
		}
		if in.IsCall() {
			if err := m.call(r, in, all); err != nil {
				return err
			}
			continue
		}
		for k := range outs {
			ins := make([]hostops.Tensor, len(members))
			for q := range ins {
				ins[q] = all[q][k]
			}
			if err := m.result(in, k, pos, outs[k], ins); err != nil {
				return fmt.Errorf("instruction %d on rank %d: %w", i, r, err)
			}
		}
	}
	return nil
}

// result computes result k at a position; ins are the members' operands k.
func (m *machine) result(in *program.Instr, k, pos int, out hostops.Tensor, ins []hostops.Tensor) error {
	d, n := int(in.Attrs.Int("dim", 0)), int64(len(ins))
	switch in.Op {
	case "all_reduce":
		return hostops.Reduce(in.Attrs.Str("reduce", ""), out, ins)
	case "all_gather":
		for q := range ins {
			if d >= len(ins[q].Shape) {
				return fmt.Errorf("dimension %d of %v", d, ins[q].Shape)
			}
			part := ins[q].Shape[d]
			w, err := out.Narrow(d, int64(q)*part, int64(q+1)*part)
			if err == nil {
				err = hostops.Copy(w, ins[q])
			}
			if err != nil {
				return err
			}
		}
		return nil
	case "reduce_scatter":
		parts := make([]hostops.Tensor, n)
		for q := range ins {
			if d >= len(ins[q].Shape) {
				return fmt.Errorf("dimension %d of %v", d, ins[q].Shape)
			}
			size := ins[q].Shape[d] / n
			var err error
			if parts[q], err = ins[q].Narrow(d, int64(pos)*size, int64(pos+1)*size); err != nil {
				return err
			}
		}
		return hostops.Reduce(in.Attrs.Str("reduce", ""), out, parts)
	case "all_to_all":
		return m.allToAll(in, k, pos, out, ins)
	case "broadcast":
		root := in.Attrs.Int("root", 0)
		if root < 0 || root >= n {
			return fmt.Errorf("root %d of %d", root, n)
		}
		return hostops.Copy(out, ins[root])
	case "collective_permute":
		pairs := in.Attrs.Ints("pairs")
		for j := 0; j+1 < len(pairs); j += 2 {
			if pairs[j+1] == int64(pos) && pairs[j] >= 0 && pairs[j] < n {
				return hostops.Copy(out, ins[pairs[j]])
			}
		}
		x, err := hostops.New(out.DType, out.Shape...)
		if err != nil {
			return err
		}
		return hostops.Copy(out, x)
	}
	return fmt.Errorf("unknown collective %q", in.Op)
}

func (m *machine) allToAll(in *program.Instr, k, pos int, out hostops.Tensor, ins []hostops.Tensor) error {
	send, receive, err := in.Splits()
	if err != nil {
		return err
	}
	n := len(ins)
	even := func(t hostops.Tensor) []int64 {
		return slices.Repeat([]int64{t.Shape[0] / int64(n)}, n)
	}
	if len(out.Shape) == 0 {
		return fmt.Errorf("an all_to_all of a scalar")
	}
	to, from := even(ins[0]), even(out)
	if send != nil {
		if to, err = evalAll(m.p, send[k]); err != nil {
			return err
		}
		if from, err = evalAll(m.p, receive[k]); err != nil {
			return err
		}
	}
	var skip, at int64
	for _, rows := range to[:pos] {
		skip += rows
	}
	for q := range ins {
		src, err := ins[q].Narrow(0, skip, skip+to[pos])
		if err != nil {
			return err
		}
		dst, err := out.Narrow(0, at, at+from[q])
		if err != nil {
			return err
		}
		if err := hostops.Copy(dst, src); err != nil {
			return err
		}
		at += from[q]
	}
	return nil
}
