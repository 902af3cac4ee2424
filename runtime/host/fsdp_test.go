package host_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// What a child of these tests is told.
const (
	envFSDP    = "MLP_FSDP"    // number of steps of tiny_fsdp2
	envSilence = "MLP_SILENCE" // how long another host may be silent
)

// fsdp is the step of tiny_fsdp2, forward and backward, over two replicas of two ranks that
// have a shard each: shards of one replica are on different hosts.
type fsdp struct {
	step hostrun.Step
	in   [][]interp.Tensor // by shard
}

func newFSDP() (*fsdp, error) {
	f, _, err := joint.Load("../../testdata/graphs", "tiny_fsdp2")
	if err != nil {
		return nil, err
	}
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		return nil, err
	}
	p, err := lower.Func(f)
	if err != nil {
		return nil, err
	}
	p.World = 4
	for i := range p.Groups {
		p.Groups[i].Ranks = [][]int{{0, 2}, {1, 3}}
	}
	s, err := hostrun.OfProgram(p)
	return &fsdp{s, in}, err
}

// run runs steps on one rank, and gives a digest of what the last one computed.
func (f *fsdp) run(ctx context.Context, r *rt.Rank, steps int, each func(step int)) (string, error) {
	var sum string
	for step := range steps {
		in, err := hostrun.Inputs(ctx, r, f.step.Module, f.in[r.Info().Rank/2])
		if err != nil {
			return "", err
		}
		out, err := rt.RunModule(ctx, r, f.step.Module, f.step.Run, in, rt.Options{})
		if err != nil {
			return "", fmt.Errorf("step %d: %w", step, err)
		}
		ts, err := hostrun.Tensors(ctx, r, out)
		if err != nil {
			return "", err
		}
		h := sha256.New()
		for _, t := range ts {
			h.Write(t.Data)
		}
		sum = fmt.Sprintf("%x", h.Sum(nil)[:8])
		each(step)
	}
	return sum, nil
}

// childFSDP runs the step as a rank. An error that is not of a type, and what is left when
// the rank has been closed, is said.
func childFSDP(steps string) error {
	n, err := strconv.Atoi(steps)
	if err != nil {
		return err
	}
	silence, err := time.ParseDuration(os.Getenv(envSilence))
	if err != nil {
		return err
	}
	f, err := newFSDP()
	if err != nil {
		return err
	}
	held, ctx := leak.Now(), context.Background()
	r, err := rt.Join(ctx, host.Opener(host.Options{}), rt.Config{Timeout: time.Hour, HeartbeatTimeout: silence}, f.step.Module)
	if err != nil {
		return err
	}
	sum, err := f.run(ctx, r, n, func(step int) { fmt.Println("step", step) })
	if err == nil {
		err = r.Barrier(ctx)
	}
	if err == nil {
		fmt.Println("result", sum)
	} else if !errors.Is(err, rt.ErrPeerLost) {
		err = fmt.Errorf("not of a type: %w", err)
	}
	err = errors.Join(err, r.Close())
	if more := held.More(); more != "" {
		buf := make([]byte, 1<<16)
		err = errors.Join(err, fmt.Errorf("a leak: %s\n%s", more, buf[:runtime.Stack(buf, true)]))
	}
	return err
}
