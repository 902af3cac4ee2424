package stablehlo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/processgroups"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Bounds of what inlining makes of a text.
const (
	maxCalls = 100
	maxNodes = 1 << 18 // beside one for four bytes of the text
	maxSteps = 1 << 19 // operations that are imported again
)

// importer makes a plan of a module.
type importer struct {
	m            *Module
	rules        map[string]rule
	plan         *Plan
	stages       []*stage
	cur          *stage
	scope        *scope
	op           *mlir.Operation // being imported, for errors
	calls        []*mlir.Func
	nodes, steps int
	iterations   int  // of all loops that were unrolled
	turns        int  // of those around what is imported
	work         *int // operations of the loops in the one that is looked at; nil: not counted
	folds        int  // operations that were looked at for that
	extents      map[*mlir.Block]extent
	literals     map[int]*value // constants of the text, by their place
	failed       error          // of an operation that was appended; reported at the operation of the text
	branch       bool           // what is imported stands in a branch that other ranks may not take
	at           *Position      // of placed
	placed       *mlir.Operation
	args         []*ir.Value // inputs that arguments are
	vector       bool        // the body of a region is computed on whole tensors
	separate     bool        // ranks run programs of their own
	starting     bool        // the collective that is imported is waited for elsewhere
	opaque       bool        // calls of what is no operation stay calls
	pieces       bool        // values are a rank's pieces of what the function declares
	global       Global      // of what is imported; nil: nothing
	procs        *processgroups.Reader
	mark         ir.NodeID // nodes from here on are of the operation that is imported
}

// errorf makes an error about the operation that is being imported.
func (im *importer) errorf(format string, args ...any) error {
	at, n := im.m.At, 1
	if im.op != nil {
		at, n = im.op.At, len(im.op.Name)
	}
	return mlir.ErrorAt(im.m.Source, at, n, "stablehlo", format, args...)
}

// Import makes a plan of a function: main, or one without arguments. The error is a
// *diag.Finding with the operation's place, or the verifier's.
func (m *Module) Import(f *mlir.Func) (*Plan, error) {
	im, outs, err := m.imported(f, false)
	if err != nil {
		return nil, err
	}
	leaves, err := im.flatten(outs)
	if err != nil {
		return nil, err
	}
	for _, o := range leaves {
		s, err := im.source(o, 0)
		if err != nil {
			return nil, err
		}
		im.plan.Outs = append(im.plan.Outs, s)
	}
	return im.finish()
}

// imported imports a function and all that it calls, and returns its results. opaque says
// that a custom call may be of anything.
func (m *Module) imported(f *mlir.Func, opaque bool) (*importer, []*value, error) {
	im := &importer{m: m, opaque: opaque, turns: 1, rules: rules(), literals: map[int]*value{}, extents: map[*mlir.Block]extent{}, plan: &Plan{}, procs: processgroups.New(m.Module)}
	var err error
	if im.procs.Replicas, err = m.count("mhlo.num_replicas"); err != nil {
		return nil, nil, err
	}
	if im.procs.Partitions, err = m.count("mhlo.num_partitions"); err != nil {
		return nil, nil, err
	}
	if f.Body == nil {
		return nil, nil, mlir.ErrorAt(m.Source, f.At, 1, "stablehlo", "function @%s has no body", f.Name)
	}
	global, err := m.statedShardings(f)
	if err != nil {
		return nil, nil, err
	}
	if global != nil && im.procs.World() == 1 {
		im.procs.Partitions = global.World()
	}
	if im.procs.World() > ir.MaxWorld {
		return nil, nil, mlir.ErrorAt(m.Source, m.At, 1, "stablehlo", "%d replicas of %d partitions", im.procs.Replicas, im.procs.Partitions)
	}
	im.begin(f.Name, im.procs.World())
	if im.pieces, err = im.manual(f); global != nil && !im.pieces {
		im.global, im.op = global, nil
	} else if err != nil {
		return nil, nil, err
	}
	var args []*value
	for i, a := range f.Args {
		if isToken(a.Type) { // is no input
			args = append(args, &value{typ: a.Type})
			continue
		}
		if s, ok := a.Attrs.Get("sdy.sharding"); ok && im.pieces {
			if a.Type, err = im.procs.Local(a.Type, im.m.Parser(s)); err != nil {
				return nil, nil, err
			}
		}
		v, err := im.argument(a, i)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, v)
	}
	outs, err := im.run(f, args)
	return im, outs, err
}

