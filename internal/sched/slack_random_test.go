package sched

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/seed-ee968945/concert/sim"
)

// wildModel returns a program of about so many nodes with up to four streams: inputs that
// are freed, kept and in flight, collectives of several operands and results, second waits,
// views, nodes that take no time or no memory, results that nobody reads, and readers far
// behind what they read.
func wildModel(r *rand.Rand, nodes int) *sim.Model {
	b := sim.NewBuilder(nodes)
	streams, far := 1+r.IntN(4), r.IntN(2) == 0
	size := func() int64 {
		if r.IntN(8) == 0 {
			return 0
		}
		return int64(1+r.IntN(64)) << (10 + 2*r.IntN(2))
	}
	sizes := func() []int64 {
		out := make([]int64, 1+r.IntN(3)/2)
		for i := range out {
			out[i] = size()
		}
		return out
	}
	ms := func() float64 { return float64(r.IntN(21)) / 2 }
	var avail, begun, used []int32 // values, collectives nobody has waited for, and what the output reads
	for range 1 + r.IntN(4) {
		avail = append(avail, b.Input(r.IntN(2) == 0, sizes()...))
	}
	if r.IntN(3) == 0 {
		begun = append(begun, b.Input(false, size()))
	}
	pick := func(most int) []int32 {
		var out []int32
		for range 1 + r.IntN(most) {
			k := len(avail) - 1 - r.IntN(min(len(avail), 6))
			if far {
				k = r.IntN(len(avail))
			}
			out = append(out, avail[k])
		}
		return out
	}
	for count := len(avail); count < nodes; count++ {
		switch k := r.IntN(100); {
		case k < 25:
			key := sim.Key{Op: "all_gather", Group: strconv.Itoa(r.IntN(streams))}
			begun = append(begun, b.Start(ms(), key, r.IntN(2) == 0, 512, pick(2), sizes()...))
		case k < 50 && len(begun) > 0:
			i := r.IntN(len(begun))
			avail = append(avail, b.Wait(begun[i]))
			if r.IntN(10) == 0 {
				avail = append(avail, b.Wait(begun[i]))
			}
			begun = slices.Delete(begun, i, i+1)
		case k < 58:
			avail = append(avail, b.View(pick(1)...))
		default:
			avail = append(avail, b.Compute(ms(), pick(3), sizes()...))
		}
	}
	for _, c := range begun {
		avail = append(avail, b.Wait(c))
	}
	for range 1 + r.IntN(4) {
		used = append(used, avail[len(avail)-1-r.IntN(min(len(avail), 12))])
	}
	b.Output(used...)
	m, err := b.Build()
	if err != nil {
		panic(err)
	}
	return m
}

// legal says what is wrong with an order of a model's nodes, "" if nothing is: every node
// stands in it once, behind what it reads, and launches are in the order that they had.
func legal(m *sim.Model, order []int32) string {
	at := make([]int, m.Len())
	last := int32(-1)
	for i, v := range order {
		if v < 0 || int(v) >= m.Len() || at[v] > 0 {
			return "no order: " + strconv.Itoa(int(v))
		}
		at[v] = i + 1
		for _, p := range m.Pred.At(v) {
			if at[p] == 0 {
				return strconv.Itoa(int(v)) + " before its operand " + strconv.Itoa(int(p))
			}
		}
		if m.Kind[v] == sim.Compute {
			if v < last {
				return strconv.Itoa(int(v)) + " after " + strconv.Itoa(int(last))
			}
			last = v
		}
	}
	if len(order) != m.Len() {
		return strconv.Itoa(len(order)) + " nodes"
	}
	return ""
}

// peakOf is the most memory that is live during an order: a storage from its owner to the
// last node that uses it, the inputs' from the beginning.
func peakOf(m *sim.Model, order []int32) int64 {
	left := make([]int, len(m.Size))
	live := int64(0)
	for v := range int32(m.Len()) {
		for _, s := range m.Use.At(v) {
			left[s]++
		}
		if m.Kind[v] == sim.Input {
			for _, s := range m.Alloc.At(v) {
				live += m.Size[s]
			}
		}
	}
	peak := live
	for _, v := range order {
		if m.Kind[v] != sim.Input {
			for _, s := range m.Alloc.At(v) {
				live += m.Size[s]
			}
		}
		peak = max(peak, live)
		for _, s := range m.Use.At(v) {
			if left[s]--; left[s] == 0 && !m.Pinned[s] {
				live -= m.Size[s]
			}
		}
	}
	return peak
}

// takes is the makespan of an order in a scenario; collectives of streams with one number in
// shared, which may be nil, take turns.
func takes(m *sim.Model, order, shared []int32, c scenario) float64 {
	free, line, end := make([]float64, m.Streams), make([]float64, m.Streams), make([]float64, m.Len())
	now := 0.0
	for _, v := range order {
		switch k := m.Stream[v]; m.Kind[v] {
		case sim.Start:
			begin := max(free[k], now)
			if shared != nil {
				begin = max(begin, line[shared[k]])
				line[shared[k]] = begin + m.Dur[v]*c.comm
			}
			free[k] = begin + m.Dur[v]*c.comm
			end[v] = free[k]
		case sim.Wait:
			if m.StartOf[v] >= 0 {
				now = max(now, end[m.StartOf[v]])
			}
		default:
			now += m.Dur[v] * c.compute
		}
	}
	return max(now, slices.Max(append(free, 0)))
}

