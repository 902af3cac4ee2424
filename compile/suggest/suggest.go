// Package suggest searches for shardings of a single-device program on a mesh: which axes split
// the batch, the sequence, the parameters and the experts. It assigns roles to the axes,
// partitions and compiles the program for each assignment, and takes time and peak memory per
// rank from the simulator.
//
// # The search
//
// Each axis has one of a few roles ([Role]); all combinations are tried (roles.go).
// Annotations follow from the roles (annotate.go). Shardings are propagated by priority: the
// batch before tensor parallelism, that before the sequence, and sharded storage of parameters
// (FSDP) last. Tensor parallelism shards what a parameter produces, in the order of use, and
// propagation does the rest: for a transformer this gives Megatron's layout. Undominated
// candidates are then varied in one place at a time while that helps: a class of parameters is
// left unsharded, or a table is sharded by columns.
//
// Repeated layers are solved once (layers.go): all of them get the same annotations, and their
// cost is extrapolated from programs with four and five layers. The frontier has the figures of
// the whole program.
package suggest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sharding"
)

// Options are those of a search. The zero Options has the costs of an H200.
type Options struct {
	Costs *cost.Model // nil is cost.Default()
}

// Figures are what the simulator says of a rank.
type Figures struct {
	Time float64 // of a step, in milliseconds
	Peak int64   // bytes that live at once
}

// Strategy says how a program lies on a mesh.
type Strategy struct {
	Axes  []sharding.Ref // of the mesh, or the two parts of its only axis
	Roles []Role         // of each of these
	Whole []string       // parameters that axes of tensors could cut and do not, the first of each kind
	Last  []string       // types of what is stored in pieces of its last dimension, and not of its first
	Figures

	split *split
}

// Result is what a search has found.
type Result struct {
	Mesh     *sharding.Mesh
	Layers   int        // that repeat, 0 if none do
	Tried    int        // strategies that were partitioned
	Frontier []Strategy // of which none is both faster and smaller, the fastest first

	program *program
}

// String is the roles by axis: data=fsdp, model=tensor, or of parts of one: x:(1)2=fsdp, x:(2)4=tensor.
func (r *Result) String(a *Strategy) string {
	out := make([]string, len(a.Roles))
	for i, x := range a.Axes {
		out[i] = strings.ReplaceAll(x.String(), `"`, "") + "=" + a.Roles[i].String()
	}
	text := strings.Join(out, ", ")
	if len(a.Whole) > 0 {
		text += ", whole " + strings.Join(a.Whole, ", ")
	}
	if len(a.Last) > 0 {
		text += ", columns of " + strings.Join(a.Last, ", ")
	}
	return text
}

// Annotations lists the annotations of a strategy, those of parameters at one place of a layer in one line.
func (r *Result) Annotations(a *Strategy) ([]string, error) {
	m, err := r.program.annotated(a)
	if err != nil {
		return nil, err
	}
	type line struct {
		first, text string
		n           int
	}
	var lines []*line
	by := map[string]*line{} // look-up only
	f := m.Func(r.program.f.Name)
	for i, n := range f.Inputs() {
		text := n.Meta().Strs(sharding.Key)
		if len(text) == 0 {
			continue
		}
		kind := r.program.layers.kind(r.program.f.Inputs()[i])
		if by[kind] == nil {
			by[kind] = &line{first: "%" + n.Name(), text: text[0]}
			lines = append(lines, by[kind])
		}
		by[kind].n++
	}
	for i, text := range f.Return().Meta().Strs(sharding.Key) {
		if last := len(lines) - 1; text != "" && i > 0 && strings.HasPrefix(lines[last].first, "result") && lines[last].text == text {
			lines[last].n++
		} else if text != "" {
			lines = append(lines, &line{fmt.Sprintf("result %d", i), text, 1})
		}
	}
	var out []string
	for _, l := range lines {
		_, dims, _ := strings.Cut(l.text, ">, ")
		if l.n > 1 {
			l.first += fmt.Sprintf(" and %d more", l.n-1)
		}
		out = append(out, l.first+": "+strings.TrimSuffix(dims, ">"))
	}
	return out, nil
}

// Annotated is the program with the annotations of a strategy, for [compile.Partition].
func (r *Result) Annotated(a *Strategy) (*ir.Module, error) { return r.program.annotated(a) }

// search is one search.
type search struct {
	*program
	ctx   context.Context
	costs *cost.Model
	quick *passes.Pipeline
	short []*program // with two numbers of layers; none if no layers repeat
	pool  []*Strategy
	seen  map[string]bool // annotations that were tried; look-up only
}

// quick is the pipeline for estimates: the default one with one attempt at an order, and no memory
// plan.
const quick = "canonicalize,simplify-collectives,hierarchy{reassociate=true},overlap{runs=1}"

// Search tries strategies of a function of one device, whose axes' sizes give the number of
// ranks. It is deterministic. The error is ctx's, or says why no strategy could be partitioned.
func Search(ctx context.Context, f *ir.Func, axes []ir.Axis, o Options) (*Result, error) {
	p, err := newProgram(f, axes)
	if err != nil {
		return nil, err
	}
	s := &search{program: p, ctx: ctx, costs: o.Costs, seen: map[string]bool{}}
	if s.costs == nil {
		s.costs = cost.Default()
	}
	if s.quick, err = standard.Table().Parse(quick); err != nil {
		return nil, err
	}
	s.short = p.shortened()
	var all []*Strategy
	for _, x := range splits(p.mesh) {
		all = append(all, p.roles(x)...)
	}
	if err := s.try(all); err != nil {
		return nil, err
	}
	if err := s.improve(); err != nil {
		return nil, err
	}
	r := &Result{Mesh: p.mesh, Tried: len(s.pool), Layers: p.layers.count, program: p}
	best, err := s.settle()
	if err != nil {
		return nil, err
	}
	for _, a := range best {
		r.Frontier = append(r.Frontier, *a)
	}
	return r, nil
}

