package partition

import (
	"github.com/seed-ee968945/concert/ir"
)

// regions classifies the results of checkpointed regions. A region's forward
// units are recomputed as a whole where backward needs any of its inner values:
// those that only the region itself and backward read. What forward units outside
// of the region read are its results; they may be saved, so that one region's
// recomputation never runs through another's.
func (j *jointFunc) regions() {
	outside := make([]bool, len(j.roots))
	for i := range j.units {
		if u := &j.units[i]; u.wanted && u.side == sideForward {
			for _, r := range u.args {
				if def := j.roots[r].unit; def >= 0 && u.region != j.units[def].region {
					outside[r] = true
				}
			}
		}
	}
	ret := j.f.Return()
	for _, k := range j.fwOuts {
		outside[j.rootOf[ret.Arg(k).ID()]] = true
	}
	for r := range j.roots {
		if def := j.roots[r].unit; def >= 0 && j.inRegion(def) {
			j.roots[r].edge, j.roots[r].inside = outside[r], !outside[r]
		}
	}
	j.pinReaders()
	active := map[int64]bool{} // look-up only
	eachBackwardRoot(j, func(r int32) {
		if j.roots[r].inside {
			active[j.units[j.roots[r].unit].region] = true
		}
	})
	for i := range j.units {
		u := &j.units[i]
		u.rerun = u.effectful() && j.inRegion(int32(i)) && active[u.region]
	}
}

// pinReaders makes free units that read inner values of a region backward's:
// saving what is made of such values would iterate the user's wish not to keep
// them.
func (j *jointFunc) pinReaders() {
	for i := range j.units {
		u := &j.units[i]
		if u.side != sideFree {
			continue
		}
		for _, r := range u.args {
			if def := j.roots[r].unit; j.roots[r].inside || def >= 0 && j.units[def].side == sideBackward {
				u.side = sideBackward
			}
		}
	}
}

// inRegion reports whether a unit is repeated with its checkpointed region. A
// random operation is not: it would draw other numbers. Nor is one that writes in
// place, which would write twice, nor one whose operands are overwritten later.
func (j *jointFunc) inRegion(i int32) bool {
	u := &j.units[i]
	return u.region != 0 && u.side == sideForward && u.wanted && !u.overrun && !u.asyncOut &&
		u.only(ir.EffectCommunicates) && !j.waitsForCaller(u) && j.ctx.Enable(u.name())
}

// waitsForCaller reports whether the unit ends a collective that the caller started.
func (j *jointFunc) waitsForCaller(u *planUnit) bool {
	return u.nodes[0].Op().Class() == ir.ClassWait
}

// banRecomputation bans recomputation where it would be wrong, or where the caller of the
// pass disabled it.
func (j *jointFunc) banRecomputation() {
	for i := range j.units {
		u := &j.units[i]
		if u.side != sideForward || j.inRegion(int32(i)) {
			continue
		}
		u.keep = u.effectful() || u.overrun || !j.ctx.Enable(u.name())
	}
}

// findDuplicates finds values of forward that backward has in any case: the result of a
// collective that backward repeats on purpose with the same operands, as when
// sharded parameters are gathered again. A recomputation reads the repeated one,
// and the forward one need not be saved.
func (j *jointFunc) findDuplicates() {
	for i := range j.units {
		u := &j.units[i]
		if len(u.nodes) == 1 && u.nodes[0].Communicates() && !u.nodes[0].Op().IsCollective() {
			return // an opaque call keeps its place among all communication
		}
	}
	number := numberValues(j)
	type key struct {
		text string
		out  int
	}
	have := map[key]int32{} // look-up only
	for _, late := range []bool{true, false} {
		for i := range j.units {
			u := &j.units[i]
			if len(u.nodes) != 2 || (u.side == sideBackward) != late || u.overrun || len(u.after) > 0 || !u.only(ir.EffectCommunicates) {
				continue
			}
			if late && !u.wanted || !late && (u.side != sideForward || u.rerun) {
				continue
			}
			text := number.nodeKey(u.nodes[0])
			for k, r := range u.outs {
				id := key{text, k}
				if have2, ok := have[id]; late && !ok {
					have[id] = r
				} else if ok && !late && j.ctx.Enable(u.name()) {
					j.roots[r].duplicate = have2
				}
			}
		}
	}
}
