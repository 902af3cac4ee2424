// Package report draws what a pipeline did to a function as one HTML page that
// needs nothing but a browser: timelines and memory before and after, every
// collective with what hides it, statistics, and the IR after each changed pass.
//
// The page is static; its data is JSON, gzipped and base64-coded into it, and its
// script draws on canvases, so that a page of 20,000 nodes stays under two
// megabytes and draws at once.
package report

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/partition"
	"github.com/seed-ee968945/concert/sim"
)

//go:embed page.html
var page string

//go:embed page.css
var style string

//go:embed page.js
var script string

// Report collects what the page shows.
type Report struct {
	Title string
	data  data
	costs *cost.Model
	lines map[string]int
}

// The JSON form; the names are short because there are many.
type data struct {
	Title     string     `json:"title"`
	World     int        `json:"world"`
	Bound     float64    `json:"bound"`
	Stages    *stages    `json:"stages,omitempty"`
	Timelines []timeline `json:"timelines"`
	Comms     []comm     `json:"comms"`
	Passes    []pass     `json:"passes"`
	Lines     []string   `json:"lines"`
	Versions  []version  `json:"versions"`
	Helps     []string   `json:"helps,omitempty"`
	Frontier  []point    `json:"frontier,omitempty"`
	Curve     []budget   `json:"curve,omitempty"`
}

type timeline struct {
	Label       string    `json:"label"`
	Makespan    float64   `json:"makespan"`
	Compute     float64   `json:"compute"`
	Exposed     float64   `json:"exposed"`
	Peak        int64     `json:"peak"`
	PeakAt      float64   `json:"peakAt"` // milliseconds
	Nodes       int       `json:"nodes"`
	Collectives int       `json:"collectives"`
	Names       []string  `json:"names"`
	Rows        []row     `json:"rows"`
	MemT        []float64 `json:"memT"`
	MemV        []int64   `json:"memV"` // bytes, a step curve
	Live        []tensor  `json:"live"` // at the peak, largest first
	LiveMore    int       `json:"liveMore"`
	LiveRest    int64     `json:"liveRest"`
}

// stages is what the page says of stages, which have a timeline each.
type stages struct {
	Step   float64 `json:"step"`
	Bubble float64 `json:"bubble"`
}

// row is one stream. Spans come in threes: begin, duration (milliseconds), and
// 8*name + class.
type row struct {
	Name  string    `json:"name"`
	Spans []float64 `json:"spans"`
}

type tensor struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Type  string `json:"type"`
}

type comm struct {
	Name    string   `json:"name"`
	Op      string   `json:"op"`
	Group   string   `json:"group"`
	Bytes   int64    `json:"bytes"`
	Ms      float64  `json:"ms"`
	Begin   float64  `json:"begin"`
	Exposed float64  `json:"exposed"`
	Hidden  float64  `json:"hidden"`
	By      []string `json:"by,omitempty"`
	Limit   string   `json:"limit,omitempty"`
	Members int      `json:"members"`
}

type pass struct {
	Spec    string  `json:"spec"`
	Changed bool    `json:"changed"`
	Ms      float64 `json:"ms"`
	Verify  float64 `json:"verify"`
	Stats   []stat  `json:"stats"`
}

type stat struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

type version struct {
	Label string `json:"label"`
	Lines []int  `json:"lines"` // deltas between indices into Lines
}

type point struct {
	Cap      float64 `json:"cap"`
	Makespan float64 `json:"makespan"`
	Peak     int64   `json:"peak"`
}

// budget is one point of the curve of activation memory against recomputation.
type budget struct {
	Budget      float64 `json:"budget"`
	Saved       int64   `json:"saved"` // bytes
	RecomputeMs float64 `json:"recompute"`
	Values      int     `json:"values"`
	Ops         int     `json:"ops"`
	Forward     int64   `json:"forward"` // peaks, bytes
	Backward    int64   `json:"backward"`
}

// Classes of spans, as the script colours them.
const (
	classCompute = iota
	classMemory
	classExposed
	classAllGather
	classReduceScatter
	classAllReduce
	classOther
)

