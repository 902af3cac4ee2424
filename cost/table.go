package cost

import (
	"bytes"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

//go:embed tables/*.csv
var tableFiles embed.FS

// Point is one measurement: a collective over that many bytes takes Micros.
type Point struct {
	Bytes  int64
	Micros float64
}

// Table holds measured times of collectives by operation and group size. The
// text form is CSV with a header naming at least op, bytes and microseconds; the
// columns impl (the implementation, such as nccl; rows without one serve every
// implementation that has no rows of its own) and ranks (the group's size) are
// optional, and lines that start with '#' are comments. Bytes count the
// larger of operand and result: the gathered buffer of an all_gather, the whole
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

// TableError is a broken line of a table.
type TableError struct {
	Name string
	Line int
	Err  error
}

// Error names the file and line.
func (e *TableError) Error() string { return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err) }

// Unwrap returns the cause.
func (e *TableError) Unwrap() error { return e.Err }

// ReadTable reads a table's CSV. name is what errors call it; ranks is the group
// size of rows without a ranks column, 0 to demand one.
func ReadTable(name string, r io.Reader, ranks int) (*Table, error) {
	cr := csv.NewReader(r)
	cr.Comment = '#'
	cr.TrimLeadingSpace = true
	header, err := cr.Read()
	if err != nil {
		return nil, &TableError{name, 1, fmt.Errorf("no header: want the columns op, bytes, microseconds: %w", err)}
	}
	col := map[string]int{}
	for i, h := range header {
		h = strings.TrimSpace(h)
		if !slices.Contains([]string{"op", "impl", "ranks", "bytes", "microseconds"}, h) {
			return nil, &TableError{name, 1, fmt.Errorf("column %q is not one of op, impl, ranks, bytes, microseconds", h)}
		}
		if _, twice := col[h]; twice {
			return nil, &TableError{name, 1, fmt.Errorf("column %q stands twice", h)}
		}
		col[h] = i
	}
	for _, want := range []string{"op", "bytes", "microseconds"} {
		if _, ok := col[want]; !ok {
			return nil, &TableError{name, 1, fmt.Errorf("column %q is missing; have %s", want, strings.Join(header, ", "))}
		}
	}
	t := &Table{}
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		line, _ := cr.FieldPos(0)
		if err != nil {
			return nil, &TableError{name, line, err}
		}
		if err := t.add(rec, col, ranks); err != nil {
			return nil, &TableError{name, line, err}
		}
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// add adds one record.
func (t *Table) add(rec []string, col map[string]int, ranks int) error {
	field := func(name string) string {
		if i, ok := col[name]; ok {
			return strings.TrimSpace(rec[i])
		}
		return ""
	}
	size, err := strconv.ParseInt(field("bytes"), 10, 64)
	if err != nil || size < 0 {
		return fmt.Errorf("bytes %q is not a size", field("bytes"))
	}
	us, err := strconv.ParseFloat(field("microseconds"), 64)
	if err != nil || !(us > 0) || us > maxFigure {
		return fmt.Errorf("microseconds %q is not a positive time of at most %v", field("microseconds"), float64(maxFigure))
	}
	if op := field("op"); !measurable(op) {
		return fmt.Errorf("op %q is no collective, barrier, p2p_copy, local_copy or empty-kernel", op)
	}
	if s := field("ranks"); s != "" {
		if ranks, err = strconv.Atoi(s); err != nil || ranks < 1 || ranks > ir.MaxWorld {
			return fmt.Errorf("ranks %q is not a group size", s)
		}
	}
	if ranks < 1 {
		return fmt.Errorf("the table has no column ranks, and no group size was given for it")
	}
	t.Add(field("op"), field("impl"), ranks, Point{size, us})
	return nil
}

// measurable reports whether a table may have rows of that name.
func measurable(name string) bool {
	switch name {
	case "barrier", "p2p_copy", "local_copy", "empty-kernel":
		return true
	}
	op, ok := ir.OpByName(name)
	return ok && op.IsCollective()
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

// check rejects tables that interpolation cannot use.
func (t *Table) check() error {
	if len(t.curves) == 0 {
		return fmt.Errorf("the table holds no measurement")
	}
	return nil
}

// Merge adds all measurements of u, which win over equal ones of t.
func (t *Table) Merge(u *Table) {
	for _, c := range u.curves {
		for _, p := range c.points {
			t.Add(c.op, c.impl, c.ranks, p)
		}
	}
}

// WriteTo writes the table's CSV, which ReadTable reads.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	b.WriteString("op,impl,ranks,bytes,microseconds\n")
	for _, c := range t.curves {
		for _, p := range c.points {
			fmt.Fprintf(&b, "%s,%s,%d,%d,%s\n", c.op, c.impl, c.ranks, p.Bytes, strconv.FormatFloat(p.Micros, 'f', -1, 64))
		}
	}
	return b.WriteTo(w)
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
func H200() *Table {
	t := &Table{PerRankMicros: 5.0 / 8}
	t.embedded("tables/collectives_h200x4.csv", 4)
	t.embedded("tables/collectives_h200x8.csv", 8)
	return t
}

// Concert returns this runtime's own collectives as calibrated on four H200s of one host:
// of MeasuredImpl in the form for beside compute, which leaves it its multiprocessors, and
// of AloneImpl in the form for nothing beside them. Smaller groups are taken to cost as
// much, larger ones half a microsecond more for each rank. It knows all_gather,
// reduce_scatter, all_reduce and all_to_all.
func Concert() *Table {
	t := &Table{PerRankMicros: 0.5}
	t.embedded("tables/concert_h200.csv", 0)
	return t
}

// embedded adds a table that is part of the program.
func (t *Table) embedded(name string, ranks int) {
	data, err := tableFiles.ReadFile(name)
	if err == nil {
		var u *Table
		if u, err = ReadTable(name, bytes.NewReader(data), ranks); err == nil {
			t.Merge(u)
		}
	}
	if err != nil { // a test reads the files
		panic("cost: embedded table: " + err.Error())
	}
}
