// Command gomlx trains a GPT on Newton's Opticks, byte by byte, with GoMLX on concert: on ranks
// of the host or on GPUs, with the batch (-data), the weights and their optimizer's states
// (-fsdp) and the layers (-model) cut over them.
//
//	go run . -data 4 -fsdp
//	go run . -data 2 -model 2 -checkpoint /tmp/gpt
//	go run . -data 4 -fsdp -checkpoint /tmp/gpt -procs
//	go run . -device cuda -data 4 -fsdp -bf16 -dim 2048 -heads 16 -layers 12 -seq 2048 -batch 16 -vocabulary 50304 -quiet
//
// A checkpoint is resumed on any number of devices. With -procs every device is a process; if
// one dies, half as many go on from the checkpoint.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ui/commandline"

	_ "github.com/gomlx/compute/gobackend"
	. "github.com/gomlx/gomlx/core/graph"
	_ "github.com/seed-ee968945/concert/integrations/gomlx"
	rt "github.com/seed-ee968945/concert/runtime"
)

//go:embed opticks.txt
var opticks []byte

var (
	data    = flag.Int("data", 1, "devices along the batch")
	fsdp    = flag.Bool("fsdp", false, "cut weights along the batch's devices, too")
	tp      = flag.Int("model", 1, "devices along heads and hidden layers")
	device  = flag.String("device", "host", "host, cuda, or fake for GPUs of the host's memory")
	backend = flag.String("backend", "", "another backend of GoMLX, such as go")
	steps   = flag.Int("steps", 200, "steps in all, those of the checkpoint too")
	batch   = flag.Int("batch", 16, "sequences a step")
	seq     = flag.Int("seq", 64, "bytes of a sequence")
	dim     = flag.Int("dim", 64, "width")
	heads   = flag.Int("heads", 4, "attention heads")
	layers  = flag.Int("layers", 2, "layers")
	dir     = flag.String("checkpoint", "", "folder of checkpoints")
	every   = flag.Int("every", 50, "steps between checkpoints")
	vocab   = flag.Int("vocabulary", 256, "logits; more than bytes only to measure")
	bf16    = flag.Bool("bf16", false, "compute in bfloat16; weights and their states stay float32")
	sample  = flag.Int("sample", 80, "bytes that are written at the end")
	procs   = flag.Bool("procs", false, "a process for each device, which begin anew with half of them when one dies")
	quiet   = flag.Bool("quiet", false, "losses instead of a progress bar")
)

func main() {
	flag.Parse()
	if *procs && os.Getenv("CONCERT_CHILD") == "" {
		launchAll()
		return
	}
	if err := run(); err != nil {
		var lost *rt.PeerLostError
		if errors.As(err, &lost) {
			log.Fatalf("%s: rank %d is lost: %v", time.Now().Format("15:04:05.000"), lost.Peer, lost)
		}
		log.Fatalf("%v", err)
	}
}

func run() error {
	config := *backend
	if config == "" {
		config = fmt.Sprintf("concert:devices=%d,device=%s,variables=sharded", *data**tp, *device)
		if *procs {
			config += ",launch=env"
		}
	}
	b, err := compute.NewWithConfig(config)
	if err != nil {
		return err
	}
	defer b.Finalize()
	store := model.NewStore()
	store.SetParams(map[string]any{model.ParamInitialSeed: int64(42), optimizer.ParamLearningRate: 0.003})
	m := &gpt{seq: *seq, dim: *dim, heads: *heads, layers: *layers, data: *data, vocabulary: *vocab, dtype: dtypes.Float32}
	if *bf16 {
		m.dtype = dtypes.BFloat16
	}
	var ds train.Dataset = &book{m: m, store: store}
	if *data**tp > 1 {
		if m.mesh, err = distributed.NewDeviceMesh([]int{*data, *tp}, []string{"data", "model"}); err != nil {
			return err
		}
		m.tp = distributed.AxisSpec{"model"}
		if *fsdp {
			m.fsdp = distributed.AxisSpec{"data"}
		}
		rows := []*distributed.ShardingSpec{{Mesh: m.mesh, Axes: []distributed.AxisSpec{{"data"}}}}
		if ds, err = dataset.NewDistributedAccumulator(b, ds, distributed.AutoSharding, rows, rows, nil); err != nil {
			return err
		}
	}
	saved, err := checkpoints(store)
	if err != nil {
		return err
	}
	loop := train.NewLoop(train.NewTrainer(b, store, m.logits, loss.SparseCategoricalCrossEntropyLogits, asWeights{optimizer.Adam().Done()}, nil, nil))
	report(loop)
	if saved != nil {
		train.EveryNSteps(loop, *every, "checkpoint", 100, saved)
	}
	if _, err := loop.RunToGlobalStep(ds, *steps); err != nil {
		return err
	}
	if saved != nil {
		if err := saved(loop, nil); err != nil {
			return err
		}
	}
	return m.write(b, store)
}

