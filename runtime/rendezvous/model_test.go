package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The model has the coordinator and the sessions of this package, without goroutines and
// connections: ranks do what a script says, and messages wait in queues, one in each
// direction for each rank. It goes through every order in which scripts and queues can
// advance.

// What a rank does in a script.
const (
	doJoin     = 'J' // says hello; who has none in its script was the first to
	doArrive   = 'A' // comes to the next barrier, and goes on when it knows the outcome
	doWithdraw = 'W' // comes to the next barrier, and cancels it behind that
	doCancel   = 'C' // cancels the next barrier in place of coming
	doLeave    = 'L'
	doDie      = 'D' // without a word
)

type modelRank struct {
	script  string
	g       *Group
	to      []*message // on the way to the coordinator
	out     *outbox    // on the way to the rank
	l       *link
	p       point
	w       chan *message // of the barrier it waits at, nil for none
	said    bool          // hello
	done    bool          // no more script
	hung    bool          // its end of the connection is closed
	over    bool          // the coordinator has seen that
	results []string      // of its barriers
}

type model struct {
	c       *coordinator
	r       []*modelRank
	cancels bool // a script has a barrier canceled
}

func newModel(scripts []string) *model {
	h := hello{Version: protocolVersion, World: len(scripts)}
	m := &model{c: newCoordinator(h, tree{max(len(scripts), 2), len(scripts)})}
	all := make([]int, len(scripts))
	for i := range all {
		all[i] = i
	}
	for i, script := range scripts {
		m.cancels = m.cancels || strings.ContainsAny(script, "WC")
		r := &modelRank{script: script, out: newOutbox()}
		s := newSession(Place{Rank: i, World: len(scripts)})
		s.send = func(m *message) { r.to = append(r.to, m) }
		s.hangUp = func() { r.hung = true }
		r.g = &Group{s: s, ranks: all}
		m.r = append(m.r, r)
		if script[0] != doJoin {
			r.l = m.c.join(hello{Version: h.Version, World: h.World, Rank: i}, r.out)
		}
	}
	return m
}

// steps are the ways to go on: for each rank its script, its messages and those to it.
func (m *model) steps() (steps []int) {
	for i, r := range m.r {
		joining := r.said && r.g.s.nonce == "" && !strings.HasPrefix(r.script, string(doDie))
		if !r.done && !joining && (r.w == nil || len(r.w) > 0 || r.closed()) {
			steps = append(steps, 3*i)
		}
		if !r.over && (len(r.to) > 0 || r.hung) {
			steps = append(steps, 3*i+1)
		}
		if len(r.out.queue) > 0 && !r.hung {
			steps = append(steps, 3*i+2)
		}
	}
	return steps
}

// closed reports whether there will be no outcome.
func (r *modelRank) closed() bool {
	select {
	case x, ok := <-r.w:
		if ok {
			r.w <- x
		}
		return !ok
	default:
		return false
	}
}

func (m *model) step(k int) error {
	i, r := k/3, m.r[k/3]
	switch k % 3 {
	case 1: // the coordinator takes a message, or sees the end
		if len(r.to) == 0 {
			r.over = true
			if r.l != nil {
				m.c.end(r.l)
			}
			return nil
		}
		x := r.to[0]
		r.to = r.to[1:]
		if x.Kind == kindHello {
			r.l = m.c.join(*x.Hello, r.out)
			return nil
		}
		return m.c.receive(r.l, x)
	case 2: // the rank takes a message
		x := r.out.queue[0]
		r.out.queue = r.out.queue[1:]
		if r.said && r.g.s.nonce == "" && x.Kind == kindGone {
			r.results, r.done, r.hung = append(r.results, "refused"), true, true
			return nil
		}
		r.g.s.receive(x)
		return nil
	}
	if r.w != nil {
		x, ok := <-r.w
		r.w = nil
		switch {
		case !ok:
			r.results = append(r.results, "none")
		case x.Err != nil:
			r.results = append(r.results, "error "+string(x.Err))
		default:
			r.results = append(r.results, "released")
		}
		return nil
	}
	if r.script == "" {
		r.done = true
		return nil
	}
	what := r.script[0]
	r.script = r.script[1:]
	switch what {
	case doJoin:
		r.said = true
		r.to = append(r.to, &message{Kind: kindHello, Hello: &hello{Version: protocolVersion, World: len(m.r), Rank: i}})
	case doArrive, doWithdraw:
		var err error
		if r.p, r.w, err = r.g.arrive(Call{}); err != nil {
			r.results = append(r.results, "none")
		} else if what == doWithdraw {
			r.g.withdraw(r.p, errors.New("withdrawn"))
		}
	case doCancel:
		r.g.Cancel(errors.New("canceled"))
		r.results = append(r.results, "-")
	case doLeave:
		r.g.leave()
		r.done = true
	case doDie:
		r.done, r.hung = true, true
	}
	return nil
}

