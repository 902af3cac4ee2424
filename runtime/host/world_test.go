package host_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
)

// envWorld tells a child to change its world in a loop of so many steps.
const envWorld = "MLP_WORLD"

const turnsText = `program @p%[1]d world %[2]d
group @%[3]s = %[4]s
stream @compute
stream @comm.%[3]s on @%[3]s
events 1
arena %[5]d
buffer %%w at 0 size 256
buffer %%x at 512 size 256
buffer %%s at %[6]d size 256
buffer %%new at 0 size 256
input w {parameter} donate 0 = %%w: f32[64]
input x = %%x: f32[64]
output new = %%new: f32[64]
body
@comm.%[3]s all_reduce on @%[3]s (%%x: f32[64]) -> (%%s: f32[64]) {reduce="sum"} from %%s
@comm.%[3]s record 0
@compute wait 0
@compute launch add (%%w: f32[64], %%s: f32[64]) -> (%%new: f32[64]) from %%new
`

// turn is a program that adds to w what the ranks of its subgroups bring together.
type turn struct {
	k   int
	sub []int // of this rank
	p   *program.Program
	m   *rt.Module
}

// newTurn makes program k.
func newTurn(k, rank, world int) (*turn, error) {
	name, ranks := hostrun.LivingGroup(k, world)
	text := strings.ReplaceAll(fmt.Sprint(ranks), " ", ", ")
	at := 1024 + k*50*1024
	p, err := program.Parse("turn", fmt.Sprintf(turnsText, k, world, name, text, at+512, at))
	if err != nil {
		return nil, err
	}
	m, err := rt.ModuleOf(p)
	for _, sub := range ranks {
		for _, r := range sub {
			if r == rank {
				return &turn{k, sub, p, m}, err
			}
		}
	}
	return nil, errors.New("no subgroup")
}

// run runs the program once, and gives what it adds.
func (t *turn) run(ctx context.Context, r *rt.Rank) (float64, error) {
	x, sum := make([]float64, 64), 0.0
	for i := range x {
		x[i] = float64((r.Info().Rank + 1) * (t.k + 1))
	}
	for _, peer := range t.sub {
		sum += float64((peer + 1) * (t.k + 1))
	}
	_, err := rt.Run(ctx, r, t.p, []rt.Value{{}, {DType: rt.F32, Shape: rt.Dims{64}, Data: bytesOf(rt.F32, x...)}}, rt.Options{})
	return sum, err
}

// livingSteps are fewer with -short, as under the race detector, where a tenth of them covers the
// same pairs of accesses: all programs were added and dropped several times by then.
func livingSteps() int {
	if testing.Short() {
		return 100
	}
	return 1000
}

// TestWorldLives changes a world of goroutines while it lives.
func TestWorldLives(t *testing.T) {
	for _, world := range []int{2, 4} {
		t.Run(strconv.Itoa(world), func(t *testing.T) {
			leak.Check(t)
			local(t, world, rt.Config{}, host.Options{Groups: 10}, nil, func(ctx context.Context, r *rt.Rank) error {
				return (&hostrun.Living{Steps: livingSteps()}).Run(ctx, r)
			})
		})
	}
}

func childWorld(steps string) error {
	n, err := strconv.Atoi(steps)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := rt.Join(ctx, host.Opener(host.Options{Groups: 10}), rt.Config{Timeout: time.Hour})
	if err != nil {
		return err
	}
	if err := (&hostrun.Living{Steps: 20}).Run(ctx, r); err != nil { // which makes what is made once
		return errors.Join(err, r.Close())
	}
	before := leak.Now()
	err = (&hostrun.Living{Steps: n, Each: func(_, step int) {
		if step%100 == 0 {
			fmt.Println("step", step)
		}
	}}).Run(ctx, r)
	if err == nil {
		if more := before.More(); more != "" {
			err = fmt.Errorf("a leak: %s", more)
		}
	}
	if err != nil && !errors.Is(err, rt.ErrPeerLost) {
		err = fmt.Errorf("not of a type: %w", err)
	}
	return errors.Join(err, r.Close())
}

func worldSpec(out *output, world, steps int) launch.Spec {
	spec := mlpSpec(out, 0, time.Hour, time.Hour)
	spec.World = world
	spec.Env = append(spec.Env, envWorld+"="+strconv.Itoa(steps))
	return spec
}

// TestWorldLivesInProcesses is TestWorldLives of processes, which hold nothing in the end.
func TestWorldLivesInProcesses(t *testing.T) {
	steps := livingSteps()
	for _, world := range []int{2, 4} {
		t.Run(strconv.Itoa(world), func(t *testing.T) {
			leak.Check(t)
			var out output
			if err := launch.Run(t.Context(), worldSpec(&out, world, steps)); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
		})
	}
}

// TestKilledInALivingWorld kills a rank in the middle of the loop, wherever it is: the
// others get a *PeerLostError.
func TestKilledInALivingWorld(t *testing.T) {
	for _, world := range []int{2, 4} {
		t.Run(strconv.Itoa(world), func(t *testing.T) {
			leak.Check(t)
			victim, last := rand.IntN(world), fmt.Sprint("step ", min(300, livingSteps()))
			var procs sync.Map
			var once sync.Once
			out := &output{}
			out.seen = func(line string) {
				if strings.HasPrefix(line, fmt.Sprintf("[%d] %s", victim, last)) {
					once.Do(func() {
						p, _ := procs.Load(victim)
						p.(*os.Process).Signal(syscall.SIGKILL)
					})
				}
			}
			spec := worldSpec(out, world, 1<<30)
			spec.Started = func(rank int, p *os.Process) { procs.Store(rank, p) }
			err := launch.Run(t.Context(), spec)
			var rest []int
			for r := range world {
				if r != victim {
					rest = append(rest, r)
				}
			}
			survivors(t, err, out.String(), rest, func(rank int) []string {
				return []string{"FAILED: step ", fmt.Sprintf("rank %d died", victim)}
			})
		})
	}
}
