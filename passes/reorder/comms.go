package reorder

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// reorder-comms moves collectives up and waits down, one node at a time, while
// that hides communication and the peak of live memory stays at or below a cap.
// It does not reorder computation. Sweeps alternate until nothing moves:
//
// Raising goes through the program forward. When it comes to a collective, the
// time at which the compute stream reaches every node before it is known, and
// moving the collective up does not change it. The collective changes places
// with the node before it as long as it is not yet early enough. Early enough
// means: it ends before its wait is reached, and before the collectives behind
// it need the stream or, under strict order, the place. These demands are
// collected backward beforehand, in ideal time, in which no wait blocks. A light
// node that the collective reads joins it, and the group moves on as one.
//
// Sinking goes through the program forward, too. A wait that blocks changes
// places with the node behind it until it blocks no longer; a view of its
// tensors joins it. Crossing a node that takes no time gains nothing by itself,
// so what was crossed last is undone unless it took time. Hence every lasting
// move brings a wait behind a node that takes time, and the sweep ends.
//
// The memory of every step is known exactly (live_memory.go): a move that would raise
// the peak above the cap is not made. The cap is the peak of the input unless an
// option says otherwise; where the input exceeds the cap, moves may not make it
// worse.
//
// Known limits: sweeps are greedy; a collective stops at the first node that it
// cannot pass, even if the place beyond were better; and a demand is one of ideal
// time, so that a collective may be raised further than it had to be. The pass
// overlap has none of these, at more cost. Should the result be slower than the
// input, the input stays. Moving one by one is quadratic at worst, so all moves of a
// function together are bounded by reorderMoves.
func Comms() passes.Pass {
	return passes.Pass{
		Name: "reorder-comms",
		Doc:  "Moves collectives up and waits down step by step while the peak of live memory stays under a cap.",
		Options: []passes.Option{
			{Name: "cap", Kind: passes.KindBytes, Default: "0", Doc: "largest live memory, 0 for the input's own peak"},
			{Name: "percent", Kind: passes.KindFloat, Default: "100", Doc: "the cap in percent of the input's own peak, where cap is 0"},
			{Name: "limit", Kind: passes.KindInt, Default: "0", Doc: "most nodes that a collective or a wait is moved across, 0 for any number; bounds the time that the pass takes"},
			{Name: "rounds", Kind: passes.KindInt, Default: "4", Doc: "most rounds of raising and sinking"},
			optOrder,
			{Name: "carry", Kind: passes.KindString, Default: "light", Choices: []string{"light", "views", "none"}, Doc: "what joins a collective that reads it: pure memory-bound operations, views only, nothing"},
			{Name: "raise", Kind: passes.KindBool, Default: "true", Doc: "move collectives up"},
			{Name: "sink", Kind: passes.KindBool, Default: "true", Doc: "move waits down"},
		},
		Stats: []passes.Stat{
			{Name: "raised", Doc: "collectives that moved"},
			{Name: "sunk", Doc: "waits that moved"},
			{Name: "moves", Doc: "nodes that collectives and waits were moved across, added up"},
			{Name: "grouped", Doc: "nodes that moved along"},
			{Name: "exposed-before-ms", Doc: "time for which the compute stream blocks at waits, before the pass"},
			{Name: "exposed-after-ms", Doc: "the same after the pass"},
			{Name: "peak-before-bytes", Doc: "largest live memory before the pass"},
			{Name: "peak-after-bytes", Doc: "largest live memory after the pass"},
			{Name: "cap-bytes", Doc: "the cap"},
			{Name: "kept-input", Doc: "functions that were left as they were since the result was not faster"},
		},
		OrderOnly: true,
		Run:       func(ctx *passes.Context, f *ir.Func) error { return runReorderComms(ctx, f, nil) },
	}
}

// reorderMoves is how many times nodes of a function change places, 20 to 50 ns each.
const reorderMoves = 20_000_000

