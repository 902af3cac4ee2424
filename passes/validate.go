package passes

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/equiv/memory"
	"github.com/seed-ee968945/concert/ir"
)

// ValidateMode says when the manager proves that a pass kept what the module means.
type ValidateMode uint8

// The modes.
const (
	ValidateNever  ValidateMode = iota
	ValidateSmall               // modules of fewer than ValidateNodes nodes
	ValidateAlways              // all modules
)

// ValidateNodes is the size from which ValidateSmall does not prove.
const ValidateNodes = 20000

// Wants reports whether a module is to be validated.
func (mode ValidateMode) Wants(m *ir.Module) bool {
	nodes := 0
	for _, f := range m.Funcs() {
		nodes += len(f.Order())
	}
	return mode == ValidateAlways || mode == ValidateSmall && nodes < ValidateNodes
}

// validator holds what the functions of a module mean between two passes.
type validator struct {
	opts     equiv.Options
	prover   *equiv.Prover
	meanings []*equiv.Meaning // parallel to names
	names    []string
	bodies   map[string]bool // names of functions that nodes run; look-up only
	copied   *ir.Module      // what a pass with other options is about to change; nil if it is read already
	asked    equiv.Options
}

// before reads the module that a pass is about to change, unless the pass before it
// left it read already. With other options than that one's it is kept, and read if the pass changes it.
func (v *validator) before(m *ir.Module, o equiv.Options) {
	v.copied = nil
	switch {
	case v.prover == nil:
		v.read(m, o)
	case v.opts.Reassociate != o.Reassociate || v.opts.ExcessPrecision != o.ExcessPrecision:
		v.copied, v.asked = m.Clone(), o
	}
}

func (v *validator) read(m *ir.Module, o equiv.Options) {
	v.opts, v.prover = o, equiv.NewProver(m.World, o)
	v.names, v.meanings = nil, nil
	for _, f := range m.Funcs() {
		v.names = append(v.names, f.Name)
		v.meanings = append(v.meanings, v.prover.Read(f))
	}
	v.bodies = bodies(m)
}

// staged proves that stages which a pass has cut functions into, of their names, compute what those
// did for one micro-batch, on average over all.
func staged(before, m *ir.Module) error {
	for _, s := range m.Stages() {
		if f := before.Func(s.Name); f != nil && m.Func(s.Name) == nil {
			if _, err := equiv.CheckStages(f, m, s, equiv.Options{Reassociate: true, Without: []string{"equal-elements"}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// bodies are the names of the functions that nodes of a module run.
func bodies(m *ir.Module) map[string]bool {
	run := map[string]bool{}
	for _, f := range m.Funcs() {
		run[f.Name] = true
	}
	for _, f := range m.Entries() {
		delete(run, f.Name)
	}
	return run
}

// after proves that the module means what it meant before the pass. A function @f
// that is gone has to be @f.fw and @f.bw now, unless only nodes ran it, of which each is proved by
// itself; so is one that is new. places says that the pass placed values.
func (v *validator) after(m *ir.Module, places bool) error {
	if v.copied != nil {
		v.read(v.copied, v.asked)
	}
	var names []string
	var meanings []*equiv.Meaning
	read := func(f *ir.Func) *equiv.Meaning {
		names, meanings = append(names, f.Name), append(meanings, v.prover.Read(f))
		return meanings[len(meanings)-1]
	}
	for i, name := range v.names {
		var now *equiv.Meaning
		if f := m.Func(name); f != nil {
			now = read(f)
		} else if v.bodies[name] {
			continue
		} else {
			fw, bw := m.Func(name+".fw"), m.Func(name+".bw")
			if fw == nil || bw == nil {
				return fmt.Errorf("@%s is gone, and there are no forward and backward functions of it", name)
			}
			read(fw)
			read(bw)
			var err error
			if now, err = v.prover.Join(v.meanings[i], fw, bw); err != nil {
				return err
			}
		}
		if _, err := v.prover.Compare(v.meanings[i], now); err != nil {
			return err
		}
	}
	run := bodies(m)
	for _, f := range m.Funcs() {
		if run[f.Name] && !slices.Contains(names, f.Name) {
			read(f)
		}
		if places {
			if err := memory.Check(f); err != nil {
				return err
			}
		}
	}
	if len(names) != len(m.Funcs()) {
		return fmt.Errorf("%d functions are new", len(m.Funcs())-len(names))
	}
	v.names, v.meanings, v.bodies = names, meanings, run
	return nil
}
