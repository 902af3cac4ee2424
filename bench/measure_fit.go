package bench

import (
	"iter"
	"slices"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/program"
)

// fitting gathers what steps of all programs show of how much computing and
// communicating slow each other down.
type fitting struct {
	m     *calibration.File
	kinds []disturbed
	obs   []cost.Slowdown
	ops   []overlappedOps // launches of kinds that were seen
	comm  map[string]*going
	chain map[string]*going // by key: overlapped with collectives
}

// disturbed is a kind of launch beside a kind of collective.
type disturbed struct {
	memory     bool // it is taken to be bound by memory: it is none that holds the device
	collective string
}

// overlappedOps names a launch that was seen beside a collective, and its kind.
type overlappedOps struct {
	launch string
	kind   int
}

// going sums up how collectives of one key, or op, went on overlapped with compute, or chains
// overlapped with collectives.
type going struct {
	did, over, lasted float64 // what was done of them beside the other, while that ran, and in all
	times             int
}

// addSteps puts into m what was found of programs as a whole: the times of chains, and
// speeds. m has the times of instructions, in order.
func (s *session) addSteps(m *calibration.File) {
	chains := map[string][]float64{}
	var keys []string
	fit := &fitting{m: m, comm: map[string]*going{}, chain: map[string]*going{}}
	s.addLongLaunches(m)
	for c, ranks := range s.wholePrograms() {
		for n, chain := range c.chains {
			key := c.p.ChainKey(chain)
			if chains[key] == nil {
				keys = append(keys, key)
			}
			chains[key] = append(chains[key], c.alone(ranks, n))
		}
		around := 0.0
		for _, r := range ranks {
			around = max(around, r.StepUs)
		}
		if m.StepUs == 0 || around < m.StepUs { // a late start of a rank only adds to it
			m.StepUs = rounded(around)
		}
		fit.add(c, ranks)
	}
	for _, key := range keys {
		m.Chains = slices.DeleteFunc(m.Chains, func(e calibration.Instruction) bool { return e.Key == key })
		m.Chains = append(m.Chains, calibration.Instruction{Key: key, Us: rounded(mean(chains[key]))})
	}
	fit.finish()
}

// wholePrograms are the programs that were measured as a whole, each with what its ranks found.
func (s *session) wholePrograms() iter.Seq2[*measuredProgram, []*inStep] {
	return func(yield func(*measuredProgram, []*inStep) bool) {
		for i, f := range s.found[0] {
			if f.What != aStep {
				continue
			}
			k := slices.IndexFunc(s.cals, func(c *measuredProgram) bool { return c.whole() == f.Key })
			if k < 0 {
				continue
			}
			var ranks []*inStep
			for _, list := range s.found {
				ranks = append(ranks, list[i].Step)
			}
			if !yield(s.cals[k], ranks) {
				return
			}
		}
	}
}

// addLongLaunches gives long launches the times that they have in their steps: the mean of all of
// them, each on the middle rank. By itself a launch finds what others have left where its
// operands are, and how long attention or a sum by index takes depends on that. Of short
// ones the events around them are too large a part. What was known before stays: the
// programs were made with it.
func (s *session) addLongLaunches(m *calibration.File) {
	took := map[string][]float64{}
	for c, ranks := range s.wholePrograms() {
		n := 0
		for _, chain := range c.chains {
			for _, i := range chain.Instrs {
				var us []float64
				for _, r := range ranks {
					if n < len(r.Calls) {
						us = append(us, r.Calls[n])
					}
				}
				n++
				if key := c.p.CostKey(&c.p.Instrs[i]); len(us) == len(ranks) {
					took[key] = append(took[key], median(us))
				}
			}
		}
	}
	for i := range m.Instructions {
		e := &m.Instructions[i]
		if s.known != nil {
			if _, ok := s.known.Micros(e.Key); ok {
				continue
			}
		}
		if us := mean(took[e.Key]); us >= longUs {
			e.Us = rounded(us)
		}
	}
}