// reorderer is the state of the pass. Nodes are numbered as in deps.
type reorderer struct {
	ctx    *passes.Context
	d      *deps.Func
	l      *liveMemory
	cap    int64
	most   int // moves of one node, 0 for any number
	left   int // moves that the pass may still make
	strict bool
	carry  func(*ir.Node) bool
	wait   []int32 // node -> wait of a collective, -1 of others and of those that leave in flight
	frozen []bool  // node -> switched off by a bisect pattern

	mark  []int32 // node -> generation in which the group was found to depend on it, or it on the group
	gen   int32
	reach []float64 // node -> when the compute stream reaches it
	end   []float64 // node -> when a collective has finished

	recs []passes.CommRecord // node -> its line, Node set for starts and waits

	onMove func() // called after every exchange; for tests
}

func runReorderComms(ctx *passes.Context, f *ir.Func, onMove func(*reorderer)) error {
	r, err := newReorderer(ctx, f)
	if err != nil {
		return err
	}
	if onMove != nil {
		r.onMove = func() { onMove(r) }
	}
	before := r.l.peak()
	r.cap = ctx.Bytes("cap")
	if r.cap == 0 {
		r.cap = int64(math.Min(float64(before)*ctx.Float("percent")/100, math.MaxInt64/2))
	}
	r.most = int(min(ctx.Int("limit"), math.MaxInt32))
	r.left = reorderMoves
	for range ctx.Int("rounds") {
		moves := 0
		if ctx.Bool("raise") {
			moves += r.raise()
		}
		if ctx.Bool("sink") {
			moves += r.sink()
		}
		if moves == 0 {
			break
		}
	}
	return r.finish(f, before)
}

func newReorderer(ctx *passes.Context, f *ir.Func) (*reorderer, error) {
	d, err := deps.Analyze(ctx, f)
	if err != nil {
		return nil, err
	}
	n := len(d.Nodes)
	r := &reorderer{ctx: ctx, d: d, l: newLiveMemory(d), strict: ctx.Str("order") == "strict", carry: carriable(ctx.Str("carry")),
		wait: make([]int32, n), frozen: make([]bool, n), mark: make([]int32, n), reach: make([]float64, n), end: make([]float64, n),
		recs: make([]passes.CommRecord, n), onMove: func() {}}
	for i, v := range d.Nodes {
		i := int32(i)
		r.wait[i] = -1
		switch {
		case d.Kind[i] == sim.Start:
			r.wait[i] = d.WaitOf(i)
			r.recs[i] = passes.CommRecord{Node: v.Name(), Comm: v.Name(), Group: v.Group().Name, Ms: d.Dur[i]}
		case d.Kind[i] == sim.Wait:
			r.recs[i] = passes.CommRecord{Node: v.Name(), Comm: v.Arg(0).Def().Name()}
			if s := d.StartOf[i]; s >= 0 {
				r.recs[i].Group, r.recs[i].Ms = d.Nodes[s].Group().Name, d.Dur[s]
			}
		default:
			continue
		}
		r.frozen[i] = !ctx.Enable(v.Name())
	}
	return r, nil
}

// raise is one sweep; it returns the number of moves.
func (r *reorderer) raise() int {
	q := r.demands()
	free := make([]float64, r.d.Streams)
	now, moves := 0.0, 0
	for p := int32(0); int(p) < len(r.l.order); p++ {
		v := r.l.order[p]
		r.reach[v] = now
		switch {
		case r.d.Stream[v] >= 0:
			s := r.d.Stream[v]
			late := now - q.ideal[p] // what waits have cost so far
			issue := now
			if !r.frozen[v] {
				var k int
				issue, k = r.hoist(v, p, free[s], q.place[v]+late, q.other[v]+late)
				moves += k
			} else {
				r.recs[v].Limit = passes.LimitDisabled
			}
			free[s] = max(issue, free[s]) + r.d.Dur[v]
			r.end[v] = free[s]
		case r.d.StartOf[v] >= 0:
			now = max(now, r.end[r.d.StartOf[v]])
		default:
			now += r.d.Dur[v]
		}
	}
	return moves
}

