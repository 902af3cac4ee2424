// Package simplify has pass simplify-collectives: it rewrites communication by algebra.
package simplify

import (
	"math"
	"sort"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// Pass rewrites communication by algebra. Every rewrite is one
// rule of one table (simplifyRules), one function with its legality condition, in
// the files simplify_*.go; each has an option of its own and counts how often it
// fired.
//
// # What equal means
//
// A rule is exact if the program gives the same bits as before on every rank, by
// the meaning that the IR gives to operations: float arithmetic runs in f32 (f64)
// and is rounded once, reductions go by ascending group rank. A rule reassociates
// if it adds or multiplies floats in another order or rounds at another place. The
// option reassociate, off by default, allows that; on integers, whose arithmetic
// wraps, and for min and max such rules are exact too and always on. A transport
// that sums in an order of its own differs from the reference before and after
// alike.
//
// # How it runs
//
// Rules look at one node, their anchor, and the few operations that it reads;
// what they make is tried again at once, and the function is swept in program
// order until nothing fires. Every rule removes a collective, moves fewer bytes,
// or moves an operation past a collective or shard to the side with less work, and
// none is the inverse of another that is on, so the sweeps end. A tensor inside a
// bucket is rewritten by leaving the bucket.
//
// An opaque call that communicates keeps its place among all communication:
// collectives on its two sides are not joined. What is written in place cannot be
// looked past, since versions are values, and a rewrite that would read or replace it
// is undone. Functions' parameters and results that are in flight are left alone.
//
// # Memory
//
// A program that shards its state gathers a parameter for the forward pass, drops
// it and gathers it again for the backward pass; or scatters an activation, keeps
// the piece, and gathers it when it is needed again. Rules must not undo that. Two
// could, and they do so only over as many operations as the option keep-distance
// says: by default none, so that no tensor lives on for longer than it did. The
// annotation regather forbids sharing at any distance.
//
// A replacement stands where its operands are complete, its wait where the old
// wait stood: times are for the passes after this one to decide. An attached cost
// is carried over in the proportion that the cost model, or else the sizes, give.
func Pass() passes.Pass {
	p := passes.Pass{
		Name: "simplify-collectives",
		Doc:  "Removes, joins and shrinks collectives by algebra, and moves cheap operations to the side of a collective where they are cheaper.",
		Options: []passes.Option{
			{Name: "reassociate", Kind: passes.KindBool, Default: "false", Doc: "also rewrite sums and products of floats in ways that round differently"},
			{Name: "keep-distance", Kind: passes.KindInt, Default: "0", Doc: "largest number of operations over which share-repeated and gather-of-scatter may keep a whole tensor that the program drops and gathers again"},
			{Name: "keep-bytes", Kind: passes.KindBytes, Default: "1TiB", Doc: "largest tensor that they may so keep"},
			{Name: "gather-sums", FormerName: "look-up-sums", Kind: passes.KindBool, Default: "false", Doc: "combine-before-reduce in gather form: each row of the piece gathers its sums of all ranks, which is one kernel where fusion follows, instead of scattering sums to rows"},
			{Name: "split-bytes", Kind: passes.KindBytes, Default: "1MiB", Doc: "smallest operand that split-all-reduce splits"},
		},
		Stats: []passes.Stat{
			{Name: "fired", Doc: "rewrites"},
			{Name: "collectives-before", Doc: "collectives before the pass"},
			{Name: "collectives-after", Doc: "collectives after it"},
			{Name: "bytes-before", Doc: "bytes of their operands or results, whichever is more, before"},
			{Name: "bytes-after", Doc: "the same after"},
			{Name: "groups", Doc: "process groups declared"},
		},
		Reassociates: "reassociate",
		Run:          runSimplify,
	}
	for _, r := range simplifyRules() {
		on := "true"
		if r.off {
			on = "false"
		}
		p.Options = append(p.Options, passes.Option{Name: r.name, Kind: passes.KindBool, Default: on, Doc: r.doc + "; " + r.exact.String()})
		p.Stats = append(p.Stats, passes.Stat{Name: r.name, Doc: r.doc})
	}
	return p
}

// exactness says what a rule keeps of the numbers.
type exactness uint8

const (
	exact         exactness = iota // every bit
	reassociates                   // all but the rounding of floats and the sign of their zeros; exact on integers and for min and max
	narrowRounded                  // every bit where reductions accumulate in f32, as the IR says; off by default since libraries may round at every hop
)

func (e exactness) String() string {
	return [...]string{"exact", "reassociates floats, so it needs the option reassociate on them", "exact where transports accumulate in f32"}[e]
}

// simplifyRule is one row of the table.
type simplifyRule struct {
	name  string
	doc   string
	legal string // the condition under which the rewrite is right
	gate  string // the condition under which it pays
	// special says what becomes of signed zeros, infinities and NaN. Which of several
	// NaN comes out, the IR does not say.
	special string
	exact   exactness
	off     bool // off by default

	// anchor selects the nodes at which the rule is tried.
	anchor func(n *ir.Node) bool
	// apply tries the rule at n: it changes nothing and returns false, or asks
	// s.fire, makes the change and returns true.
	apply func(s *simplifier, n *ir.Node) bool
}

// What becomes of signed zeros, infinities and NaN under most rules.
const (
	onlyMoved   = "elements are moved or copied, bit by bit"
	sameNumbers = "every number is computed of the same numbers in the same order"
	ordered     = "a conversion does not decrease, keeps the signs of zeros and infinities, and takes NaN to NaN"
	reordered   = "min and max take zeros and infinities in any order and NaN before all numbers; a sum in another order may overflow where the first does not"
)

// simplifyRules is the table. The first rule that fires at a node wins.
func simplifyRules() []simplifyRule {
	var rules []simplifyRule
	rules = append(rules, shareRules()...)
	rules = append(rules, reduceRules()...)
	rules = append(rules, replicatedRules()...)
	rules = append(rules, gatherRules()...)
	rules = append(rules, motionRules()...)
	rules = append(rules, lookupRules()...)
	return append(rules, shardRules()...)
}

// Rule describes one rewrite of simplify-collectives.
type Rule struct {
	Name  string // also the option that turns it off or on, and the statistic that counts it
	Doc   string
	Legal string // when the rewrite is right
	Gate  string // when it pays
	Exact string // what it keeps of the numbers
	On    bool   // by default

	Special string // what becomes of signed zeros, infinities and NaN
}

// Rules lists the rewrites of simplify-collectives in the order in which
// they are tried.
func Rules() []Rule {
	var out []Rule
	for _, r := range simplifyRules() {
		out = append(out, Rule{r.name, r.doc, r.legal, r.gate, r.exact.String(), !r.off, r.special})
	}
	return out
}

func isOp(ops ...ir.Op) func(n *ir.Node) bool {
	return func(n *ir.Node) bool {
		for _, o := range ops {
			if n.Op() == o {
				return true
			}
		}
		return false
	}
}

// simplifier is the state of one run on one function.
type simplifier struct {
	ctx      *passes.Context
	f        *ir.Func
	rules    []simplifyRule // those that are on
	rule     *simplifyRule  // the one being tried
	on       map[string]bool
	reassoc  bool
	groups   *groupAlgebra
	writes   *ir.Writes
	pinned   bool                // the rewrite under way reads what something writes in place
	fences   []*ir.Node          // opaque calls that communicate
	label    []int64             // by NodeID: ascends in program order
	launched []int32             // by NodeID: about how many operations launch before the node
	made     []*ir.Node          // nodes made by the last rewrite
	same     map[replKey]bool    // what is known about replication; look-up only
	seen     map[string]*ir.Node // repeated collectives by what they compute; look-up only
}

// maxSweeps bounds the sweeps over a function. Rules make progress by a measure
// that decreases, so a program takes a few; the bound turns a mistake in a rule
// into a rewrite that stops early.
const maxSweeps = 64

func runSimplify(ctx *passes.Context, f *ir.Func) error {
	simplify(ctx, f, ir.FindWrites(f))
	return nil
}

// simplify is the pass, told what f writes in place.
func simplify(ctx *passes.Context, f *ir.Func, writes *ir.Writes) {
	s := &simplifier{ctx: ctx, f: f, on: map[string]bool{}, reassoc: ctx.Bool("reassociate"), groups: newGroupAlgebra(f.Module()),
		writes: writes, same: map[replKey]bool{}, seen: map[string]*ir.Node{}}
	for _, r := range simplifyRules() {
		if ctx.Bool(r.name) {
			s.rules = append(s.rules, r)
			s.on[r.name] = true
		}
	}
	s.traffic("before")
	if s.rules == nil {
		s.traffic("after")
		return
	}
	for _, n := range f.Order() {
		if n.Communicates() && !n.Op().IsCollective() {
			s.fences = append(s.fences, n)
		}
	}
	s.relabel()
	for range maxSweeps {
		if !s.sweep() {
			break
		}
	}
	s.traffic("after")
	ctx.Count("groups", float64(s.groups.declared))
}

// traffic counts the collectives and their bytes.
func (s *simplifier) traffic(when string) {
	count, bytes := 0, int64(0)
	for _, n := range s.f.Order() {
		if n.Op().IsCollective() {
			count++
			bytes += s.moved(n)
		}
	}
	s.ctx.Count("collectives-"+when, float64(count))
	s.ctx.Count("bytes-"+when, float64(bytes))
}

// sweep tries every rule at every node, and at once again at what they make.
func (s *simplifier) sweep() bool {
	s.countLaunches()
	clear(s.seen)
	any := false
	for _, n := range append([]*ir.Node(nil), s.f.Order()...) {
		s.ctx.Tick()
		for stack := []*ir.Node{n}; len(stack) > 0; {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for s.alive(at) && s.try(at) {
				any = true
				// Later ones first, so that they are taken up in program order.
				for i := len(s.made) - 1; i >= 0; i-- {
					stack = append(stack, s.made[i])
				}
			}
		}
	}
	return any
}

func (s *simplifier) alive(n *ir.Node) bool { return s.f.NodeByID(n.ID()) == n }

// try tries the rules at one node until one fires. A node with order-only edges stays, so
// that a rule would fire at it for ever.
func (s *simplifier) try(n *ir.Node) bool {
	if n.Ordered() {
		return false
	}
	for i := range s.rules {
		s.rule = &s.rules[i]
		if !s.rule.anchor(n) {
			continue
		}
		s.made = s.made[:0]
		if s.rule.apply(s, n) {
			s.ctx.Count("fired", 1)
			s.ctx.Count(s.rule.name, 1)
			return true
		}
	}
	return false
}

// fire is the last question before a change at n, which replace ends.
func (s *simplifier) fire(n *ir.Node) bool {
	s.pinned = false
	return s.ctx.Enable(s.rule.name + "/" + n.Name())
}

// may reports whether a change that reorders the arithmetic of that reduction is
// allowed on that element type. Integers wrap around, so their sums and products
// may be taken in any order; their averages truncate, so never.
func (s *simplifier) may(r ir.Reduction, dt ir.DType) bool {
	switch {
	case r == ir.Min || r == ir.Max:
		return true
	case dt.IsInt():
		return r != ir.Avg
	}
	return s.reassoc && dt.IsFloat()
}

// beside reports whether no opaque call that communicates stands between two
// nodes: such a call keeps its place among all communication, so nothing on one
// side of it is joined with something on the other.
func (s *simplifier) beside(a, b *ir.Node) bool {
	last := s.later(a, b)
	if last == a {
		a = b
	}
	side := func(n *ir.Node) int { // fences before n; they stay in order
		return sort.Search(len(s.fences), func(i int) bool { return s.label[s.fences[i].ID()] > s.label[n.ID()] })
	}
	return side(a) == side(last)
}

// Labels tell the order of two nodes in constant time although nodes come and go:
// a new node takes the middle between its neighbours, and when there is none all
// labels are dealt anew.
const labelStep = 1 << 40

func (s *simplifier) relabel() {
	order := s.f.Order()
	s.label = grow(s.label, s.f.NumNodeIDs())
	for i, n := range order {
		s.label[n.ID()] = int64(i+1) * labelStep
	}
}

func (s *simplifier) place(n *ir.Node) {
	s.label = grow(s.label, s.f.NumNodeIDs())
	s.launched = grow(s.launched, s.f.NumNodeIDs())
	lo, hi := int64(0), int64(math.MaxInt64)
	if p := n.Prev(); p != nil {
		lo = s.label[p.ID()]
		s.launched[n.ID()] = s.launched[p.ID()]
	}
	if q := n.Next(); q != nil {
		hi = s.label[q.ID()]
		s.launched[n.ID()] = s.launched[q.ID()]
	}
	if hi-lo < 2 {
		s.relabel()
		return
	}
	s.label[n.ID()] = lo + min((hi-lo)/2, labelStep)
}

func grow[T any](list []T, n int) []T {
	if n <= len(list) {
		return list
	}
	return append(list, make([]T, n-len(list))...)
}

// later is the one of two nodes that stands further down.
func (s *simplifier) later(a, b *ir.Node) *ir.Node {
	if s.label[a.ID()] > s.label[b.ID()] {
		return a
	}
	return b
}

// countLaunches numbers nodes by how many operations launch before them.
func (s *simplifier) countLaunches() {
	s.launched = grow(s.launched, s.f.NumNodeIDs())
	count := int32(0)
	for _, n := range s.f.Order() {
		s.launched[n.ID()] = count
		if deps.Launches(n) {
			count++
		}
	}
}
