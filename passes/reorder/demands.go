package reorder

import "math"

// demands are what raise works towards, in ideal time: the sum of the costs of
// all that runs before a place.
type demands struct {
	ideal []float64 // position -> ideal time
	place []float64 // start -> latest time at which it has to be issued, all considered
	other []float64 // start -> the part of it that collectives of other streams ask for
}

func (r *reorderer) demands() *demands {
	order := r.l.order
	n := len(order)
	q := &demands{ideal: make([]float64, n+1), place: make([]float64, n), other: make([]float64, n)}
	early := make([]float64, n) // node -> earliest ideal time at which its operands allow it
	for p, v := range order {
		q.ideal[p+1] = q.ideal[p]
		if r.d.Stream[v] < 0 {
			q.ideal[p+1] += r.d.Dur[v]
		}
		if r.d.Stream[v] >= 0 || r.carry(r.d.Nodes[v]) {
			for _, u := range r.d.Pred.At(v) {
				early[v] = max(early[v], early[u])
			}
		} else {
			early[v] = q.ideal[p+1]
		}
	}
	next := make([]float64, r.d.Streams) // stream -> when the start behind has to have its stream
	for i := range next {
		next[i] = math.Inf(1)
	}
	for p := n - 1; p >= 0; p-- {
		v := order[p]
		s := r.d.Stream[v]
		if s < 0 {
			continue
		}
		finish := q.ideal[n]
		if w := r.wait[v]; w >= 0 {
			finish = q.ideal[r.l.pos[w]]
		}
		other := math.Inf(1)
		if r.strict {
			for i, t := range next {
				if int32(i) != s {
					other = min(other, t)
				}
			}
		}
		// What comes before makes room for the latest time that can be had; the
		// collective itself moves on until it is early enough or blocked.
		own := min(finish, next[s]) - r.d.Dur[v]
		next[s] = max(own, early[v])
		q.place[v], q.other[v] = min(own, other), other
	}
	return q
}
