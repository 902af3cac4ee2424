package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sim"
)

// timelineWidth is the number of columns of a text timeline.
const timelineWidth = 100

// timelines prints the simulated timeline of each half.
func (j *Job) timelines(t *Console) error {
	if j.stages != nil {
		return writeStageTimelines(t.Out, j.stages.r.Module, j.stages.s, j.Model)
	}
	for _, f := range []*ir.Func{j.pair.Forward, j.pair.Backward} {
		if f == nil {
			continue
		}
		m, tl, err := compile.Simulate(f, j.Model)
		if err != nil {
			return err
		}
		writeTimeline(t.Out, f, m, tl)
	}
	fmt.Fprintln(t.Out, timelineLegend)
	return nil
}

// writeStageTimelines prints the simulated timeline of each stage, all with the step's columns.
func writeStageTimelines(w io.Writer, m *ir.Module, s *ir.Stages, model *cost.Model) error {
	staged, err := compile.MeasureStages(m, s, model)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "@%s, simulated: %.3f ms, of which stages wait %.1f%%\n", s.Name, staged.Step, 100*staged.Bubble)
	for place, name := range s.Funcs {
		tl := *staged.Lines[place]
		tl.Makespan = staged.Step
		writeTimeline(w, m.Func(name), staged.Models[place], &tl)
	}
	_, err = fmt.Fprintln(w, timelineLegend)
	return err
}

// timelineLegend says what the signs of writeTimeline are.
const timelineLegend = `one row per stream, one column per 1% of the step: " .:-=#" from idle to busy, "!" compute waits`

// writeTimeline draws one row per stream: a column is as dark as the stream is
// busy in its share of the makespan, and '!' marks where compute waits.
func writeTimeline(w io.Writer, f *ir.Func, m *sim.Model, tl *sim.Timeline) {
	fmt.Fprintf(w, "@%s, simulated: %.3f ms, compute %.3f ms, exposed communication %.3f ms\n", f.Name, tl.Makespan, tl.Compute, tl.Exposed)
	if tl.Makespan <= 0 {
		return
	}
	names := []string{"compute"}
	rows := [][]float64{make([]float64, timelineWidth)}
	wait := make([]float64, timelineWidth)
	for range m.Streams {
		names, rows = append(names, ""), append(rows, make([]float64, timelineWidth))
	}
	for i, n := range f.Order() {
		switch n.Op().Class() {
		case ir.ClassCompute, ir.ClassMemory:
			fill(rows[0], tl.Begin[i], tl.End[i], tl.Makespan)
		case ir.ClassCollective:
			s := 1 + m.Stream[i]
			names[s] = "@" + n.Group().Name
			fill(rows[s], tl.Begin[i], tl.End[i], tl.Makespan)
		case ir.ClassWait:
			fill(wait, tl.Issue[i], tl.End[i], tl.Makespan)
		}
	}
	width := 0
	for _, n := range names {
		width = max(width, len(n))
	}
	for k, row := range rows {
		var b strings.Builder
		for c, share := range row {
			switch {
			case k == 0 && wait[c] > 0.5:
				b.WriteByte('!')
			default:
				b.WriteRune([]rune(" .:-=#")[min(int(share*6), 5)])
			}
		}
		fmt.Fprintf(w, "%*s |%s|\n", width, names[k], b.String())
	}
}

// fill adds an interval's share of each column.
func fill(row []float64, begin, end, span float64) {
	scale := float64(len(row)) / span
	a, b := begin*scale, end*scale
	for c := int(a); c < len(row) && float64(c) < b; c++ {
		row[c] += min(b, float64(c+1)) - max(a, float64(c))
	}
}
