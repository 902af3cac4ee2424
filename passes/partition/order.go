package partition

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// What keeps a function from being split: storages that forward and backward touch.

// checkOrder makes sure that running all of forward before all of backward keeps
// the order of writes: backward must not read what a later forward unit
// overwrites, nor the other way round.
func (j *jointFunc) checkOrder() error {
	for s := range j.writers {
		last := int32(-1) // forward unit that writes s
		for _, w := range j.writers[s] {
			if j.units[w].side == sideForward {
				last = w
			}
		}
		for _, t := range j.touch[s] {
			if t < last && j.units[t].side == sideBackward {
				by := j.units[last].name()
				return &Error{Node: j.units[t].name(), Reason: fmt.Sprintf("backward needs what forward overwrites later, in %%%s; copy it first", by), Whole: true}
			}
		}
	}
	for s := range j.writers {
		if err := j.oneName(int32(s)); err != nil {
			return err
		}
	}
	for i := range j.units {
		u := &j.units[i]
		if u.side == sideBackward {
			continue
		}
		for _, r := range u.args {
			if def := j.roots[r].unit; j.roots[r].tangent || def >= 0 && j.units[def].side == sideBackward {
				return &Error{Node: u.name(), Reason: fmt.Sprintf("forward needs it, but it depends on backward through %%%s", j.roots[r].val.Name())}
			}
		}
	}
	for _, k := range j.bwOuts {
		v := j.f.Return().Arg(k)
		if r := &j.roots[j.rootOf[v.ID()]]; r.async && r.unit >= 0 && j.units[r.unit].side == sideForward {
			return &Error{Node: v.Def().Name(), Reason: "a collective that forward starts cannot leave backward in flight; wait for it", Whole: true}
		}
	}
	return nil
}

// oneName makes sure that backward takes a storage which it writes under its own name and no
// other: inputs are storages of their own, and a write through one would not show in another.
func (j *jointFunc) oneName(s int32) error {
	by, taken := int32(-1), []int32(nil)
	take := func(r int32) {
		if def := j.roots[r].unit; j.store[r] == s && (def < 0 || j.units[def].side != sideBackward) {
			taken = appendOnce(taken, r)
		}
	}
	for _, t := range j.touch[s] {
		if u := &j.units[t]; u.side == sideBackward {
			for _, r := range u.args {
				take(r)
			}
			if slices.Contains(j.writers[s], t) {
				by = t
			}
		}
	}
	for _, k := range j.bwOuts {
		take(j.rootOf[j.f.Return().Arg(k).ID()])
	}
	if by < 0 || len(taken) == 0 {
		return nil
	}
	if len(taken) == 1 {
		u := j.roots[taken[0]].unit
		if u < 0 || j.units[u].nodes[0].Op() != ir.OpCall || taken[0] == s {
			return nil
		}
		taken = append(taken, s) // a call aliases it: the caller, or forward, has it under its own name
	}
	return &Error{Node: j.units[by].name(), Reason: fmt.Sprintf("backward writes what it would take both as %%%s and as %%%s; copy one first", j.roots[taken[0]].val.Name(), j.roots[taken[1]].val.Name()), Whole: true}
}