// try estimates strategies whose annotations are new. Those that cannot be partitioned are left out,
// unless all are such.
func (s *search) try(all []*Strategy) error {
	p := s.program
	if s.short != nil {
		p = s.short[0]
	}
	var fresh []*Strategy
	for _, a := range all {
		m, cut, err := p.annotatedCut(a)
		if err != nil {
			return err
		}
		if text := m.String(); !s.seen[text] && cut {
			s.seen[text], fresh = true, append(fresh, a)
		}
	}
	failed := make([]error, len(fresh))
	err := s.each(fresh, func(a *Strategy) error {
		i := slices.Index(fresh, a)
		a.Figures, failed[i] = s.estimate(a)
		return s.ctx.Err()
	})
	if err != nil {
		return err
	}
	for i, a := range fresh {
		if failed[i] == nil {
			s.pool = append(s.pool, a)
		}
	}
	if len(s.pool) == 0 && len(fresh) == 0 {
		return fmt.Errorf("suggest: no role of each axis suits the sizes of @%s", p.f.Name)
	}
	if len(s.pool) == 0 {
		return fmt.Errorf("suggest: no strategy of @%s can be partitioned: %w", p.f.Name, errors.Join(failed...))
	}
	return nil
}

// each runs a function for strategies, on all processors.
func (s *search) each(all []*Strategy, do func(a *Strategy) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, a := range all {
		wg.Add(1)
		free <- struct{}{}
		go func() {
			defer wg.Done()
			errs[i] = do(a)
			<-free
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// estimate is what a strategy takes, by programs with fewer layers if there are any.
func (s *search) estimate(a *Strategy) (Figures, error) {
	if s.short == nil {
		return s.figures(s.program, a, nil)
	}
	var of [2]Figures
	for i, p := range s.short {
		var err error
		if of[i], err = s.figures(p, a, s.quick); err != nil {
			return Figures{}, err
		}
	}
	n := s.layers.count - s.short[0].layers.count
	return Figures{
		Time: of[0].Time + float64(n)*(of[1].Time-of[0].Time),
		Peak: of[0].Peak + int64(n)*(of[1].Peak-of[0].Peak),
	}, nil
}

// figures are what the simulator says of a program that is partitioned and compiled, by the default
// pipeline if none is given.
func (s *search) figures(p *program, a *Strategy, by *passes.Pipeline) (Figures, error) {
	m, err := p.annotated(a)
	if err != nil {
		return Figures{}, err
	}
	if err := compile.Partition(m, compile.PartitionOptions{}); err != nil {
		return Figures{}, err
	}
	r, err := compile.Compile(s.ctx, m, compile.Target{Costs: s.costs}, compile.Options{Pipeline: by})
	if err != nil {
		return Figures{}, err
	}
	_, tl, err := compile.Simulate(r.Func(p.f.Name).Func, r.Costs())
	if err != nil {
		return Figures{}, err
	}
	return Figures{tl.Makespan, tl.Peak}, nil
}

// settle is the frontier with figures of the whole program. The peak of a program is the largest of sums
// that grow with its layers, so that an estimate is too low rather than too high: what came to the
// frontier by it leaves again, and lets in what it had displaced.
func (s *search) settle() ([]*Strategy, error) {
	sure := map[*Strategy]bool{} // look-up only
	for {
		best := frontier(s.pool)
		next := slices.DeleteFunc(slices.Clone(best), func(a *Strategy) bool { return sure[a] })
		if s.short == nil || len(next) == 0 {
			return best, nil
		}
		err := s.each(next, func(a *Strategy) (err error) {
			a.Figures, err = s.figures(s.program, a, nil)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, a := range next {
			sure[a] = true
		}
	}
}

// improve changes strategies of the frontier as long as something is gained: kinds of parameters that
// axes of tensors leave whole, and tables that are stored by columns.
func (s *search) improve() error {
	done := map[*Strategy]bool{} // look-up only
	for {
		var next []*Strategy
		for _, a := range frontier(s.pool) {
			if done[a] {
				continue
			}
			done[a] = true
			for _, seed := range s.seedsOf(a) {
				x := *a
				x.Whole = append(slices.Clone(a.Whole), seed)
				next = append(next, &x)
			}
			for _, table := range s.tables() {
				if slices.ContainsFunc(a.Roles, Role.stores) && !slices.Contains(a.Last, table) {
					x := *a
					x.Last = append(slices.Clone(a.Last), table)
					next = append(next, &x)
				}
			}
		}
		if len(next) == 0 {
			return nil
		}
		if err := s.try(next); err != nil {
			return err
		}
	}
}

// frontier are the strategies of which none is as fast and as small as another, the fastest first.
func frontier(pool []*Strategy) []*Strategy {
	all := slices.Clone(pool)
	slices.SortStableFunc(all, func(a, b *Strategy) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Peak, b.Peak))
	})
	var out []*Strategy
	for _, a := range all {
		if len(out) == 0 || a.Peak < out[len(out)-1].Peak {
			out = append(out, a)
		}
	}
	return out
}
