package cost

import (
	"embed"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/seed-ee968945/concert/cost/calibration"
)

//go:embed tables/*.json
var tableFiles embed.FS

// Point is one measurement: a collective over that many bytes takes Micros.
type Point struct {
	Bytes  int64
	Micros float64
}

// Table holds measured times of collectives by operation, implementation (such as nccl;
// empty: those of every implementation that has none of its own) and group size. Bytes
// count the larger of operand and result: the gathered buffer of an all_gather, the whole
// input of a reduce_scatter.
type Table struct {
	curves []curve // ascending by op, impl, ranks

	// PerRankMicros is added for every rank of a group beyond the largest
	// measured one: a table of 8 ranks says nothing about latency over 64.
	PerRankMicros float64
}

// curve is the measurements of one operation on one group size.
type curve struct {
	op, impl string
	ranks    int
	points   []Point // ascending by bytes
}

// Add adds a measurement.
func (t *Table) Add(op, impl string, ranks int, p Point) {
	i := slices.IndexFunc(t.curves, func(c curve) bool { return c.op == op && c.impl == impl && c.ranks == ranks })
	if i < 0 {
		t.curves = append(t.curves, curve{op: op, impl: impl, ranks: ranks})
		slices.SortFunc(t.curves, func(a, b curve) int {
			if c := strings.Compare(a.op, b.op); c != 0 {
				return c
			}
			if c := strings.Compare(a.impl, b.impl); c != 0 {
				return c
			}
			return a.ranks - b.ranks
		})
		i = slices.IndexFunc(t.curves, func(c curve) bool { return c.op == op && c.impl == impl && c.ranks == ranks })
	}
	c := &t.curves[i]
	at, found := slices.BinarySearchFunc(c.points, p, func(a, b Point) int { return int(min(max(a.Bytes-b.Bytes, -1), 1)) })
	if found {
		c.points[at] = p
		return
	}
	c.points = slices.Insert(c.points, at, p)
}

// has reports whether there is a curve of that kind.
func (t *Table) has(op, impl string, ranks int) bool {
	return slices.ContainsFunc(t.curves, func(c curve) bool { return c.op == op && c.impl == impl && c.ranks == ranks })
}

// hasImpl reports whether there is any curve of that implementation.
func (t *Table) hasImpl(impl string) bool {
	return slices.ContainsFunc(t.curves, func(c curve) bool { return c.impl == impl })
}

// Micros is the time of a collective of that implementation over a group of
// ranks, from the curve of the smallest measured group that is at least as
// large, else of the largest. Between points time is interpolated in the
// logarithms of both; below 1 KiB it is flat; above 1 GiB, or the largest
// point, it is proportional. False if the table does not know the operation.
// What was measured is one NVLink domain, unless so many ranks do not fit into one.
func (t *Table) Micros(op, impl string, ranks int, size int64) (float64, bool) {
	best := -1
	for i, c := range t.curves {
		if c.op == op && c.impl == impl && (best < 0 || t.curves[best].ranks < ranks) {
			best = i
		}
	}
	if best < 0 {
		if impl != "" {
			return t.Micros(op, "", ranks, size)
		}
		return 0, false
	}
	c := &t.curves[best]
	us := c.at(size)
	if ranks > c.ranks {
		us += t.PerRankMicros * float64(ranks)
	}
	return us, true
}

func (c *curve) at(size int64) float64 {
	p := c.points
	last := p[len(p)-1]
	switch {
	case size <= p[0].Bytes:
		return p[0].Micros
	case size >= last.Bytes:
		return last.Micros * float64(size) / float64(max(last.Bytes, 1))
	}
	i, _ := slices.BinarySearchFunc(p, size, func(q Point, s int64) int { return int(min(max(q.Bytes-s, -1), 1)) })
	a, b := p[i-1], p[i]
	x := math.Log(float64(size)/float64(a.Bytes)) / math.Log(float64(b.Bytes)/float64(a.Bytes))
	return a.Micros * math.Pow(b.Micros/a.Micros, x)
}

// H200 returns NCCL's collectives as measured on 4 and on 8 H200s of one host,
// without NVLink multicast; every rank beyond 8 adds 5/8 microseconds per rank
// of the group.
func H200() *Table { return tableOf(ncclH200(), 5.0/8) }

// Concert returns this runtime's own collectives as calibrated on four H200s of one host:
// of calibration.Own in the form for overlapped with compute, which leaves it its multiprocessors, and
// of calibration.OwnAlone in the form for nothing beside them. Smaller groups are taken to cost as
// much, larger ones half a microsecond more for each rank. It knows all_gather,
// reduce_scatter, all_reduce and all_to_all.
func Concert() *Table { return tableOf(concertH200(), 0.5) }

func tableOf(c *calibration.File, perRank float64) *Table {
	t := TableOf(c)
	t.PerRankMicros = perRank
	return t
}

// The calibrations that are part of the program: nobody changes them, and every compilation
// asks for one.
var ncclH200, concertH200 = embedded("tables/nccl_h200.json"), embedded("tables/concert_h200.json")

// embedded reads a file once.
func embedded(name string) func() *calibration.File {
	return sync.OnceValue(func() *calibration.File {
		r, err := tableFiles.Open(name)
		if err == nil {
			var c *calibration.File
			if c, err = calibration.Read(name, r); err == nil {
				return c
			}
		}
		panic("cost: embedded table: " + err.Error()) // a test reads the files
	})
}
