package stablehlo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Regions that become functions. A region of StableHLO reads whatever stands around it; a body
// of concert reads its inputs. So while a region is imported into a function of its own, what
// it reads of the functions around it becomes an input, one for all bodies of the operation.

// captures are the values that the bodies of an operation read of what stands around them, in
// the order of their inputs.
type captures struct {
	around *stage
	vals   []*value
	types  []ir.Type
}

// root is the stage whose function stands around all bodies.
func (s *stage) root() *stage {
	for s.caps != nil {
		s = s.caps.around
	}
	return s
}

// capture is a value of a stage around this one.
func (s *stage) capture(v *value) (*ir.Value, error) {
	k := slices.Index(s.caps.vals, v)
	if k < 0 {
		im := s.im
		im.cur = s.caps.around
		outer, err := im.ir(v)
		if im.cur = s; err != nil {
			return nil, err
		}
		k = len(s.caps.vals)
		s.caps.vals, s.caps.types = append(s.caps.vals, v), append(s.caps.types, outer.Type())
	}
	s.take(k + 1)
	return s.captured[k], nil
}

// take declares inputs for the first n captures.
func (s *stage) take(n int) {
	for k := len(s.captured); k < n; k++ {
		s.captured = append(s.captured, s.fb.InputRole("captured", s.caps.types[k], ""))
	}
}

// inner begins a function of the module that a function of the stage calls.
func (s *stage) inner(name string) *stage {
	root := s.root()
	root.bodies++
	return &stage{im: s.im, index: s.index, b: s.b, fb: s.b.Func(fmt.Sprintf("%s.%s%d", root.fb.Func().Name, name, root.bodies)), world: s.world,
		have: map[*value]*ir.Value{}, at: map[*ir.Value]int{}}
}

// Body begins the body of a loop that an operation is taken apart into.
func (s *stage) Body(what string, types []ir.Type) (decompose.Looper, []*ir.Value, func([]*ir.Value) *ir.Func) {
	b := s.inner(what)
	in := make([]*ir.Value, len(types))
	for i, t := range types {
		in[i] = b.fb.InputRole("x", t, "")
	}
	return b, in, func(outs []*ir.Value) *ir.Func {
		b.fb.Return(outs...)
		return b.fb.Func()
	}
}

// isToken reports whether a type is that of tokens, which order effects and hold nothing.
func isToken(t mlir.Type) bool { return t.Text == "!stablehlo.token" }

// tensors are values without tokens.
func tensors(vs []*value) []*value {
	return slices.DeleteFunc(slices.Clone(vs), func(v *value) bool { return isToken(v.typ) })
}

// withTokens are tensors, and tokens where types have them.
func withTokens(vs []*value, types []mlir.Type) []*value {
	var out []*value
	for _, t := range types {
		if isToken(t) {
			out = append(out, &value{typ: t})
		} else if len(vs) > 0 {
			out, vs = append(out, vs[0]), vs[1:]
		}
	}
	return append(out, vs...)
}

// outlined imports a region as a function whose first inputs have those types.
func (im *importer) outlined(o *mlir.Operation, region int, name string, caps *captures, types []ir.Type) (*stage, error) {
	outer := im.cur
	s := outer.inner(name)
	s.caps, im.cur = caps, s
	defer func(b bool) { im.cur, im.branch = outer, b }(im.branch)
	im.branch = false // who takes another branch does not take this one in part
	var declared []mlir.Type
	var names []string
	for _, a := range o.Regions[region].Args {
		if declared = append(declared, a.Type); !isToken(a.Type) {
			names = append(names, a.Name)
		}
	}
	var in []*value
	for i, t := range types {
		n := "x"
		if i < len(names) {
			n = names[i]
		}
		in = append(in, im.value(s.fb.InputRole(n, t, "")))
	}
	out, err := im.regionOf(o, region, withTokens(in, declared))
	if err != nil {
		return nil, err
	}
	if s.outs, err = im.irs(tensors(out)); err != nil {
		return nil, err
	}
	return s, nil
}

// close ends bodies, which take all captures, and returns them as operands.
func (im *importer) close(bodies []*stage, caps *captures) ([]*ir.Value, error) {
	for _, s := range bodies {
		s.take(len(caps.vals))
		s.fb.Return(s.outs...)
	}
	return im.irs(caps.vals)
}

// uniform adds that all ranks go the same way where bodies communicate: a text in which they
// do not has no meaning.
func uniform(bodies []*stage, attrs ir.Attrs) ir.Attrs {
	for _, s := range bodies {
		for _, n := range s.fb.Func().Order() {
			if n.Communicates() {
				return attrs.With(ir.UniformKey, ir.A("v", true)[0].Val)
			}
		}
	}
	return attrs
}