// hoist moves the start at position p up and returns when it is issued and how
// often it moved. free is when its stream is free, place and other its demands.
func (r *reorderer) hoist(v, p int32, free, place, other float64) (issue float64, moves int) {
	lo, hi := p, p+1 // the group
	first, cost := r.reach[v], 0.0
	rec := &r.recs[v]
	r.ctx.Tick()
	r.gen++
	r.markAll(r.d.Pred.At(v))
	grouped := 0
	for {
		issue = first + cost
		if issue <= place {
			rec.Limit, rec.Detail = passes.LimitHidden, ""
			break
		}
		if lo == r.d.Inputs {
			rec.Limit, rec.Detail = passes.LimitNone, ""
			break
		}
		x := r.l.order[lo-1]
		node := r.d.Nodes[x]
		blocked := r.mark[x] == r.gen && (node.Op() == ir.OpInput || !r.carry(node))
		if issue <= free && issue <= other && !blocked {
			rec.Limit, rec.Detail = passes.LimitStream, ""
			break
		}
		if blocked {
			rec.Limit, rec.Detail = r.edge(x, lo, hi), node.Name()
			break
		}
		if r.mark[x] == r.gen {
			lo--
			r.markAll(r.d.Pred.At(x))
			first, cost = r.reach[x], cost+r.d.Dur[x]
			grouped++
			continue
		}
		if r.d.Stream[x] >= 0 && (r.strict || r.d.Stream[x] == r.d.Stream[v]) {
			rec.Limit, rec.Detail = passes.LimitCollective, node.Name()
			break
		}
		if far := r.tooFar(rec.Moves + moves); far != "" {
			rec.Limit, rec.Detail = passes.LimitDistance, far
			break
		}
		ok, top := r.l.exchange(lo-1, lo, hi, r.cap)
		if !ok {
			rec.Limit, rec.Detail = passes.LimitMemory, r.overCap(top)
			break
		}
		first = r.reach[x]
		r.reach[x] += cost
		lo, hi = lo-1, hi-1
		moves++
		r.left--
		r.onMove()
	}
	rec.Moves += moves
	if moves > 0 {
		rec.Grouped = max(rec.Grouped, grouped)
	}
	return issue, moves
}

// edge says why the group at lo..hi-1 cannot pass x before it.
func (r *reorderer) edge(x, lo, hi int32) passes.Limit {
	for p := lo; p < hi; p++ {
		if v := r.l.order[p]; slices.Contains(r.d.Pred.At(v), x) {
			return r.d.Limit(x, v)
		}
	}
	return passes.LimitEffect
}

// tooFar says why a node that has moved so often must not move on; empty if it may.
func (r *reorderer) tooFar(moves int) string {
	switch {
	case r.most > 0 && moves >= r.most:
		return itoa(int64(r.most)) + " nodes"
	case r.left <= 0:
		return itoa(reorderMoves) + " moves of all nodes together"
	}
	return ""
}

func (r *reorderer) overCap(top int64) string {
	return fmt.Sprintf("%s against the cap of %s", passes.Bytes(top), passes.Bytes(r.cap))
}

func (r *reorderer) markAll(nodes []int32) {
	for _, v := range nodes {
		r.mark[v] = r.gen
	}
}

// sink is one sweep; it returns the number of moves.
func (r *reorderer) sink() int {
	free := make([]float64, r.d.Streams)
	now, moves := 0.0, 0
	for p := int32(0); int(p) < len(r.l.order); {
		v := r.l.order[p]
		switch {
		case r.d.Stream[v] >= 0:
			s := r.d.Stream[v]
			free[s] = max(now, free[s]) + r.d.Dur[v]
			r.end[v] = free[s]
		case r.d.StartOf[v] >= 0:
			end := r.end[r.d.StartOf[v]]
			rec := &r.recs[v]
			switch {
			case r.frozen[v]:
				rec.Limit = passes.LimitDisabled
			case end <= now:
				if rec.Limit == "" {
					rec.Limit = passes.LimitHidden
				}
			default:
				if k := r.lower(v, p, now, end); k > 0 {
					moves += k
					continue // another node stands here now
				}
			}
			now = max(now, end)
		default:
			now += r.d.Dur[v]
		}
		p++
	}
	return moves
}

