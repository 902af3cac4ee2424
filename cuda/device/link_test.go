package device

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/store"
)

// linked runs body on ranks that share a store.
func linked(t *testing.T, n int, body func(rank int, l *link) error) {
	t.Helper()
	st := store.NewMem()
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			l := newLink(st, r, n, nil, func() map[string]uint64 { return map[string]uint64{"g": uint64(10 + r)} }, func() {})
			defer l.close()
			if err := body(r, l); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
}

func works() error { return nil }

// Meetings come in turn, counts are told, and who leaves is heard before who waits for it.
func TestLink(t *testing.T) {
	linked(t, 3, func(rank int, l *link) error {
		for range 20 {
			if err := l.meet(t.Context(), 20*time.Second, works); err != nil {
				return err
			}
		}
		if rank == 1 {
			for r, c := range l.ask(20 * time.Second) {
				if c["g"] != uint64(10+r) {
					return fmt.Errorf("rank %d told %v", r, c)
				}
			}
		}
		if err := l.meet(t.Context(), 20*time.Second, works); err != nil {
			return err
		}
		if rank == 2 {
			l.leave(0)
			return nil
		}
		err := l.meet(t.Context(), 20*time.Second, works)
		var lost *rt.PeerLostError
		if !errors.As(err, &lost) || !lost.Left || lost.Peer != 2 || lost.Rank != rank {
			return fmt.Errorf("a meeting with a rank that left: %w", err)
		}
		if left, counts := l.quit(2); !left || counts["g"] != 12 {
			return fmt.Errorf("rank 2: %v %v", left, counts)
		}
		return nil
	})
}

// What ranks say at a meeting is heard by all, and none hears what another says at the
// next or at a meeting without words, however far behind it is.
func TestLinkCompares(t *testing.T) {
	linked(t, 3, func(rank int, l *link) error {
		r := rand.New(rand.NewPCG(uint64(rank), 5))
		for i := range 60 {
			said := func(rank int) string { return fmt.Sprint(i, " of ", rank) }
			if i%7 == 3 {
				if err := l.meet(t.Context(), 20*time.Second, works); err != nil {
					return err
				}
			}
			time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
			got, err := l.compare(t.Context(), said(rank), 20*time.Second, works)
			if want := []string{said(0), said(1), said(2)}; err != nil || !reflect.DeepEqual(got, want) {
				return fmt.Errorf("heard %q instead of %q: %w", got, want, err)
			}
		}
		return nil
	})
}

// Ranks of one process hear each other as well, and are named where they do not come.
func TestSiteCompares(t *testing.T) {
	s := newSite(3)
	var wg sync.WaitGroup
	for rank := range 3 {
		wg.Go(func() {
			spec := &rt.Spec{Rank: rank, World: 3, Timeout: 20 * time.Second}
			r := rand.New(rand.NewPCG(uint64(rank), 6))
			for i := range 200 {
				said := func(rank int) string { return fmt.Sprint(i, " of ", rank) }
				if i%7 == 3 {
					if err := s.meet(t.Context(), spec); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Duration(r.IntN(50)) * time.Microsecond)
				got, err := s.compare(t.Context(), spec, said(rank))
				if want := []string{said(0), said(1), said(2)}; err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("heard %q instead of %q: %v", got, want, err)
				}
			}
			spec.Timeout = 50 * time.Millisecond
			if rank != 1 {
				return
			}
			err := s.meet(t.Context(), spec)
			var te *rt.TimeoutError
			if !errors.As(err, &te) || te.Rank != 1 || te.Peer != 0 || !reflect.DeepEqual(te.Missing, []int{0, 2}) {
				t.Errorf("nobody else came: %v", err)
			}
		})
	}
	wg.Wait()
}

