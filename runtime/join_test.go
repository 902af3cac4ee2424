package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
	"github.com/seed-ee968945/concert/runtime/rendezvous/loopback"
)

// TestJoinOverTCP lets ranks find each other by address only, with memory as processes
// have it, twice at the same address.
func TestJoinOverTCP(t *testing.T) {
	addr := addrs.Next()
	for range 2 {
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				r, err := rt.Join(t.Context(), host.Opener(host.Options{}), rt.Config{Env: envAt(i, 3, addr), Timeout: 5 * time.Minute})
				if err != nil {
					errs[i] = err
					return
				}
				if s := r.Env().Source; s != "options" {
					errs[i] = fmt.Errorf("source %q", s)
				}
				errs[i] = errors.Join(errs[i], r.Barrier(t.Context()), r.Close())
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
}

var addrs loopback.Addrs

var secret = rendezvous.NewSecret()

func envAt(rank, world int, addr string) *rt.Env {
	return &rt.Env{Rank: rank, World: world, Addr: addr, Secret: secret}
}

func TestJoinNobodyListens(t *testing.T) {
	addr := addrs.Next()
	join := func(rank int, limit time.Duration) error {
		_, err := rt.Join(t.Context(), host.Opener(host.Options{}), rt.Config{Env: envAt(rank, 2, addr), Timeout: limit})
		return err
	}
	err := join(1, 100*time.Millisecond)
	var te *rt.TimeoutError
	if !errors.As(err, &te) || te.Peer != 0 || te.Rank != 1 || !strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
	ln, err := net.Listen("tcp", strings.TrimPrefix(addr, "tcp:"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = join(0, time.Minute)
	var re *rt.RendezvousError
	if !errors.As(err, &re) || !strings.Contains(err.Error(), "cannot listen at "+addr) {
		t.Errorf("address in use: %v", err)
	}
}

// unfit is a device on which rank 1 cannot make what a module needs.
type unfit struct {
	rt.Device
	rank int
}

func (u *unfit) NewEvent() (rt.Event, error) {
	if u.rank == 1 {
		return 0, errors.New("no room for an event")
	}
	return u.Device.NewEvent()
}

// TestJoinForAll lets rank 1 fail where it needs nobody any more: in the end of opening its
// device, and behind that. Joining fails on all ranks, and no rank waits for a deadline.
func TestJoinForAll(t *testing.T) {
	for _, c := range []struct {
		want string
		open func(d rt.Device, rank int) (rt.Device, error)
	}{
		{"no place to map it", func(d rt.Device, rank int) (rt.Device, error) {
			if rank == 1 {
				return nil, errors.Join(errors.New("no place to map it"), d.Close())
			}
			return d, nil
		}},
		{"no room for an event", func(d rt.Device, rank int) (rt.Device, error) { return &unfit{d, rank}, nil }},
	} {
		t.Run(c.want, func(t *testing.T) {
			leak.Check(t)
			addr := addrs.Next()
			errs := make([]error, 3)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					open := func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
						d, err := host.Opener(host.Options{})(ctx, spec)
						if err != nil {
							return nil, err
						}
						return c.open(d, spec.Rank)
					}
					r, err := rt.Join(t.Context(), open, rt.Config{Env: envAt(i, 3, addr), Timeout: time.Hour}, &rt.Module{Name: "m", World: 3, Streams: []string{"compute"}, Events: 1})
					if errs[i] = err; err == nil {
						r.Close()
					}
				})
			}
			wg.Wait()
			for i, err := range errs {
				var ce *rt.CanceledError
				if err == nil || !strings.Contains(err.Error(), c.want) || i != 1 && (!errors.As(err, &ce) || ce.Rank != i || ce.Origin != 1) {
					t.Errorf("rank %d: %v", i, err)
				}
			}
		})
	}
}

// BenchmarkRun measures what the runtime adds to a launch and to the events of a
// program: 1000 additions of four numbers and 500 pairs of record and wait.
func BenchmarkRun(b *testing.B) {
	var text strings.Builder
	text.WriteString("program @adds world 1\ngroup @g = [[0]]\nstream @compute\nstream @side on @g\nevents 500\narena 512\nbuffer %x at 0 size 16\noutput x = %x: f32[4]\nbody\n")
	for i := range 1000 {
		text.WriteString("@compute launch add (%x: f32[4], %x: f32[4]) -> (%x: f32[4])\n")
		if i%2 == 0 {
			fmt.Fprintf(&text, "@compute record %d\n@side wait %d\n", i/2, i/2)
		}
	}
	p, err := program.Parse("adds", text.String())
	if err != nil {
		b.Fatal(err)
	}
	m, err := rt.ModuleOf(p)
	if err != nil {
		b.Fatal(err)
	}
	err = host.Local(b.Context(), 1, rt.Config{}, host.Options{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for b.Loop() {
			if _, err := rt.Run(ctx, r, p, nil, rt.Options{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
