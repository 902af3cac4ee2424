package fuse

import "slices"

// What a join saves pays for what it makes longer, as far as the simulator can tell.
// That is not enough where small launches leave a collective that they ran beside: what
// they hid is then waited for on every machine, while the traffic that the join saves is
// that of a cache, which nobody feels. So such a join has to do without what it saves,
// but for a launch: it stands if something else hides the collective as well, or if
// nothing was to be hidden. Launches that move much stay as they were judged: what they
// save is memory's time.

// exposes reports whether a computation runs beside a collective in one order of a
// range of nodes and before its start or behind its wait in the other.
func (u *fuser) exposes(was, moved []int32) bool {
	d := u.d
	bounds := func(v int32) bool { return d.StartOf[v] >= 0 || d.Stream[v] >= 0 }
	if slices.Equal(was, moved) || !slices.ContainsFunc(was, bounds) {
		return false
	}
	before := u.beside(was)
	after := u.beside(moved)
	for _, v := range was {
		if slices.ContainsFunc(before[v], func(s int32) bool { return !slices.Contains(after[v], s) }) {
			return true
		}
	}
	return false
}

// beside lists, for every node that takes time on the compute stream, the collectives
// that have started and that nothing has waited for; those that the whole range is
// beside are left out.
func (u *fuser) beside(order []int32) map[int32][]int32 {
	d := u.d
	var open []int32
	inside := map[int32]bool{} // look-up only
	for _, v := range order {
		if d.Stream[v] >= 0 {
			inside[v] = true
		} else if s := d.StartOf[v]; s >= 0 && !inside[s] {
			open = append(open, s)
		}
	}
	out := map[int32][]int32{} // look-up only
	for _, v := range order {
		switch {
		case d.Stream[v] >= 0:
			open = append(open, v)
		case d.StartOf[v] >= 0:
			open = slices.DeleteFunc(slices.Clone(open), func(s int32) bool { return s == d.StartOf[v] })
		case d.Dur[v] > 0 && len(open) > 0:
			out[v] = open[:len(open):len(open)]
		}
	}
	return out
}

// hides reports whether the order at hand is no longer than the one before if a
// region's launches take what they took before they were joined, but for the launch
// that is no longer needed.
func (u *fuser) hides(launches []int32, durWas []float64, lo, hi int32) bool {
	sum := 0.0
	for _, ms := range durWas {
		sum += ms
	}
	share := max(sum-launchMs, 0) / max(sum, launchMs)
	now := make([]float64, len(launches))
	for i, m := range launches {
		now[i], u.d.Dur[m] = u.d.Dur[m], max(u.d.Dur[m], durWas[i]*share)
	}
	_, time := u.win.try(lo, hi)
	for i, m := range launches {
		u.d.Dur[m] = now[i]
	}
	return time
}

// launchMs is what a launch takes beyond its traffic, in milliseconds.
const launchMs = 0.002

// littleMoved is how many bytes launches move, each by itself, where that takes about as
// long as to launch them.
const littleMoved = 8 << 20