// alone is what a chain takes with nothing beside it, on the slowest rank, for which the
// others wait in the next collective: as it is in the step if nothing ran beside it there
// in most replays, under that step's load; else as measured apart.
func (c *measuredProgram) alone(ranks []*inStep, n int) float64 {
	var us []float64
	for k := range ranks[0].Runs {
		slowest, touched := 0.0, false
		for _, r := range ranks {
			chain, over := r.Runs[k].chain(n), 0.0
			for j := range c.collectives {
				over += chain.overlap(c.collective(&r.Runs[k], j))
			}
			took := chain.to - chain.from
			slowest, touched = max(slowest, took), touched || over > mostTouched*took
		}
		if slowest > 0 && !touched {
			us = append(us, slowest)
		}
	}
	if 2*len(us) > len(ranks[0].Runs) {
		return median(us)
	}
	slowest := 0.0
	for _, r := range ranks {
		slowest = max(slowest, r.Chains[n])
	}
	return slowest
}

// collective is when collective number j ran.
func (c *measuredProgram) collective(r *inRun, j int) span {
	return span{c.collectives[j], r.From[len(c.chains)+j], r.To[len(c.chains)+j]}
}

// mostTouched is the part of a chain that collectives may run beside for it still to
// count as alone: where one ends and the other begins is not exact.
const mostTouched = 0.02

func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(max(len(list), 1))
}

// add observes one program.
func (f *fitting) add(c *measuredProgram, ranks []*inStep) {
	for n := range ranks[0].Runs {
		f.replay(c, ranks, n)
	}
}

// replay observes replay n of a program.
func (f *fitting) replay(c *measuredProgram, ranks []*inStep, n int) {
	us := func(in *program.Instr) float64 {
		t, _ := f.m.Micros(c.p.CostKey(in))
		return t
	}
	// Of each collective, on the rank where it took least, which waited for no other.
	waited := make([]float64, len(c.collectives))
	over := make([]float64, len(c.collectives))   // overlapped with compute
	shared := make([]float64, len(c.collectives)) // overlapped with collectives of other streams
	slow := make([]went, len(c.chains))           // on the rank where it took longest
	for rank, r := range ranks {
		run := &r.Runs[n]
		comms := c.overlapped(run)
		busy := make([][]span, len(c.p.Streams)) // by stream
		for k, chain := range c.chains {
			list := c.spans(chain, run.From[k], run.To[k], us)
			busy[chain.Stream] = append(busy[chain.Stream], list...)
			f.lost(c, run, run.To[k]-run.From[k]-r.Chains[k], list)
			if took := run.To[k] - run.From[k]; took > slow[k].took {
				slow[k] = went{r.Chains[k], took, run.chain(k).covered(comms)}
			}
		}
		for j := range c.collectives {
			s := c.collective(run, j)
			if took := s.to - s.from; rank == 0 || took < waited[j] {
				waited[j], over[j], shared[j] = took, 0, c.shares(run, j)
				for _, list := range busy {
					over[j] = max(over[j], s.covered(list))
				}
			}
		}
	}
	for k, chain := range c.chains {
		f.went(f.chain, c.p.ChainKey(chain), slow[k])
	}
	for j, i := range c.collectives {
		if c.beside[i] && shared[j] <= mostTouched*waited[j] { // what shares the links says nothing of compute
			in := &c.p.Instrs[i]
			f.collective(in.Op, c.key(i), waited[j], over[j])
		}
	}
}

// shares is for how long collectives of other streams ran beside number j.
func (c *measuredProgram) shares(r *inRun, j int) float64 {
	sum := 0.0
	for k := range c.collectives {
		if c.p.Instrs[c.collectives[k]].Stream != c.p.Instrs[c.collectives[j]].Stream {
			sum += c.collective(r, j).overlap(c.collective(r, k))
		}
	}
	return sum
}

