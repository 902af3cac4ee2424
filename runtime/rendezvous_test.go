package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/runtime/store"
)

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func spec(rank, world int, s store.Store) meetSpec {
	return meetSpec{name: "w", text: "a\nb\nc\n",
		rec: Record{Version: protocolVersion, Nonce: s.Nonce(), Rank: rank, World: world, Digest: "d", ArenaBytes: 512, PID: 100 + rank, Extra: []byte{byte(rank)}}}
}

// meetAll lets the given ranks meet; change adapts a rank's part.
func meetAll(ctx context.Context, stores []store.Store, ranks []int, change func(m *meetSpec)) ([]*Meeting, []error) {
	ms, errs := make([]*Meeting, len(stores)), make([]error, len(stores))
	var wg sync.WaitGroup
	for _, r := range ranks {
		wg.Go(func() {
			m := spec(r, len(stores), stores[r])
			if change != nil {
				change(&m)
			}
			ms[r], errs[r] = meet(ctx, stores[r], m)
		})
	}
	wg.Wait()
	return ms, errs
}

// eachStore runs f with n views of one store, in memory and over TCP.
func eachStore(t *testing.T, n int, f func(t *testing.T, stores []store.Store)) {
	t.Run("mem", func(t *testing.T) {
		m := store.NewMem()
		f(t, slices.Repeat([]store.Store{m}, n))
	})
	t.Run("tcp", func(t *testing.T) {
		s, err := store.Listen(t.Context(), "127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores := []store.Store{s}
		for len(stores) < n {
			c, err := store.Dial(t.Context(), s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			stores = append(stores, c)
		}
		f(t, stores)
	})
}

func TestMeet(t *testing.T) {
	eachStore(t, 3, func(t *testing.T, stores []store.Store) {
		var nonces []string
		for range 3 { // generations
			ms, errs := meetAll(within(t, 10*time.Second), stores, []int{0, 1, 2}, nil)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for r, m := range ms {
				if m.Nonce != ms[0].Nonce || len(m.Records) != 3 {
					t.Errorf("rank %d: %+v", r, m)
				}
				for p, rec := range m.Records {
					if rec.Rank != p || !slices.Equal(rec.Extra, []byte{byte(p)}) {
						t.Errorf("record %d: %+v", p, rec)
					}
				}
			}
			if slices.Contains(nonces, ms[0].Nonce) {
				t.Errorf("nonce %s again", ms[0].Nonce)
			}
			nonces = append(nonces, ms[0].Nonce)
		}
	})
}

// TestMeetMissing starts two of four, then all: the failed generation must not
// get into the way of the next.
func TestMeetMissing(t *testing.T) {
	eachStore(t, 4, func(t *testing.T, stores []store.Store) {
		start := time.Now()
		_, errs := meetAll(within(t, 150*time.Millisecond), stores, []int{0, 2}, nil)
		for _, r := range []int{0, 2} {
			var te *TimeoutError
			if !errors.As(errs[r], &te) || !slices.Equal(te.Missing, []int{1, 3}) || te.Peer != 1 || te.Rank != r || te.Op != "rendezvous" {
				t.Errorf("rank %d: %v", r, errs[r])
			}
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("took %v", d)
		}
		if _, errs := meetAll(within(t, 10*time.Second), stores, []int{0, 1, 2, 3}, nil); errors.Join(errs...) != nil {
			t.Error(errors.Join(errs...))
		}
	})
}

// TestMeetFailsTogether gives one rank a short deadline: the others learn of the
// failure at once and with its reason.
func TestMeetFailsTogether(t *testing.T) {
	s := store.NewMem()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for r, ctx := range []context.Context{within(t, 20*time.Second), short} {
		wg.Go(func() { _, errs[r] = meet(ctx, s, spec(r, 3, s)) })
	}
	wg.Wait()
	for r, err := range errs[:2] {
		var te *TimeoutError
		if !errors.As(err, &te) || te.Rank != r || te.Peer != 2 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestMeetMismatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		odd   func(m *meetSpec)
		check func(rank int, err error) bool
	}{
		{"digest", func(m *meetSpec) { m.rec.Digest, m.text = "e", "a\nB\nc\n" }, func(rank int, err error) bool {
			var e *DigestMismatchError
			peer := 1
			if rank == 1 {
				peer = 0
			}
			return errors.As(err, &e) && errors.Is(err, ErrDigestMismatch) && e.Rank == rank && e.Peer == peer && e.Line == 2 && e.RankDigest != e.PeerDigest && e.RankLine != e.PeerLine
		}},
		{"arena", func(m *meetSpec) { m.rec.ArenaBytes = 1024 }, func(rank int, err error) bool {
			var e *SizeMismatchError
			return errors.As(err, &e) && errors.Is(err, ErrSizeMismatch) && e.What == "arena bytes" && e.Rank == rank && (rank == 1) == (e.RankValue == "1024")
		}},
		{"version", func(m *meetSpec) { m.rec.Version++ }, func(rank int, err error) bool {
			var e *RendezvousError
			return errors.As(err, &e)
		}},
		{"job", func(m *meetSpec) { m.rec.Nonce = "other" }, func(rank int, err error) bool {
			var e *RendezvousError
			return errors.As(err, &e)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStore(t, 3, func(t *testing.T, stores []store.Store) {
				start := time.Now()
				_, errs := meetAll(within(t, 20*time.Second), stores, []int{0, 1, 2}, func(m *meetSpec) {
					if m.rec.Rank == 1 {
						c.odd(m)
					}
				})
				for r, err := range errs {
					if !c.check(r, err) {
						t.Errorf("rank %d: %v", r, err)
					}
				}
				if d := time.Since(start); d > 3*time.Second {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

func TestMeetDuplicate(t *testing.T) {
	s := store.NewMem()
	_, errs := meetAll(within(t, 200*time.Millisecond), slices.Repeat([]store.Store{s}, 2), []int{0}, nil)
	if !errors.Is(errs[0], ErrTimeout) {
		t.Fatal(errs[0])
	}
	ctx := within(t, 10*time.Second)
	first := make(chan error, 1)
	go func() { _, err := meet(ctx, s, spec(0, 2, s)); first <- err }()
	for { // until the first has its record in the second generation
		if _, ok, _ := s.TryGet(ctx, "world/w/2/1/rec/0"); ok {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_, err := meet(ctx, s, spec(0, 2, s))
	var re *RendezvousError
	if !errors.As(err, &re) {
		t.Errorf("second rank 0: %v", err)
	}
	if _, err := meet(ctx, s, spec(1, 2, s)); err != nil {
		t.Errorf("rank 1: %v", err)
	}
	if err := <-first; err != nil {
		t.Errorf("first rank 0: %v", err)
	}
}

// TestMeetStoreDies ends the host of the store while others wait.
func TestMeetStoreDies(t *testing.T) {
	s, err := store.Listen(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.AfterFunc(50*time.Millisecond, func() { s.Close() })
	_, err = meet(within(t, 20*time.Second), c, spec(1, 2, c))
	var pe *PeerLostError
	if !errors.As(err, &pe) || pe.Peer != 0 || pe.Rank != 1 {
		t.Errorf("got %v", err)
	}
}

func TestMeetCancelled(t *testing.T) {
	s := store.NewMem()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, errs := meetAll(ctx, slices.Repeat([]store.Store{s}, 3), []int{0, 1}, nil)
	for r, err := range errs[:2] {
		if !errors.Is(err, ErrAborted) || !errors.Is(err, context.Canceled) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func ExampleDigestMismatchError() {
	fmt.Println(&DigestMismatchError{Op: `rendezvous before all_reduce on "tp" (sum)`, Rank: 0, Peer: 2, RankDigest: "8c1f", PeerDigest: "77ab", Line: 41,
		RankLine: "@compute launch relu (%h: f32[8,4]) -> (%a: f32[8,4])", PeerLine: "@compute launch tanh (%h: f32[8,4]) -> (%a: f32[8,4])"})
	// Output: rank 0: rendezvous before all_reduce on "tp" (sum): ranks 0 and 2 run different programs: digests 8c1f and 77ab; first difference at line 41: "@compute launch relu (%h: f32[8,4]) -> (%a: f32[8,4])" on rank 0, "@compute launch tanh (%h: f32[8,4]) -> (%a: f32[8,4])" on rank 2
}
