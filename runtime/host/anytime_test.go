package host_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

var closings = flag.Uint64("closings", 6, "worlds of TestClosedAnytime, which close somewhere among random calls")

// TestClosedAnytime closes and aborts worlds of goroutines, of processes' memory and of two
// hosts while their ranks change them and run: every call ends, and nothing is left.
func TestClosedAnytime(t *testing.T) {
	leak.Check(t)
	for seed := range *closings {
		job := rendezvous.NewJob("")
		if seed%3 == 0 {
			job = rendezvous.NewLocal()
		}
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() {
				env := &rt.Env{Rank: rank, World: 2}
				if seed%2 == 0 {
					env.Host = fmt.Sprint(rank)
				}
				r, err := rt.Join(t.Context(), host.Opener(host.Options{Local: job.Local()}), rt.Config{Env: env, Job: job, UserBytes: 4096, Timeout: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				var all sync.WaitGroup
				all.Go(func() { live(t, r, rand.New(rand.NewPCG(seed, 2))) })
				for k := range uint64(2) {
					all.Go(func() {
						own := rand.New(rand.NewPCG(seed, 10+2*k+uint64(rank)))
						time.Sleep(time.Duration(own.IntN(4000)) * time.Microsecond)
						if own.IntN(2) == 0 {
							r.Abort(errors.New("enough"))
						}
						r.Close() // again and again: the first error matters
					})
				}
				all.Wait()
			})
		}
		ranks.Wait()
	}
}

// live makes calls, the same on all ranks, until the world is broken or closed. Which of
// them fail depends on when that is.
func live(t *testing.T, r *rt.Rank, same *rand.Rand) {
	ctx := t.Context()
	x := r.User(rt.C(0, rt.F32, 16))
	v := rt.Value{DType: rt.F32, Shape: []int64{64}, Data: make([]byte, 256)}
	var turns []*turn
	var bufs []*rt.Buffer
	for i := 0; r.Err() == nil; i++ {
		switch n := len(turns); same.IntN(7) {
		case 0:
			next, err := newTurn(i%10, r.Info().Rank, 2)
			if err != nil {
				t.Error(err)
				return
			}
			if r.Add(ctx, next.m, nil) == nil {
				turns = append(turns, next)
			}
		case 1:
			if n > 0 {
				r.Drop(ctx, turns[0].m)
				turns = turns[1:]
			}
		case 2:
			if n > 0 {
				rt.Run(ctx, r, turns[n-1].p, []rt.Value{v, v}, rt.Options{})
			}
		case 3:
			if b, err := r.NewBuffer(ctx, fmt.Sprint("b", i), 5000); err == nil {
				bufs = append(bufs, b)
			}
		case 4:
			if len(bufs) > 0 {
				bufs[0].Free(ctx)
				bufs = bufs[1:]
			}
		case 5:
			if w, err := r.Start(ctx, "", sumOf(x)); err == nil {
				w.Wait(ctx)
			}
		case 6:
			r.Barrier(ctx)
		}
	}
}
