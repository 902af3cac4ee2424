package rendezvous

// tree says which way sessions lead to rank 0. A rank's parent is the rank whose number to
// the base has its lowest digit that is not zero cleared, so that the ranks behind a rank are
// those that follow it. A world of up to as many ranks as the base is a star around rank 0, as
// is one of goroutines, who have no connections to save.
type tree struct{ base, world int }

// treeBase of worlds of processes: rank 0 has 126 connections of 4,096 ranks, others 63.
const treeBase = 64

// place is the place value of a rank's lowest digit that is not zero.
func (t tree) place(rank int) int {
	d := 1
	for rank/d%t.base == 0 {
		d *= t.base
	}
	return d
}

// parent of a rank other than 0.
func (t tree) parent(rank int) int {
	d := t.place(rank)
	return rank - rank/d%t.base*d
}

// past is the first rank past those that lead to rank 0 through this one: rank..past-1.
func (t tree) past(rank int) int {
	if rank == 0 {
		return t.world
	}
	return min(rank+t.place(rank), t.world)
}

// inner reports whether a rank other than 0 is a parent.
func (t tree) inner(rank int) bool { return rank > 0 && t.past(rank) > rank+1 }