// New starts a report about the function as it is now; costs serves nodes
// without attached costs.
func New(title string, f *ir.Func, costs *cost.Model) (*Report, error) {
	r := Of(title, f.Module())
	r.costs = costs
	m, tl, err := r.model(f)
	if err != nil {
		return nil, err
	}
	r.timeline("before", f, m, tl)
	r.data.Bound = max(sim.LowerBound(m).Bound, sim.SetBound(m))
	return r, nil
}

// Of starts a report about stages of a module, or what a pass will cut into some.
func Of(title string, m *ir.Module) *Report {
	r := &Report{Title: title, lines: map[string]int{}}
	r.data.Title, r.data.World = title, m.World
	r.Version("input", m.AppendText(nil))
	return r
}

// Version adds the module's text after a pass.
func (r *Report) Version(label string, text []byte) {
	v := version{Label: label}
	last := 0
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		i, ok := r.lines[line]
		if !ok {
			i = len(r.data.Lines)
			r.lines[line] = i
			r.data.Lines = append(r.data.Lines, line)
		}
		v.Lines = append(v.Lines, i-last)
		last = i
	}
	r.data.Versions = append(r.data.Versions, v)
}

// Frontier adds a point of the makespan over memory caps, as a fraction of the
// input's peak.
func (r *Report) Frontier(capFraction, makespan float64, peak int64) {
	r.data.Frontier = append(r.data.Frontier, point{capFraction, makespan, peak})
}

// Curve adds the points of pass partition over the joint step: what is saved
// against what is repeated.
func (r *Report) Curve(points []partition.Point) {
	for _, p := range points {
		r.data.Curve = append(r.data.Curve, budget{p.Budget, p.SavedBytes, round(p.RecomputeMs), p.Saved, p.Recomputed, p.ForwardPeak, p.BackwardPeak})
	}
}

// Help adds a sentence about what would make the step faster.
func (r *Report) Help(sentence string) { r.data.Helps = append(r.data.Helps, sentence) }

// Finish adds the function after the pipeline and what the passes reported.
func (r *Report) Finish(f *ir.Func, rep *passes.Report) error {
	m, tl, err := r.model(f)
	if err != nil {
		return err
	}
	r.timeline("after", f, m, tl)
	r.comms(f, m, tl, "", r.passed(rep))
	return nil
}

// FinishStages adds stages of a module after the pipeline, as they run side by side, and what the
// passes reported. bubble is the part of their time in which they do not compute.
func (r *Report) FinishStages(m *ir.Module, s *ir.Stages, models []*sim.Model, lines []*sim.Timeline, bubble float64, rep *passes.Report) {
	limits := r.passed(rep)
	r.data.World = m.World
	r.data.Stages = &stages{Bubble: bubble}
	for place, name := range s.Funcs {
		r.data.Stages.Step = max(r.data.Stages.Step, round(lines[place].Makespan))
		r.timeline("@"+name, m.Func(name), models[place], lines[place])
		r.comms(m.Func(name), models[place], lines[place], "@"+name+" ", limits)
	}
}

// passed adds what the passes reported, and gives what they say of collectives, by name.
func (r *Report) passed(rep *passes.Report) map[string]string {
	limits := map[string]string{}
	for _, s := range rep.Steps {
		p := pass{Spec: s.Spec, Changed: s.Changed, Ms: float64(s.Nanos) / 1e6, Verify: float64(s.VerifyNanos) / 1e6}
		for _, v := range s.Stats {
			p.Stats = append(p.Stats, stat{v.Name, v.Value})
		}
		r.data.Passes = append(r.data.Passes, p)
		for _, c := range s.Records {
			text := string(c.Limit)
			if c.Detail != "" {
				text += ": " + c.Detail
			}
			limits[c.Comm] = text
		}
	}
	return limits
}