// A meeting that cannot be ends by its deadline, naming who is missing, with its context,
// when a rank is lost, when the device fails, and when the store is gone.
func TestLinkObstacles(t *testing.T) {
	linked(t, 2, func(rank int, l *link) error {
		if rank == 1 {
			return nil
		}
		err := l.meet(t.Context(), 50*time.Millisecond, works)
		var te *rt.TimeoutError
		if !errors.As(err, &te) || te.Peer != 1 || !reflect.DeepEqual(te.Missing, []int{1}) {
			return fmt.Errorf("deadline: %w", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		cancel(why)
		if err := l.meet(ctx, 20*time.Second, works); !errors.Is(err, why) {
			return fmt.Errorf("context: %w", err)
		}
		if err := l.meet(t.Context(), 20*time.Second, func() error { return why }); !errors.Is(err, why) {
			return fmt.Errorf("failure: %w", err)
		}
		if got := l.ask(50 * time.Millisecond); got[0] == nil {
			return fmt.Errorf("asked: %v", got)
		}
		if err := l.say(t.Context(), note{Kind: noteLost, Rank: 1}); err != nil {
			return err
		}
		err = l.meet(t.Context(), 20*time.Second, works)
		var lost *rt.PeerLostError
		if !errors.As(err, &lost) || lost.Left || lost.Peer != 1 {
			return fmt.Errorf("lost: %w", err)
		}
		return nil
	})
	linked(t, 2, func(rank int, l *link) error {
		if rank == 0 {
			time.AfterFunc(20*time.Millisecond, func() { l.st.Close() })
			return nil
		}
		err := l.meet(t.Context(), 20*time.Second, works)
		if !errors.Is(err, rt.ErrPeerLost) {
			return fmt.Errorf("without a store: %w", err)
		}
		return nil
	})
}

// machines are hosts of so many GPUs each, all of which reach each other but for the pairs
// of ranks given.
func machines(hosts, gpus int, apart ...[2]int) *topo.Layout {
	l := &topo.Layout{Version: topo.Version}
	for h := range hosts {
		m := topo.Machine{Version: topo.Version, Host: topo.Host{ID: fmt.Sprint(h), Name: fmt.Sprint("host", h)}}
		for g := range gpus {
			m.GPUs = append(m.GPUs, topo.GPU{Index: g, UUID: fmt.Sprint(h, " ", g)})
			for k := range g {
				p := topo.Pair{A: k, B: g, Way: topo.WaySwitch, Read: topo.OK, Write: topo.OK, Atomics: topo.OK}
				for _, x := range apart {
					if x == [2]int{h*gpus + k, h*gpus + g} {
						p.Read = "not supported"
					}
				}
				m.Pairs = append(m.Pairs, p)
			}
			l.Ranks = append(l.Ranks, topo.Place{Machine: h, GPU: g})
		}
		l.Machines = append(l.Machines, m)
	}
	return l
}

// Groups go over symmetric memory where they can, and ranks share it where groups want.
func TestRoute(t *testing.T) {
	world := func(n int) rt.Group {
		g := rt.Group{Name: "world", Ranks: [][]int{{}}}
		for r := range n {
			g.Ranks[0] = append(g.Ranks[0], r)
		}
		return g
	}
	in, across := rt.Group{Name: "in", Ranks: [][]int{{0, 1}, {2, 3}}}, rt.Group{Name: "across", Ranks: [][]int{{0, 2}, {1, 3}}}
	chain := rt.Group{Name: "chain", Ranks: [][]int{{0, 1}, {2}, {3}}}
	chain2 := rt.Group{Name: "chain2", Ranks: [][]int{{1, 2}, {0}, {3}}}
	for name, tc := range map[string]struct {
		l       *topo.Layout
		groups  []rt.Group
		o       Options
		islands [][]int
		nccl    string // by subgroup: s or n
	}{
		"one host":          {machines(1, 4), []rt.Group{world(4), in}, Options{}, [][]int{{0, 1, 2, 3}}, "sss"},
		"asked for":         {machines(1, 4), []rt.Group{world(4), in}, Options{Transport: topo.NCCL}, [][]int{{0}, {1}, {2}, {3}}, "nnn"},
		"two hosts":         {machines(2, 2), []rt.Group{world(4), in, across}, Options{}, [][]int{{0, 1}, {2, 3}}, "nssnn"},
		"hosts of one":      {machines(4, 1), []rt.Group{world(4), in}, Options{}, [][]int{{0}, {1}, {2}, {3}}, "nnn"},
		"not all pairs":     {machines(1, 4, [2]int{0, 2}), []rt.Group{world(4), in}, Options{}, [][]int{{0, 1}, {2, 3}}, "nss"},
		"a chain":           {machines(1, 4, [2]int{0, 2}), []rt.Group{world(4), chain, chain2}, Options{}, [][]int{{0}, {1}, {2}, {3}}, "nnssnss"},
		"no group of all":   {machines(2, 2), []rt.Group{in}, Options{}, [][]int{{0, 1}, {2, 3}}, "ss"},
		"more than kernels": {machines(1, 17), []rt.Group{world(17)}, Options{}, nil, "n"},
		"alone":             {machines(1, 1), []rt.Group{world(1)}, Options{Transport: topo.NCCL}, [][]int{{0}}, "s"},
	} {
		spec := &rt.Spec{World: len(tc.l.Ranks), Groups: tc.groups}
		r, err := route(spec, &tc.o, tc.l)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ""
		for _, row := range r.by {
			for _, d := range row {
				got += string(d.Transport)[:1]
			}
		}
		if got != tc.nccl || tc.islands != nil && !reflect.DeepEqual(r.islands, tc.islands) {
			t.Errorf("%s: %s %v, want %s %v", name, got, r.islands, tc.nccl, tc.islands)
		}
	}
}
