package passes

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report is what the manager knows after a pipeline.
type Report struct {
	Steps []StepReport
	// Skipped counts the steps that Manager.Limit cut off.
	Skipped int
}

// StepReport is about one run of one pass over the module.
type StepReport struct {
	Number      int    // from 1
	Pass        string // name
	Spec        string // name with the options that were given, as pipelines spell it
	Changed     bool   // the module's text differs from the one before
	Digest      string // SHA-256 of the module's text after the pass, hexadecimal
	Nanos       int64  // time in the pass; 0 without a clock
	VerifyNanos int64  // time in the verifier and the hooks
	Stats       []StatValue
	Records     []CommRecord
}

// StatValue is one statistic, in the order in which the pass declares them.
type StatValue struct {
	Name  string
	Value float64
}

// Limit says why a collective was not moved any further.
type Limit string

// The limiting factors.
const (
	LimitNone       Limit = "none"             // nothing stands in the way: it is at the end of the program
	LimitData       Limit = "data dependence"  // it reads what stands there, or is read by it
	LimitEffect     Limit = "effect order"     // a side effect has to keep its place
	LimitCollective Limit = "collective order" // collectives keep their order
	LimitMemory     Limit = "memory"           // the peak would rise above the cap
	LimitHidden     Limit = "fully hidden"     // moving further gains nothing
	LimitStream     Limit = "stream busy"      // its communication stream is not free any earlier
	LimitSchedule   Limit = "schedule"         // the schedule as a whole, under its cap, left it there
	LimitDistance   Limit = "limit"            // the pass's own option
	LimitCost       Limit = "cost"             // by the cost model it would cost more
	LimitDisabled   Limit = "disabled"         // switched off by a bisect pattern
)

// CommRecord says what one pass did to one collective or its wait.
type CommRecord struct {
	Func    string
	Node    string // the node that moved: the start or the wait
	Comm    string // the collective
	Group   string
	Moves   int     // nodes it was moved across
	Grouped int     // nodes that moved along with it
	Ms      float64 // cost of the collective

	// Exposed is the time for which the compute stream blocks at the wait, in
	// milliseconds, before and after the pass.
	ExposedBefore, ExposedAfter float64

	Limit  Limit
	Detail string // the node or the numbers behind Limit
}

// AddDetail adds to Detail, behind a semicolon.
func (r *CommRecord) AddDetail(text string) {
	if r.Detail != "" {
		text = r.Detail + "; " + text
	}
	r.Detail = text
}

// String is one line of the report.
func (r CommRecord) String() string {
	s := fmt.Sprintf("%s moved %d, exposed %s to %s ms, limit: %s", r.Node, r.Moves, num(r.ExposedBefore), num(r.ExposedAfter), r.Limit)
	if r.Detail != "" {
		s += " (" + r.Detail + ")"
	}
	return s
}

// num formats a number of milliseconds for people.
func num(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }

// Stat returns a statistic of the step, 0 if the pass has none of that name.
func (s *StepReport) Stat(name string) float64 {
	for _, v := range s.Stats {
		if v.Name == name {
			return v.Value
		}
	}
	return 0
}

// WriteStats writes one line per statistic, "pass.stat value", in the order of the steps.
// Statistics of a pass that stands in the pipeline more than once carry its number:
// pass.2.stat for its second run. The error is w's.
func (r *Report) WriteStats(w io.Writer) error {
	runs := map[string]int{} // look-up only
	var b strings.Builder
	for i := range r.Steps {
		s := &r.Steps[i]
		runs[s.Pass]++
		prefix := s.Pass
		if k := runs[s.Pass]; k > 1 {
			prefix += "." + strconv.Itoa(k)
		}
		for _, v := range s.Stats {
			fmt.Fprintf(&b, "%s.%s %s\n", prefix, v.Name, strconv.FormatFloat(v.Value, 'g', 10, 64))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteTable writes one line per step: number, pass, whether it changed anything, its time and
// the verifier's. The error is w's.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "#\tpass\tchanged\tms\tverify ms\tdigest")
	for _, s := range r.Steps {
		fmt.Fprintf(t, "%d\t%s\t%v\t%.2f\t%.2f\t%.12s\n", s.Number, s.Spec, s.Changed, float64(s.Nanos)/1e6, float64(s.VerifyNanos)/1e6, s.Digest)
	}
	return t.Flush()
}

// WriteRecords writes the lines about collectives, one table per step that has any. The error
// is w's.
func (r *Report) WriteRecords(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.Steps {
		if len(s.Records) == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\nnode\tgroup\tms\tmoves\tgrouped\texposed before\tafter\tlimit\n", s.Spec)
		for _, c := range s.Records {
			limit := string(c.Limit)
			if c.Detail != "" {
				limit += ": " + c.Detail
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", c.Node, c.Group, num(c.Ms), c.Moves, c.Grouped, num(c.ExposedBefore), num(c.ExposedAfter), limit)
		}
	}
	return t.Flush()
}
