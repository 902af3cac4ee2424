package stablehlo

import (
	"errors"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/attend"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Program is a module that computes something of its arguments: what is expected of the
// results is left out.
type Program struct {
	Module    *ir.Module      // has one function
	Constants []*mlir.Literal // by input: what it holds; nil of an argument
	Missing   error           // what the text leaves out that a run needs; nil: nothing
}

// Program makes a program of the function that Start names, of @main, or of the only function that is
// not private. The error is a *diag.Finding with a place, or the verifier's.
func (m *Module) Program() (*Program, error) {
	f, err := m.start()
	if err != nil {
		return nil, err
	}
	im, outs, err := m.imported(f, true)
	if err != nil {
		return nil, err
	}
	if len(im.stages) > 1 {
		return nil, mlir.ErrorAt(m.Source, f.At, 1, "stablehlo", "@%s runs others in parallel: it is a test and no program", f.Name)
	}
	im.cur.outs, im.plan.Checks = nil, nil
	leaves, err := im.flatten(outs)
	if err != nil {
		return nil, err
	}
	for _, o := range leaves {
		v, err := im.ir(o)
		if err != nil {
			return nil, err
		}
		im.cur.outs = append(im.cur.outs, v)
	}
	if err := im.donate(f); err != nil {
		return nil, err
	}
	plan, err := im.finish()
	if err != nil {
		return nil, err
	}
	s := plan.Stages[0]
	if !m.written {
		attend.Module(s.Module)
	}
	p := &Program{Module: s.Module, Missing: m.Missing}
	for _, f := range s.Feeds {
		if f.Arg >= 0 {
			p.Constants = append(p.Constants, nil)
		} else if l := f.Ranks[0].Literal; l != nil {
			p.Constants = append(p.Constants, l)
		} else {
			return nil, errors.New("stablehlo: an input that is neither an argument nor a constant")
		}
	}
	return p, nil
}

// start is the function that a program is made of.
func (m *Module) start() (*mlir.Func, error) {
	if m.entry != "" {
		f := m.Func(m.entry)
		if f == nil {
			return nil, mlir.ErrorAt(m.Source, m.At, 1, "stablehlo", "there is no function @%s", m.entry)
		}
		return f, nil
	}
	f := m.Func("main")
	for _, g := range m.Funcs {
		if f == nil && !g.Private {
			f = g
		} else if g != f && !g.Private && f.Name != "main" {
			return nil, mlir.ErrorAt(m.Source, g.At, 1, "stablehlo", "@%s and @%s are public: a program is @main, the only such function, or what -func names", f.Name, g.Name)
		}
	}
	if f == nil {
		return nil, mlir.ErrorAt(m.Source, m.At, 1, "stablehlo", "there is no public function: a program is @main, the only such function, or what -func names")
	}
	return f, nil
}

// donate gives the storage of arguments to the results that their attributes name. Results
// that lie in a storage which is given, or belongs to another result, are copies.
func (im *importer) donate(f *mlir.Func) error {
	to := map[int]*ir.Value{} // look-up only
	taken := map[*ir.Value]bool{}
	args := slices.DeleteFunc(slices.Clone(f.Args), func(a mlir.Arg) bool { return isToken(a.Type) })
	for i, a := range args {
		n, ok := a.Attrs.Get("tf.aliasing_output")
		if !ok {
			continue
		}
		k, err := im.m.Integer(n)
		if err != nil {
			return err
		}
		for _, t := range f.Results[:min(max(k, 0), int64(len(f.Results)))] { // tokens count in the text
			if isToken(t) {
				k--
			}
		}
		if k < 0 || k >= int64(len(im.cur.outs)) || !sameType(typeOf(im.cur.outs[k]), typeOf(im.args[i])) {
			return mlir.ErrorAt(im.m.Source, n.At, 1, "stablehlo", "argument %d is %s, which result %d is not", i, typeOf(im.args[i]), k)
		}
		to[int(k)] = im.args[i]
		taken[im.args[i]] = true
		im.cur.fb.Donate(im.args[i], int(k))
	}
	if len(to) == 0 {
		return nil
	}
	im.op = nil
	for k, v := range im.cur.outs {
		root := v.Root()
		if in := to[k]; in == v || !taken[root] && (in == nil || v.Type().Equal(in.Type())) && root.Def().Op() != ir.OpInput {
			taken[root] = true
			continue
		}
		copied, err := im.emit(ir.OpClone, nil, []*ir.Value{v}, ir.TensorOf(dtypeOf(v), v.Type().Shape()))
		if err != nil {
			return err
		}
		im.cur.outs[k] = copied
	}
	return nil
}