// lower moves the wait at position p down while the compute stream would block
// there, and returns how often. now is when the stream reaches it, end when its
// collective has finished.
func (r *reorderer) lower(v, p int32, now, end float64) (moves int) {
	lo, hi := p, p+1 // the group
	rec := &r.recs[v]
	r.ctx.Tick()
	r.gen++
	r.markAll(r.d.Succ.At(v))
	idle := int32(0) // nodes crossed since the last that took time
	rec.Limit, rec.Detail = passes.LimitHidden, ""
	grouped := 0
	for now < end {
		if int(hi) == len(r.l.order) {
			rec.Limit = passes.LimitNone
			break
		}
		x := r.l.order[hi]
		node := r.d.Nodes[x]
		if r.mark[x] == r.gen {
			if node.Op().IsView() {
				hi++
				r.markAll(r.d.Succ.At(x))
				grouped++
				continue
			}
			rec.Limit, rec.Detail = r.edgeDown(x, lo, hi), node.Name()
			break
		}
		if node.Op() == ir.OpReturn {
			rec.Limit = passes.LimitNone
			break
		}
		if far := r.tooFar(rec.Moves + moves); far != "" {
			rec.Limit, rec.Detail = passes.LimitDistance, far
			break
		}
		ok, top := r.l.exchange(lo, hi, hi+1, r.cap)
		if !ok {
			rec.Limit, rec.Detail = passes.LimitMemory, r.overCap(top)
			break
		}
		lo, hi = lo+1, hi+1
		moves++
		r.left--
		idle++
		if r.d.Stream[x] < 0 && r.d.Dur[x] > 0 {
			now += r.d.Dur[x]
			idle = 0
		}
		r.onMove()
	}
	if idle > 0 { // give back what gained nothing
		r.l.exchange(lo-idle, lo, hi, math.MaxInt64)
		moves -= int(idle)
		r.onMove()
	}
	rec.Moves += moves
	if moves > 0 {
		rec.Grouped = max(rec.Grouped, grouped)
	}
	return moves
}

// edgeDown says why the group at lo..hi-1 cannot pass x behind it.
func (r *reorderer) edgeDown(x, lo, hi int32) passes.Limit {
	for p := lo; p < hi; p++ {
		if r.d.Limit(r.l.order[p], x) == passes.LimitData {
			return passes.LimitData
		}
	}
	return passes.LimitEffect
}

// finish writes the order back, unless it is slower, and reports.
func (r *reorderer) finish(f *ir.Func, peak int64) error {
	ctx := r.ctx
	before, err := sim.Evaluate(r.d.Model, r.d.InputOrder(), nil)
	if err != nil {
		return err
	}
	after, err := sim.Evaluate(r.d.Model, r.l.order, nil)
	if err != nil {
		return err
	}
	order := r.d.Permuted(r.l.order)
	kept := after.Makespan > before.Makespan*(1+1e-9)
	if kept {
		order, after = append([]*ir.Node(nil), r.d.Nodes...), before
		ctx.Count("kept-input", 1)
	}
	for i, v := range r.d.Nodes {
		rec := r.recs[i]
		if rec.Node == "" {
			continue
		}
		start := int32(i)
		if r.d.Kind[i] == sim.Wait {
			start = r.d.StartOf[i]
		}
		if kept {
			rec.Moves, rec.Grouped = 0, 0
		}
		if start >= 0 {
			rec.ExposedBefore, rec.ExposedAfter = r.d.Exposed(before, start), r.d.Exposed(after, start)
		}
		if rec.Limit == "" {
			rec.Limit = passes.LimitHidden
		}
		ctx.Record(rec)
		ctx.Count("moves", float64(rec.Moves))
		ctx.Count("grouped", float64(rec.Grouped))
		switch {
		case v.Op() == ir.OpWaitTensor:
			ctx.Count("exposed-before-ms", rec.ExposedBefore)
			ctx.Count("exposed-after-ms", rec.ExposedAfter)
			if rec.Moves > 0 {
				ctx.Count("sunk", 1)
			}
		case rec.Moves > 0:
			ctx.Count("raised", 1)
		}
	}
	ctx.Count("peak-before-bytes", float64(peak))
	ctx.Count("peak-after-bytes", float64(after.Peak))
	ctx.Count("cap-bytes", float64(r.cap))
	ctx.Log.Debug("reorder-comms", "func", f.Name, "makespan before", before.Makespan, "after", after.Makespan, "peak before", passes.Bytes(peak), "after", passes.Bytes(after.Peak))
	return f.SetOrder(order)
}