// loop makes a while of a loop; trips is how many iterations it has, 0 if that is not known.
func (im *importer) loop(o *mlir.Operation, in []*value, trips int) ([]*value, error) {
	if im.cur.fb == nil {
		return nil, im.errorf("op not supported: %s in the body of an operation", o.Name)
	}
	all := make([]mlir.Type, len(in))
	for i, v := range in {
		all[i] = v.typ
	}
	in = tensors(in)
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	types := make([]ir.Type, len(in))
	for i, v := range in {
		if types[i], err = im.tensorType(v.typ); err != nil {
			return nil, im.errorf("%v", err)
		}
	}
	caps := &captures{around: im.cur}
	cond, err := im.outlined(o, 0, "cond", caps, types)
	if err != nil {
		return nil, err
	}
	body, err := im.outlined(o, 1, "body", caps, types)
	if err != nil {
		return nil, err
	}
	im.op = o
	if len(cond.outs) != 1 {
		return nil, im.errorf("the condition of while gives %d values", len(cond.outs))
	}
	if len(body.outs) != len(in) {
		return nil, im.errorf("the body of while gives %d values, takes %d", len(body.outs), len(in))
	}
	bodies := []*stage{cond, body}
	more, err := im.close(bodies, caps)
	if err != nil {
		return nil, err
	}
	decompose.DonateCarried(body.fb.Func(), len(in))
	attrs := ir.A(ir.CondKey, cond.fb.Func().Name, ir.BodyKey, body.fb.Func().Name)
	if trips > 0 {
		attrs = ir.A(ir.CondKey, cond.fb.Func().Name, ir.BodyKey, body.fb.Func().Name, "trips", trips)
	}
	return im.chosen(ir.OpWhile, uniform(bodies, attrs), append(args, more...), types, all)
}

// choice makes a case of branches; by is the region of each number, nil for the same numbers.
func (im *importer) choice(o *mlir.Operation, number *ir.Value, by []int) ([]*value, error) {
	if im.cur.fb == nil {
		return nil, im.errorf("op not supported: %s in the body of an operation", o.Name)
	}
	caps := &captures{around: im.cur}
	var bodies []*stage
	var names []string
	var types []ir.Type
	for k := range o.Regions {
		if by != nil {
			k = by[k]
		}
		s, err := im.outlined(o, k, "branch", caps, nil)
		if err != nil {
			return nil, err
		}
		im.op = o
		if tokens := len(withTokens(nil, o.Outs)); len(s.outs)+tokens != o.NumResults() {
			return nil, im.errorf("branch %d gives %d values, want %d", k, len(s.outs), o.NumResults()-tokens)
		}
		bodies, names = append(bodies, s), append(names, s.fb.Func().Name)
		for i, v := range s.outs {
			t := ir.TensorOf(v.Type().DType(), v.Type().Shape())
			if len(bodies) == 1 {
				types = append(types, t)
			} else if !types[i].Equal(t) {
				return nil, im.errorf("branches give %s and %s", types[i], t)
			}
		}
	}
	more, err := im.close(bodies, caps)
	if err != nil {
		return nil, err
	}
	return im.chosen(ir.OpCase, uniform(bodies, ir.A(ir.BranchesKey, names)), append([]*ir.Value{number}, more...), types, o.Outs)
}

// chosen are the results of a while or a case, of which some may be tokens.
func (im *importer) chosen(o ir.Op, attrs ir.Attrs, args []*ir.Value, types []ir.Type, declared []mlir.Type) ([]*value, error) {
	if len(types) == 0 {
		return withTokens(nil, declared), nil // its effects are not visible
	}
	vs, err := im.emitAll(o, nil, attrs, args, types...)
	if err != nil {
		return nil, err
	}
	var out []*value
	for _, v := range vs {
		out = append(out, im.value(v))
	}
	return withTokens(out, declared), nil
}

// extent is how much stands in a block, and in what it calls.
type extent struct {
	ops   int
	heavy bool // it loops, communicates or multiplies matrices
	draws bool // it draws random numbers, which bodies do not
}

func (im *importer) size(b *mlir.Block) extent {
	e, ok := im.extents[b]
	if b == nil || ok {
		return e
	}
	im.extents[b] = e // of who calls himself, which is refused elsewhere
	for _, o := range b.Ops {
		e.ops++
		switch strings.TrimPrefix(o.Name, "stablehlo.") {
		case "while", "dot_general", "dot", "convolution", "all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute", "collective_broadcast", "collective_reduce", "sdy.manual_computation", "sdy.all_reduce", "sdy.reduce_scatter":
			e.heavy = true
		case "rng":
			e.draws = true
		}
		inner := o.Regions
		if o.Name == "func.call" {
			if f, err := im.callee(o); err == nil {
				inner = []*mlir.Block{f.Body}
			}
		}
		for _, r := range inner {
			x := im.size(r)
			e.ops, e.heavy, e.draws = min(e.ops+x.ops, maxSteps), e.heavy || x.heavy, e.draws || x.draws
		}
	}
	im.extents[b] = e
	return e
}

// apart reports whether branches become bodies of their own.
func (im *importer) apart(o *mlir.Operation) bool {
	var all extent
	for _, r := range o.Regions {
		e := im.size(r)
		all.ops, all.heavy, all.draws = max(all.ops, e.ops), all.heavy || e.heavy, all.draws || e.draws
	}
	return im.cur.fb != nil && !all.draws && (all.heavy || all.ops > maxChosen)
}
