package cost

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/ir"
)

// Costs that are attached to a graph and costs that a model says are of two scales: two
// gathers that take 0.03 ms each would become a bucket of 0.0186, because the model's
// machine is faster than the one that the graph was measured on. So what the model says of
// collectives is multiplied by what the attached costs of the same graph are of it: of those
// with the same op and group, else of the same group, else of all; at the size in question,
// between the sizes that the graph has.

// fitKey is what collectives are alike in: group and op, the group alone (op 0), or nothing.
type fitKey struct {
	group string
	op    ir.Op
}

// fitKeys are the keys of a collective, the closest first.
func fitKeys(op ir.Op, g *ir.Group) [3]fitKey {
	return [3]fitKey{{g.Name, op}, {g.Name, 0}, {}}
}

// rounding is how far, in logarithms, an attached cost may be from what the model says and
// still be the same: graphs have few digits.
const rounding = 0.02

// fit is how attached costs compare with what the model says: by where the group's ranks
// are, and by the table as if it had been measured on that group, too.
type fit struct {
	placed, tabled ratios
}

// ratios are attached over modelled costs by size.
type ratios struct {
	points []ratio // ascending by bytes once finished
	off    float64 // sum of |log|
}

type ratio struct {
	bytes int64
	log   float64
}

// ScaledTo returns a copy of m that scales its prices of collectives to the costs attached
// to those of a module.
func (m *Model) ScaledTo(mod *ir.Module) *Model {
	out := *m
	out.fitted, out.spans = nil, new(sync.Map)
	fits := map[fitKey]*fit{}
	for _, f := range mod.Funcs() {
		for _, n := range f.Order() {
			ms, ok := n.Cost()
			if !ok || !n.Op().IsCollective() || n.Group() == nil || !(ms > 0) {
				continue
			}
			size := CommBytes(n)
			placed, _ := out.unscaled(n.Op(), n.Group(), size, false)
			tabled, _ := out.unscaled(n.Op(), n.Group(), size, true)
			if !(placed > 0) || !(tabled > 0) {
				continue
			}
			for _, key := range fitKeys(n.Op(), n.Group()) {
				if fits[key] == nil {
					fits[key] = new(fit)
				}
				fits[key].placed.add(size, ms/placed)
				fits[key].tabled.add(size, ms/tabled)
			}
		}
	}
	for _, f := range fits {
		f.placed.finish()
		f.tabled.finish()
	}
	out.fitted = fits
	return &out
}

// fitOf is the closest fit, nil if there is none.
func (m *Model) fitOf(op ir.Op, g *ir.Group) *fit {
	for _, key := range fitKeys(op, g) {
		if f := m.fitted[key]; f != nil {
			return f
		}
	}
	return nil
}

// matchesTable reports whether the attached costs are more like the table's than like what the
// places of the ranks ask for.
func (f *fit) matchesTable() bool { return f != nil && f.tabled.off < f.placed.off }

// at is the scale of attached costs at a size.
func (f *fit) at(size int64) float64 {
	switch {
	case f == nil:
		return 1
	case f.matchesTable():
		return f.tabled.at(size)
	}
	return f.placed.at(size)
}

func (r *ratios) add(size int64, by float64) {
	log := math.Log(by)
	if math.Abs(log) < rounding {
		log = 0
	}
	r.points = append(r.points, ratio{size, log})
	r.off += math.Abs(log)
}

// finish sorts, and takes the mean of points of one size.
func (r *ratios) finish() {
	slices.SortStableFunc(r.points, func(a, b ratio) int { return cmp.Compare(a.bytes, b.bytes) })
	out := r.points[:0]
	for i := 0; i < len(r.points); {
		j, sum := i, 0.0
		for ; j < len(r.points) && r.points[j].bytes == r.points[i].bytes; j++ {
			sum += r.points[j].log
		}
		out = append(out, ratio{r.points[i].bytes, sum / float64(j-i)})
		i = j
	}
	r.points = out
}

// at interpolates in logarithms; beyond the sizes that there are the nearest counts.
func (r *ratios) at(size int64) float64 {
	i, found := slices.BinarySearchFunc(r.points, size, func(p ratio, s int64) int { return cmp.Compare(p.bytes, s) })
	switch {
	case found || i == 0:
		return math.Exp(r.points[i].log)
	case i == len(r.points):
		return math.Exp(r.points[i-1].log)
	}
	a, b := r.points[i-1], r.points[i]
	x := math.Log(float64(size)/math.Max(float64(a.bytes), 1)) / math.Log(float64(b.bytes)/math.Max(float64(a.bytes), 1))
	return math.Exp(a.log + float64(x*(b.log-a.log)))
}
