package pack

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A Table is a problem read from a CSV file, with the file's own rows, so that
// a placement can be written back beside them.
type Table struct {
	Problem Problem
	// IDs holds the id column, by buffer.
	IDs []string
	// header and rows are the file as read, without the offset column.
	header []string
	rows   [][]string
}

// A CSVError reports what is wrong with a CSV file.
type CSVError struct {
	Row    int    // line of the file, counted from 1; 0 for the whole file
	Column string // name of the column, or empty
	Err    error
}

// Error implements error.
func (e *CSVError) Error() string {
	where := "csv"
	if e.Row > 0 {
		where = fmt.Sprintf("csv row %d", e.Row)
	}
	if e.Column != "" {
		where += ", column " + e.Column
	}
	return where + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CSVError) Unwrap() error { return e.Err }

// ReadCSV reads a problem in the format of google/minimalloc: a header that
// names the columns in any order, then a row for each buffer. The columns id,
// lower, upper (half-open) and size are required, each once; begin and end
// (inclusive) stand for lower and upper; alignment is optional. An offset
// column is ignored, hence the output of [Table.WriteCSV] is a valid input.
// Any other column is kept but not understood, except gaps and hint, which
// would change the problem: they must be empty. Errors are of type
// [*CSVError] and name the row.
func ReadCSV(r io.Reader) (*Table, error) {
	cr := csv.NewReader(r)
	cr.TrimLeadingSpace = true
	header, err := cr.Read()
	if err == io.EOF {
		return nil, &CSVError{Err: errors.New("no header")}
	}
	if err != nil {
		return nil, csvSyntax(err)
	}
	cols, err := readHeader(header)
	if err != nil {
		return nil, err
	}
	t := &Table{header: slices.Clone(header)}
	seen := map[string]int{}
	var lines []int // of the file, by buffer
	for {
		rec, err := cr.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, csvSyntax(err)
		}
		row, _ := cr.FieldPos(0)
		b, err := cols.buffer(row, rec)
		if err != nil {
			return nil, err
		}
		id := rec[cols.id]
		if first, ok := seen[id]; ok {
			return nil, &CSVError{Row: row, Column: "id", Err: fmt.Errorf("id %q is already used in row %d", id, first)}
		}
		seen[id] = row
		lines = append(lines, row)
		t.IDs = append(t.IDs, id)
		t.rows = append(t.rows, slices.Clone(rec))
		t.Problem.Buffers = append(t.Problem.Buffers, b)
	}
	if err := t.Problem.Check(); err != nil {
		var be *BufferError
		if errors.As(err, &be) {
			return nil, &CSVError{Row: lines[be.Buffer], Err: errors.New(be.Reason)}
		}
		return nil, &CSVError{Err: err}
	}
	if cols.offset >= 0 {
		t.header = slices.Delete(t.header, cols.offset, cols.offset+1)
		for i := range t.rows {
			t.rows[i] = slices.Delete(t.rows[i], cols.offset, cols.offset+1)
		}
	}
	return t, nil
}

// csvSyntax turns an error of encoding/csv into a CSVError.
func csvSyntax(err error) error {
	var pe *csv.ParseError
	if errors.As(err, &pe) {
		return &CSVError{Row: pe.Line, Err: pe.Err}
	}
	return &CSVError{Err: err}
}

// csvColumns holds the position of each known column, -1 if absent.
type csvColumns struct {
	id, lower, upper, begin, end, size, alignment, offset, gaps, hint int
}

func readHeader(header []string) (*csvColumns, error) {
	c := &csvColumns{}
	known := []struct {
		name string
		at   *int
	}{
		{"id", &c.id}, {"lower", &c.lower}, {"upper", &c.upper}, {"begin", &c.begin}, {"end", &c.end},
		{"size", &c.size}, {"alignment", &c.alignment}, {"offset", &c.offset}, {"gaps", &c.gaps}, {"hint", &c.hint},
	}
	for _, k := range known {
		*k.at = -1
		for i, h := range header {
			if strings.TrimSpace(h) != k.name {
				continue
			}
			if *k.at >= 0 {
				return nil, &CSVError{Row: 1, Column: k.name, Err: errors.New("the column appears twice")}
			}
			*k.at = i
		}
	}
	need := func(ok bool, what string) error {
		if !ok {
			return &CSVError{Row: 1, Err: fmt.Errorf("the header %q lacks %s", strings.Join(header, ","), what)}
		}
		return nil
	}
	return c, errors.Join(
		need(c.id >= 0, "column id"),
		need((c.lower >= 0) != (c.begin >= 0), "exactly one of the columns lower and begin"),
		need((c.upper >= 0) != (c.end >= 0), "exactly one of the columns upper and end"),
		need(c.size >= 0, "column size"))
}

// buffer reads one row.
func (c *csvColumns) buffer(row int, rec []string) (Buffer, error) {
	var b Buffer
	var first error
	number := func(at int, name string, into *int64) {
		if at < 0 || first != nil {
			return
		}
		v, err := strconv.ParseInt(strings.TrimSpace(rec[at]), 10, 64)
		if err != nil {
			var ne *strconv.NumError
			if errors.As(err, &ne) {
				err = ne.Err
			}
			first = &CSVError{Row: row, Column: name, Err: fmt.Errorf("%q is not a 64-bit integer: %w", rec[at], err)}
		}
		*into = v
	}
	number(c.lower, "lower", &b.Lower)
	number(c.begin, "begin", &b.Lower)
	number(c.upper, "upper", &b.Upper)
	number(c.size, "size", &b.Size)
	if c.alignment >= 0 && strings.TrimSpace(rec[c.alignment]) != "" {
		number(c.alignment, "alignment", &b.Align)
	}
	if c.end >= 0 {
		last := int64(0)
		number(c.end, "end", &last)
		if first == nil && last == 1<<63-1 {
			first = &CSVError{Row: row, Column: "end", Err: errors.New("an inclusive end must be below the largest integer")}
		}
		b.Upper = last + 1
	}
	for _, f := range []struct {
		at   int
		name string
	}{{c.gaps, "gaps"}, {c.hint, "hint"}} {
		if f.at >= 0 && first == nil && strings.TrimSpace(rec[f.at]) != "" {
			first = &CSVError{Row: row, Column: f.name, Err: errors.New("not supported; leave it empty")}
		}
	}
	return b, first
}

// WriteCSV writes the rows of the table as they were read, with an offset
// column appended (an offset column of the input is replaced).
func (t *Table) WriteCSV(w io.Writer, offsets []int64) error {
	if len(offsets) != len(t.rows) {
		return fmt.Errorf("%d offsets for %d rows", len(offsets), len(t.rows))
	}
	cw := csv.NewWriter(w)
	if err := cw.Write(append(slices.Clone(t.header), "offset")); err != nil {
		return err
	}
	for i, rec := range t.rows {
		if err := cw.Write(append(slices.Clone(rec), strconv.FormatInt(offsets[i], 10))); err != nil {
			return err
		}
	}
	cw.Flush()
	return cw.Error()
}