// overlapped lists when collectives ran that have compute beside them, in order and
// without overlaps.
func (c *measuredProgram) overlapped(r *inRun) []span {
	var list []span
	for j, i := range c.collectives {
		if c.beside[i] {
			list = append(list, c.collective(r, j))
		}
	}
	return merged(list)
}

// lost observes what a chain, of these instructions, lost overlapped with collectives.
func (f *fitting) lost(c *measuredProgram, r *inRun, lost float64, list []span) {
	o := cost.Slowdown{Lost: lost}
	any := false
	for j, i := range c.collectives {
		if !c.beside[i] {
			continue // what it touches is the edge of a chain
		}
		s := c.collective(r, j)
		for _, l := range list {
			over := l.overlap(s)
			if over <= 0 {
				continue
			}
			any = true
			in := &c.p.Instrs[l.instr]
			kind := f.kind(disturbed{!in.Holds(), c.p.Instrs[i].Op})
			if op := (overlappedOps{in.Op, kind}); !slices.Contains(f.ops, op) {
				f.ops = append(f.ops, op)
			}
			for len(o.Over) <= kind {
				o.Over = append(o.Over, 0)
			}
			o.Over[kind] += over
		}
	}
	if any {
		f.obs = append(f.obs, o)
	}
}

func (f *fitting) kind(d disturbed) int {
	if i := slices.Index(f.kinds, d); i >= 0 {
		return i
	}
	f.kinds = append(f.kinds, d)
	return len(f.kinds) - 1
}

// leastCovered is the part of a collective that compute must cover, for it to show how
// fast the collective goes on meanwhile.
const leastCovered = 0.2

// collective observes how a collective went on: it took so long, of which compute ran
// for over. What did not overlap with compute went on as fast as alone.
func (f *fitting) collective(op, key string, took, over float64) {
	if alone, ok := f.m.Micros(key); ok {
		f.went(f.comm, op, went{alone, took, over})
		f.went(f.comm, key, went{alone, took, over})
	}
}

// went is how long something takes alone, how long it took, and for how much of that it
// was beside something.
type went struct{ alone, took, over float64 }

// went observes how something went on.
func (f *fitting) went(in map[string]*going, name string, w went) {
	if w.over < leastCovered*w.took || w.took <= 0 {
		return
	}
	g := in[name]
	if g == nil {
		g = new(going)
		in[name] = g
	}
	g.did += max(w.alone-(w.took-w.over), 0)
	g.over += w.over
	g.lasted += w.took
	g.times++
}

// speed is how fast that went on, 0 if it is not known.
func (g *going) speed() float64 {
	if g == nil || g.over <= 0 {
		return 0
	}
	return min(max(g.did/g.over, leastSpeed), 1)
}

// leastSpeed is the least that a speed is taken to be.
const leastSpeed = 0.005

// finish puts speeds into the table.
func (f *fitting) finish() {
	for i := range f.m.Instructions {
		e := &f.m.Instructions[i]
		g := f.comm[e.Key]
		if g == nil {
			continue
		}
		e.Speed = rounded(g.speed())
		// What is done faster in the step than by itself had to wait there.
		e.Us = min(e.Us, rounded(g.lasted/float64(g.times)))
	}
	for i := range f.m.Chains {
		if g := f.chain[f.m.Chains[i].Key]; g != nil {
			f.m.Chains[i].Speed = rounded(g.speed())
		}
	}
	lost, _ := cost.FitSlowdowns(len(f.kinds), f.obs)
	for _, op := range f.ops {
		b := calibration.Overlap{Launch: op.launch, Collective: f.kinds[op.kind].collective, Compute: rounded(1 - lost[op.kind]), Comm: 1}
		if speed := f.comm[b.Collective].speed(); speed > 0 {
			b.Comm = rounded(speed)
		}
		f.m.Overlaps = slices.DeleteFunc(f.m.Overlaps, func(o calibration.Overlap) bool { return o.Launch == b.Launch && o.Collective == b.Collective })
		f.m.Overlaps = append(f.m.Overlaps, b)
	}
}
