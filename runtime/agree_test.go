package runtime

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// joinAll lets n ranks of a job join; change adapts what rank 1 brings.
func joinAll(t *testing.T, job *rendezvous.Job, n int, change func(a *agreeing)) ([]*Membership, []error) {
	t.Helper()
	ms, errs := make([]*Membership, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			g, err := rendezvous.Join(t.Context(), job, rendezvous.Place{Rank: r, World: n, Timeout: time.Minute})
			if err != nil {
				errs[r] = err
				return
			}
			defer g.Close()
			a := &agreeing{digest: "d", text: "a\nb\nc\n", arena: 512}
			if r == 1 && change != nil {
				change(a)
			}
			ms[r], errs[r] = a.join(t.Context(), g, []byte{byte(r)})
			if err := g.Barrier(t.Context(), "after"); err != nil { // whatever came of it
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return ms, errs
}

func TestAgree(t *testing.T) {
	job := rendezvous.NewJob("")
	var nonces []string
	for range 3 {
		ms, errs := joinAll(t, job, 3, nil)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for r, m := range ms {
			if m.Nonce != ms[0].Nonce || len(m.Records) != 3 {
				t.Errorf("rank %d: %+v", r, m)
			}
			for p, rec := range m.Records {
				if rec.Host == "" || !slices.Equal(rec.Extra, []byte{byte(p)}) {
					t.Errorf("record %d: %+v", p, rec)
				}
			}
		}
		if slices.Contains(nonces, ms[0].Nonce) {
			t.Errorf("nonce %s again", ms[0].Nonce)
		}
		nonces = append(nonces, ms[0].Nonce)
	}
}

func TestAgreeMismatch(t *testing.T) {
	long := strings.Repeat("same\n", 300<<10)
	for name, c := range map[string]struct {
		odd  func(a *agreeing)
		what string
		line int
	}{
		"programs":      {func(a *agreeing) { a.digest, a.text = "e", "a\nB\nc\n" }, rendezvous.Programs, 2},
		"long programs": {func(a *agreeing) { a.digest, a.text = "e", "a\nb\nc\n"+long }, rendezvous.Programs, 4},
		"arena":         {func(a *agreeing) { a.arena = 1024 }, "arena bytes", 0},
	} {
		for _, job := range []*rendezvous.Job{rendezvous.NewLocal(), rendezvous.NewJob("")} {
			_, errs := joinAll(t, job, 3, c.odd)
			for r, err := range errs {
				var e *MismatchError
				if !errors.As(err, &e) || !errors.Is(err, ErrMismatch) || e.What != c.what || e.Rank != r || e.Line != c.line || e.RankValue == e.PeerValue {
					t.Errorf("%s: rank %d: %v", name, r, err)
				}
			}
		}
	}
}