// check looks at a state in which nothing can go on.
func (m *model) check() error {
	for b := range 4 {
		outcome := ""
		for i, r := range m.r {
			if r.w != nil {
				return fmt.Errorf("rank %d waits for ever", i)
			}
			if b >= len(r.results) || r.results[b] == "-" || r.results[b] == "none" {
				continue
			}
			if r.results[b] == "refused" {
				if !m.cancels {
					return fmt.Errorf("rank %d came to a world that was decided without it", i)
				}
				continue
			}
			if outcome != "" && r.results[b] != outcome {
				return fmt.Errorf("barrier %d ended as %q and as %q", b, outcome, r.results[b])
			}
			outcome = r.results[b]
		}
	}
	all := !slices.ContainsFunc(m.r, func(r *modelRank) bool { return !r.over })
	for _, g := range m.c.groups {
		for turn, a := range g.open {
			if !a.decided && len(a.Who) > 0 {
				return fmt.Errorf("barrier %d is undecided", turn)
			}
			if turn < g.first {
				return fmt.Errorf("barrier %d is kept, and all have come to it", turn)
			}
		}
		if all && len(g.open) > 1 {
			return fmt.Errorf("%d barriers are kept of a job that has ended", len(g.open))
		}
	}
	return nil
}

// explore goes through all orders of the scripts, at most limit of them, and returns how
// many there were and how many steps they took.
func explore(scripts []string, limit int) (orders, steps int, err error) {
	var choices, widths []int
	for {
		m := newModel(scripts)
		depth := 0
		var took []int
		for {
			next := m.steps()
			if len(next) == 0 {
				break
			}
			if depth == len(choices) {
				choices, widths = append(choices, 0), append(widths, 0)
			}
			widths[depth] = len(next)
			k := next[choices[depth]]
			took = append(took, k)
			depth++
			steps++
			if err := m.step(k); err != nil {
				return orders, steps, fmt.Errorf("%v: steps %v: %w", scripts, took, err)
			}
		}
		if err := m.check(); err != nil {
			return orders, steps, fmt.Errorf("%v: steps %v: %w", scripts, took, err)
		}
		orders++
		choices, widths = choices[:depth], widths[:depth]
		for depth > 0 && choices[depth-1] == widths[depth-1]-1 {
			depth--
		}
		if depth == 0 || orders == limit {
			return orders, steps, nil
		}
		choices, widths = choices[:depth], widths[:depth]
		choices[depth-1]++
	}
}

// TestModel: a barrier's outcome is one for all ranks, no rank waits for ever, and
// nothing is kept, in whatever order ranks join, arrive, cancel, withdraw, leave and die and
// messages come; and no world is decided without a rank that comes, unless one cancels.
func TestModel(t *testing.T) {
	scripts := []string{"AL", "WL", "CL", "L", "D", "AD", "CAL"}
	limit := 4000
	if testing.Short() {
		limit = 300
	}
	orders, steps, cut := 0, 0, 0
	run := func(s []string) {
		o, n, err := explore(s, limit)
		if err != nil {
			t.Fatal(err)
		}
		orders, steps = orders+o, steps+n
		if o == limit {
			cut++
		}
	}
	for i, a := range scripts {
		for _, b := range scripts[i:] {
			run([]string{a, b})
		}
	}
	for _, s := range []string{"AL AL L", "AL WL D", "AL CL AL", "WL CL AL", "AD AL AL",
		"AL JAL JAL", "AL JD JAL", "AL JAD JAL", "AL JD JD", "AD JAL JAL", "WL JD JAL", "AL JCL JAL"} {
		run(strings.Fields(s))
	}
	t.Logf("%d orders, %d steps; %d scripts have more orders than %d", orders, steps, cut, limit)
}
