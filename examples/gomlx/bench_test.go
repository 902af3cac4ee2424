package main

import (
	"iter"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
)

// BenchmarkStep compares the processor time of a step with that of GoMLX's Go backend, in turns, the
// least of each: of the GPT as it is by default, and of an MLP of 512 rows, 256 columns and
// layers of 1024. Build with GOEXPERIMENT=simd, which the Go backend uses.
func BenchmarkStep(b *testing.B) {
	for name, of := range map[string]func(compute.Backend) (*train.Loop, train.Dataset){"gpt": gptStep, "mlp": mlpStep} {
		b.Run(name, func(b *testing.B) {
			backends := []string{"concert:", "go:ops_sequential"} // side by side it hangs in steps of the GPT
			var run []func()
			for _, config := range backends {
				back, err := compute.NewWithConfig(config)
				if err != nil {
					b.Fatal(err)
				}
				defer back.Finalize()
				loop, data := of(back)
				run = append(run, func() {
					if _, err := loop.RunSteps(data, 5); err != nil {
						b.Fatal(err)
					}
				})
				run[len(run)-1]()
			}
			least := []time.Duration{time.Hour, time.Hour}
			for b.Loop() {
				for i, f := range run {
					before := processor()
					f()
					least[i] = min(least[i], (processor()-before)/5)
				}
			}
			b.ReportMetric(float64(least[0])/1e6, "concert-ms/step")
			b.ReportMetric(float64(least[1])/1e6, "go-ms/step")
		})
	}
}

// processor is what the process has used of processors.
func processor() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func newStore() *model.Store {
	store := model.NewStore()
	store.SetParams(map[string]any{model.ParamInitialSeed: int64(42)})
	return store
}

func gptStep(b compute.Backend) (*train.Loop, train.Dataset) {
	store := newStore()
	return newLoop(b, store), &book{store}
}

func mlpStep(b compute.Backend) (*train.Loop, train.Dataset) {
	net := func(scope *model.Scope, _ any, in []*Node) []*Node {
		h := activation.Gelu(dense(scope, in[0], "in", 1024))
		h = activation.Gelu(dense(scope, h, "mid", 1024))
		return []*Node{dense(scope, h, "out", 16)}
	}
	return train.NewLoop(train.NewTrainer(b, newStore(), net, loss.MeanSquaredError, optimizer.Adam().Done(), nil, nil)), noise{}
}

// noise yields rows of random numbers.
type noise struct{}

func (noise) Name() string { return "noise" }

func (noise) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		r := rand.New(rand.NewPCG(1, 1))
		draw := func(columns int) []*tensors.Tensor {
			x := make([]float32, 512*columns)
			for i := range x {
				x[i] = r.Float32() - 0.5
			}
			return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, 512, columns)}
		}
		for yield(train.Batch{Inputs: draw(256), Labels: draw(16)}, nil) {
		}
	}
}