// model simulates a function in its own order.
func (r *Report) model(f *ir.Func) (*sim.Model, *sim.Timeline, error) {
	m, err := sim.FromFunc(f, sim.FuncOptions{Ms: func(n *ir.Node) float64 {
		ms, _ := r.costs.NodeMs(n)
		return ms
	}})
	if err != nil {
		return nil, nil, err
	}
	tl, err := sim.Evaluate(m, m.InputOrder(), nil)
	return m, tl, err
}

// timeline adds a timeline of the function in its own order.
func (r *Report) timeline(label string, f *ir.Func, m *sim.Model, tl *sim.Timeline) {
	t := timeline{Label: label, Makespan: round(tl.Makespan), Compute: round(tl.Compute), Exposed: round(tl.Exposed), Peak: tl.Peak, Nodes: m.Len(),
		Rows: make([]row, 1+m.Streams)}
	t.Rows[0].Name = "compute"
	span := func(k int, begin, end float64, name string, class int) {
		if end <= begin {
			return
		}
		t.Rows[k].Spans = append(t.Rows[k].Spans, round(begin), round(end-begin), float64(8*len(t.Names)+class))
		t.Names = append(t.Names, name)
	}
	for i, n := range f.Order() {
		switch n.Op().Class() {
		case ir.ClassCompute:
			span(0, tl.Begin[i], tl.End[i], n.Name()+" "+n.Op().Name(), classCompute)
		case ir.ClassMemory:
			span(0, tl.Begin[i], tl.End[i], n.Name()+" "+n.Op().Name(), classMemory)
		case ir.ClassWait:
			span(0, tl.Issue[i], tl.End[i], "waits: "+n.Name(), classExposed)
		case ir.ClassCollective:
			t.Collectives++
			k := 1 + int(m.Stream[i])
			t.Rows[k].Name = "@" + n.Group().Name
			span(k, tl.Begin[i], tl.End[i], fmt.Sprintf("%s %s, %s", n.Name(), n.Op().Name(), passes.Bytes(cost.CommBytes(n))), commClass(n.Op()))
		}
	}
	t.memory(tl)
	t.live(f, m, tl)
	r.data.Timelines = append(r.data.Timelines, t)
}

func commClass(op ir.Op) int {
	switch op {
	case ir.OpAllGather:
		return classAllGather
	case ir.OpReduceScatter:
		return classReduceScatter
	case ir.OpAllReduce:
		return classAllReduce
	}
	return classOther
}

// round keeps a nanosecond: enough to draw, and short as text.
func round(ms float64) float64 { return math.Round(ms*1e6) / 1e6 }

// memory reduces the curve to the points where it changes; what happens at one
// instant keeps its highest value.
func (t *timeline) memory(tl *sim.Timeline) {
	for p, v := range tl.Memory {
		at := round(tl.Issue[p])
		if n := len(t.MemT); n > 0 && t.MemT[n-1] == at {
			t.MemV[n-1] = max(t.MemV[n-1], v)
			continue
		}
		if n := len(t.MemV); n > 0 && t.MemV[n-1] == v {
			continue
		}
		t.MemT, t.MemV = append(t.MemT, at), append(t.MemV, v)
	}
	t.PeakAt = round(tl.Issue[tl.PeakAt])
}

// shownLive bounds the list of tensors at the peak.
const shownLive = 100