// run runs a function of its own, of which something may be said.
func (im *importer) run(f *mlir.Func, args []*value) ([]*value, error) {
	if im.global == nil {
		return im.call(f, args)
	}
	im.globalArgs(f, args)
	outs, err := im.call(f, args)
	if err != nil {
		return nil, err
	}
	return im.globalResults(f, outs)
}

// count reads an attribute of the module that is a number of ranks.
func (m *Module) count(name string) (int, error) {
	a, ok := m.Attrs.Get(name)
	if !ok {
		return 1, nil
	}
	n, err := m.Integer(a)
	if err != nil {
		return 0, err
	}
	if n < 1 || n > ir.MaxWorld {
		return 0, mlir.ErrorAt(m.Source, a.At, 1, "stablehlo", "%s = %d", name, n)
	}
	return int(n), nil
}

// flatten lists the tensors of values.
func (im *importer) flatten(vs []*value) ([]*value, error) {
	parts := 0
	for _, v := range vs {
		parts += v.parts
	}
	if parts > 16*maxParts {
		return nil, im.errorf("tuples of more than %d values", 16*maxParts)
	}
	return flatten(vs), nil
}

func flatten(vs []*value) []*value {
	var out []*value
	for _, v := range vs {
		switch {
		case v.typ.Tensor:
			out = append(out, v)
		case v.tuple != nil:
			out = append(out, flatten(v.tuple)...)
		}
	}
	return out
}

// call runs a function's body on values: it is inlined.
func (im *importer) call(f *mlir.Func, args []*value) ([]*value, error) {
	if f.Body == nil {
		return nil, im.errorf("function @%s has no body", f.Name)
	}
	if len(args) != len(f.Args) {
		return nil, im.errorf("@%s takes %d arguments, got %d", f.Name, len(f.Args), len(args))
	}
	if slices.Contains(im.calls, f) {
		return nil, im.errorf("@%s calls itself", f.Name)
	}
	if len(im.calls) >= maxCalls {
		return nil, im.errorf("calls nest deeper than %d", maxCalls)
	}
	for i, a := range f.Args {
		if !im.vector && len(im.calls) > 0 && !sameType(a.Type, args[i].typ) {
			return nil, im.errorf("argument %d of @%s is %s, got %s", i, f.Name, a.Type, args[i].typ)
		}
	}
	defer func(s *scope, o *mlir.Operation) { im.scope, im.op = s, o }(im.scope, im.op)
	im.calls = append(im.calls, f)
	im.scope = nil // what follows sees none of the caller's names
	out, err := im.block(f.Body, f.Args, args)
	im.calls = im.calls[:len(im.calls)-1]
	if err == nil && len(out) != len(f.Results) {
		err = im.errorf("@%s returns %d values, declares %d", f.Name, len(out), len(f.Results))
	}
	for i, v := range out {
		if err == nil && !im.vector && !im.pieces && !sameType(f.Results[i], v.typ) {
			err = im.errorf("result %d of @%s is %s, declared as %s", i, f.Name, v.typ, f.Results[i])
		}
	}
	return out, err
}

// sameType reports whether a value of type b is of a declared type, which may leave sizes
// open. Types that are no tensors are not looked into: they say nothing.
func sameType(declared, b mlir.Type) bool {
	return !declared.Tensor || !b.Tensor || sameElem(declared.Elem, b.Elem) && slices.EqualFunc(declared.Shape, b.Shape, func(d, n int64) bool { return d == n || d == -1 })
}

// sameElem reports whether two names of element types stand for one, as i32 and si32 do.
func sameElem(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := mlir.ElementType(a)
	y, errY := mlir.ElementType(b)
	return errX == nil && errY == nil && x == y
}