// slackCase is a random program, with what its order as given takes.
type slackCase struct {
	*testing.T
	seed   int
	m      *sim.Model
	input  []int32
	was    *sim.Timeline
	limits []int64 // of memory, for AddSlack
	most   int64   // the largest of them
	shared []int32 // by stream: whose links it shares
}

var given = scenario{1, 1} // costs as they are

func newSlackCase(t *testing.T, seed int) *slackCase {
	r := rand.New(rand.NewPCG(uint64(seed), 41))
	c := &slackCase{T: t, seed: seed, m: wildModel(r, 4+r.IntN(160))}
	c.input = c.m.InputOrder()
	var err error
	if c.was, err = sim.Evaluate(c.m, c.input, nil); err != nil {
		t.Fatal(err)
	}
	c.limits, c.most = []int64{c.was.Peak}, c.was.Peak
	if r.IntN(3) == 0 {
		c.limits[0] /= 2 // stands for the peak
	}
	for range r.IntN(3) {
		c.most += c.was.Peak * int64(r.IntN(30)) / 100
		c.limits = append(c.limits, c.most)
	}
	c.shared = make([]int32, c.m.Streams)
	for k := range c.shared {
		c.shared[k] = int32(r.IntN(k + 1))
	}
	return c
}

// addSlack is the order that AddSlack makes where streams share those links, which is legal, as
// it is said to be, no longer than the one given, and the same every time.
func (c *slackCase) addSlack(links []int32) []int32 {
	c.Helper()
	order, tl, err := AddSlack(c.m, nil, links, c.limits...)
	if err != nil {
		c.Fatalf("seed %d: %v", c.seed, err)
	}
	if why := legal(c.m, order); why != "" {
		c.Fatalf("seed %d: %s in %v", c.seed, why, order)
	}
	if got := peakOf(c.m, order); got != tl.Peak || got > c.most {
		c.Fatalf("seed %d: %d bytes are live, %d are said to be, and may be %v", c.seed, got, tl.Peak, c.limits)
	}
	if got := takes(c.m, order, nil, given); !near(got, tl.Makespan) || tl.Makespan > c.was.Makespan+1e-9 {
		c.Fatalf("seed %d: %v ms, said to be %v, instead of %v", c.seed, got, tl.Makespan, c.was.Makespan)
	}
	again, _, err := AddSlack(c.m, nil, links, c.limits...)
	if err != nil || !slices.Equal(again, order) {
		c.Fatalf("seed %d: another order the second time: %v", c.seed, err)
	}
	return order
}

// ratios is the sum, over the scenarios, of how much longer an order takes than the one given.
func (c *slackCase) ratios(order []int32) float64 {
	sum := 0.0
	for _, s := range scenarios {
		sum += ratio(takes(c.m, order, nil, s), takes(c.m, c.input, nil, s))
	}
	return sum
}

// sharing is what an order takes where streams share links, and in the mean of the scenarios.
func (c *slackCase) sharing(order []int32) float64 {
	all := takes(c.m, order, c.shared, given) + takes(c.m, order, c.shared, scenario{1, 1.5})
	for _, s := range scenarios {
		all += takes(c.m, order, nil, s) / float64(len(scenarios))
	}
	return all
}

// Whatever the program, what AddSlack makes is an order of it with the launches as they were,
// within the limit of memory, and the same every time. By the costs as given it takes no
// longer, in the scenarios by which it is evaluated no longer in the mean, and where streams
// share links it takes no longer for that.
func TestAddSlackRandom(t *testing.T) {
	programs := 600
	if testing.Short() {
		programs = 150
	}
	changed, more, apart := 0, 0, 0
	for seed := range programs {
		c := newSlackCase(t, seed)
		if got := takes(c.m, c.input, nil, given); !near(got, c.was.Makespan) || peakOf(c.m, c.input) != c.was.Peak {
			t.Fatalf("seed %d: the simulator says %v ms and %d bytes, not %v and %d", seed, c.was.Makespan, c.was.Peak, got, peakOf(c.m, c.input))
		}
		plain, kept := c.addSlack(nil), c.addSlack(c.shared)
		if sum := c.ratios(plain); sum > float64(len(scenarios))+1e-9 {
			t.Fatalf("seed %d: %v times as long in the mean of the scenarios", seed, sum/float64(len(scenarios)))
		}
		if a, b := c.sharing(kept), c.sharing(plain); a > b+1e-9 {
			t.Fatalf("seed %d: %v ms where links are shared, and %v if nothing is done for it", seed, a, b)
		}
		if !slices.Equal(plain, c.input) {
			changed++
		}
		if !slices.Equal(kept, plain) {
			apart++
		}
		if peakOf(c.m, plain) > c.was.Peak {
			more++
		}
	}
	t.Logf("of %d programs %d changed, %d took more memory, in %d streams were kept apart", programs, changed, more, apart)
	if changed*2 < programs || more*50 < programs || apart*20 < programs {
		t.Error("too few to mean anything")
	}
}

func near(a, b float64) bool { return a-b < 1e-9*max(a, 1) && b-a < 1e-9*max(b, 1) }