// live lists the storages that are live at the peak, largest first. The order of
// the model is the function's, so positions are node numbers.
func (t *timeline) live(f *ir.Func, m *sim.Model, tl *sim.Timeline) {
	order := f.Order()
	last := make([]int, len(m.Size))
	for i := range order {
		for _, s := range m.Use.At(int32(i)) {
			last[s] = max(last[s], i)
		}
	}
	var all []tensor
	for s, size := range m.Size {
		def := int(m.Owner[s])
		if order[def].Op() == ir.OpInput {
			def = 0
		}
		if def > tl.PeakAt || max(last[s], def) < tl.PeakAt && !m.Pinned[s] {
			continue
		}
		n := order[m.Owner[s]]
		k := int(int32(s) - m.Alloc.At(m.Owner[s])[0])
		all = append(all, tensor{n.Name(), size, typeOf(n, k)})
	}
	slices.SortStableFunc(all, func(a, b tensor) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for i, x := range all {
		if i >= shownLive {
			t.LiveMore++
			t.LiveRest += x.Bytes
		}
	}
	t.Live = all[:min(len(all), shownLive)]
}

// typeOf is the text of the k-th tensor that a node makes.
func typeOf(n *ir.Node, k int) string {
	for _, r := range n.Results() {
		ts := r.Type().Tensors()
		if k < len(ts) {
			return ts[k].String()
		}
		k -= len(ts)
	}
	return ""
}

// comms lists the collectives with what hides each; the names begin with of.
func (r *Report) comms(f *ir.Func, m *sim.Model, tl *sim.Timeline, of string, limits map[string]string) {
	order := f.Order()
	var busy []int // launches in order of time
	for i := range order {
		if m.Kind[i] == sim.Compute && tl.End[i] > tl.Begin[i] {
			busy = append(busy, i)
		}
	}
	exposed := make([]float64, len(order))
	for i := range order {
		if s := m.StartOf[i]; s >= 0 {
			exposed[s] += max(0, tl.End[i]-tl.Issue[i])
		}
	}
	for i, n := range order {
		if !n.Op().IsCollective() {
			continue
		}
		members := n.Meta().Strs("members")
		c := comm{Name: of + n.Name(), Op: n.Op().Name(), Group: n.Group().Name, Bytes: cost.CommBytes(n), Ms: round(m.Dur[i]), Begin: round(tl.Begin[i]),
			Exposed: round(exposed[i]), Limit: limits[n.Name()], Members: max(1, len(members))}
		for _, member := range members { // a pass may speak of a bucket by its members
			if c.Limit == "" {
				c.Limit = limits[member]
			}
		}
		hiders := overlapping(busy, tl, tl.Begin[i], tl.End[i])
		for _, h := range hiders {
			c.Hidden += h.ms
		}
		c.Hidden = round(min(c.Hidden, m.Dur[i]))
		slices.SortStableFunc(hiders, func(a, b overlapped) int { return cmp.Compare(b.ms, a.ms) })
		for _, h := range hiders[:min(len(hiders), 3)] {
			c.By = append(c.By, fmt.Sprintf("%s %s %.3f ms", order[h.node].Name(), order[h.node].Op().Name(), h.ms))
		}
		if len(hiders) > 3 {
			c.By = append(c.By, fmt.Sprintf("and %d more", len(hiders)-3))
		}
		r.data.Comms = append(r.data.Comms, c)
	}
}

type overlapped struct {
	node int
	ms   float64
}

// overlapping lists the launches that run during an interval. busy is in order of time.
func overlapping(busy []int, tl *sim.Timeline, begin, end float64) []overlapped {
	at, _ := slices.BinarySearchFunc(busy, begin, func(i int, t float64) int { return cmp.Compare(tl.End[i], t) })
	var out []overlapped
	for ; at < len(busy) && tl.Begin[busy[at]] < end; at++ {
		i := busy[at]
		if ms := min(end, tl.End[i]) - max(begin, tl.Begin[i]); ms > 0 {
			out = append(out, overlapped{i, ms})
		}
	}
	return out
}

// WriteTo writes the page.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	text, err := json.Marshal(&r.data)
	if err != nil {
		return 0, fmt.Errorf("report: %w", err)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return 0, fmt.Errorf("report: %w", err)
	}
	if _, err := z.Write(text); err != nil {
		return 0, fmt.Errorf("report: %w", err)
	}
	if err := z.Close(); err != nil {
		return 0, fmt.Errorf("report: %w", err)
	}
	out := strings.NewReplacer("{{title}}", html.EscapeString(r.Title), "{{style}}", style, "{{script}}", script,
		"{{data}}", base64.StdEncoding.EncodeToString(packed.Bytes())).Replace(page)
	n, err := io.WriteString(w, out)
	return int64(n), err
}