// block imports the operations of a block whose arguments are values, and returns what its
// last operation returns.
func (im *importer) block(b *mlir.Block, args []mlir.Arg, vals []*value) ([]*value, error) {
	if len(args) != len(vals) {
		return nil, im.errorf("a block of %d arguments gets %d values", len(args), len(vals))
	}
	im.scope = &scope{vals: map[string][]*value{}, up: im.scope}
	defer func(s *scope) { im.scope = s }(im.scope.up)
	for i, a := range args {
		im.scope.vals[a.Name] = []*value{vals[i]}
	}
	for i, o := range b.Ops {
		im.op = o
		if im.steps++; im.tooLong() {
			return nil, im.errorf("more than %d operations beside those of the text where calls are inlined and loops unrolled", maxSteps)
		}
		in, err := im.operands(o)
		if err != nil {
			return nil, err
		}
		switch o.Name {
		case "func.return", "stablehlo.return", "sdy.return":
			if i+1 < len(b.Ops) {
				im.op = b.Ops[i+1]
				return nil, im.errorf("an operation behind %s, which ends its block", o.Name)
			}
			return in, nil
		}
		if im.global != nil && im.cur.fb != nil {
			im.mark = ir.NodeID(im.cur.fb.Func().NumNodeIDs())
		}
		out, err := im.operation(o, in)
		if err != nil {
			return nil, err
		}
		im.op = o
		if err := im.define(o, out); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// tooLong reports whether more was imported than a text of that length may say.
func (im *importer) tooLong() bool {
	return im.steps > maxSteps+len(im.m.Source.Text)/8 // no operation is shorter
}

// operands are the values that an operation reads.
func (im *importer) operands(o *mlir.Operation) ([]*value, error) {
	var in []*value
	for i, r := range o.Operands {
		vs := im.scope.find(r.Name)
		if r.Index >= len(vs) {
			what := "%" + r.Name
			if r.Index > 0 {
				what = fmt.Sprintf("%s#%d", what, r.Index)
			}
			return nil, mlir.ErrorAt(im.m.Source, r.At, len(what), "stablehlo", "%s is not defined here", what)
		}
		v := vs[r.Index]
		if !im.vector && !im.pieces && len(o.Ins) == len(o.Operands) && !strings.HasPrefix(o.Name, "sdy.") && !sameType(o.Ins[i], v.typ) {
			return nil, mlir.ErrorAt(im.m.Source, r.At, 1+len(r.Name), "stablehlo", "%%%s is %s, here it is declared as %s", r.Name, v.typ, o.Ins[i])
		}
		in = append(in, v)
	}
	return in, nil
}

// define names the results of an operation, whose types must be those declared.
func (im *importer) define(o *mlir.Operation, out []*value) error {
	if n := o.NumResults(); n != len(out) {
		return im.errorf("%s gives %d results, %d are named", o.Name, len(out), n)
	}
	for i, v := range out {
		if i >= len(o.Outs) || o.Name == "sdy.manual_computation" {
			break
		}
		same := sameType(o.Outs[i], v.typ)
		if im.vector && o.Outs[i].Tensor { // of one element, computed of many
			same = sameElem(o.Outs[i].Elem, v.typ.Elem)
		}
		if !same {
			return im.errorf("result %d of %s is %s, declared as %s", i, o.Name, v.typ, o.Outs[i])
		}
	}
	if im.global != nil && !im.vector && im.cur.fb != nil {
		out = slices.Clone(out)
		for i, v := range out {
			var err error
			if out[i], err = im.pinned(v, im.global.Value(o, i)); err != nil {
				return err
			}
		}
	}
	for _, r := range o.Results {
		if im.scope.vals[r.Name] != nil {
			return im.errorf("%%%s is defined twice in one block", r.Name)
		}
		im.scope.vals[r.Name], out = out[:r.Count:r.Count], out[r.Count:]
	}
	return nil
}

// operation imports one operation.
func (im *importer) operation(o *mlir.Operation, in []*value) ([]*value, error) {
	if v := im.fold(o, in); v != nil {
		return []*value{v}, nil
	}
	f, ok := im.rules[o.Name]
	if !ok {
		return nil, im.errorf("op not supported: %s", o.Name)
	}
	if im.vector && !f.vector {
		return nil, im.errorf("op not supported: %s in a body that is computed on whole tensors", o.Name)
	}
	if f.args >= 0 && len(in) != f.args {
		return nil, im.errorf("%s takes %d operands, got %d", o.Name, f.args, len(in))
	}
	out, err := f.run(im, o, in)
	if err == nil && !im.vector {
		im.followed(o, in, out)
	}
	return out, err
}

// finish ends all stages.
func (im *importer) finish() (*Plan, error) {
	for _, s := range im.stages {
		s.fb.Return(s.outs...)
		m, err := s.b.Finish()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", im.m.Source.Name, err)
		}
		f := m.Funcs()[0]
		if n := len(f.Inputs()); n != len(s.feeds) {
			return nil, errors.New("stablehlo: an input without a feed")
		}
		im.plan.Stages = append(im.plan.Stages, &Stage{Module: m, Func: f, Feeds: s.feeds})
	}
	return im.plan, nil
}