// checkpoints resumes from the folder and saves there, if there is one: where devices are
// processes the first of them, and all bring their pieces.
func checkpoints(store *model.Store) (train.OnStepFn, error) {
	if *dir == "" {
		return nil, nil
	}
	h, err := checkpoint.Build(store).Dir(*dir).Keep(2).Done() // variables are loaded as the model makes them, in one order everywhere
	if err != nil {
		return nil, err
	}
	return func(l *train.Loop, ms []*tensors.Tensor) error {
		for v := range store.IterVariables() {
			if _, err := v.Value(); err != nil {
				return err
			}
		}
		if r := os.Getenv("RANK"); r != "" && r != "0" {
			return nil
		}
		return h.Save()
	}, nil
}

// report shows loss, bytes a second and memory while the loop runs.
func report(loop *train.Loop) {
	var first time.Time
	var from int
	speed := func() (string, string) {
		if first.IsZero() {
			first, from = time.Now(), loop.LoopStep
			return "bytes/s", "..."
		}
		return "bytes/s", fmt.Sprintf("%.0f", float64((loop.LoopStep-from)**batch**seq)/time.Since(first).Seconds())
	}
	memory := func() (string, string) {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return "memory", fmt.Sprintf("%d MiB at most", u.Maxrss>>10)
	}
	if !*quiet {
		commandline.AttachProgressBar(loop, speed, memory)
		return
	}
	train.EveryNSteps(loop, 10, "report", 0, func(l *train.Loop, ms []*tensors.Tensor) error {
		_, s := speed()
		_, mem := memory()
		fmt.Printf("step %d: loss %.6f, %s bytes/s, %s\n", l.LoopStep+1, ms[0].Value(), s, mem)
		return nil
	})
}

// book yields sequences of the text, which depend on the step alone.
type book struct {
	m     *gpt
	store *model.Store
}

func (d *book) Name() string { return "opticks" }

func (d *book) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for step := optimizer.GetGlobalStep(d.store); ; step++ {
			r := rand.New(rand.NewPCG(uint64(step), 1))
			for range d.m.data { // one piece after the other
				n := *batch / d.m.data
				x, y := make([]int32, n*d.m.seq), make([]int32, n*d.m.seq)
				for i := range x {
					if i%d.m.seq == 0 {
						d := opticks[r.IntN(len(opticks)-d.m.seq-1):]
						for k := range min(len(x)-i, *seq) {
							x[i+k], y[i+k] = int32(d[k]), int32(d[k+1])
						}
					}
				}
				b := train.Batch{Spec: "book", Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, n, d.m.seq)},
					Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, n, d.m.seq, 1)}}
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// write continues a text, on one device.
func (m *gpt) write(b compute.Backend, store *model.Store) error {
	one := *m
	one.mesh = nil
	e, err := model.NewExec(b, store, func(scope *model.Scope, tokens *Node) *Node {
		return Slice(one.logits(scope, nil, []*Node{tokens})[0], AxisElem(0), AxisElem(-1))
	})
	r := rand.New(rand.NewPCG(1, 2))
	text := []byte(strings.Repeat(" ", m.seq) + "The Rays of Light")
	for i := 0; i < *sample && err == nil; i++ {
		x := make([]int32, m.seq)
		for i, c := range text[len(text)-m.seq:] {
			x[i] = int32(c)
		}
		var out []*tensors.Tensor
		if out, err = e.Call(tensors.FromFlatDataAndDimensions(x, 1, m.seq)); err == nil {
			text = append(text, draw(r, tensors.MustCopyFlatData[float32](out[0])))
		}
	}
	fmt.Printf("\n%s\n", strings.TrimSpace(string(text)))
	return err
}

// draw is a byte, by the logarithms of how likely each is.
func draw(r *rand.Rand, logits []float32) byte {
	best, at := math.Inf(-1), 0
	for i, l := range logits {
		if v := float64(l)/0.7 - math.Log(r.ExpFloat64()); v > best {
			best, at = v, i
		}
	}
	return byte(at)
}
