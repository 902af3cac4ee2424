// Command gomlx trains a GPT on Newton's Opticks, byte by byte: a program of GoMLX for one device,
// which concert cuts over ranks of the host or GPUs. What is cut is said by flags: the batch
// (-data), weights and their optimizer's states, too (-fsdp), and layers (-model).
//
//	go run . -data 4 -fsdp
//	go run . -data 2 -model 2 -checkpoint /tmp/gpt
//	go run . -options device=cuda,sums=narrow -data 4 -fsdp -bf16 -dim 2048 -heads 16 -layers 12 -seq 2048 -batch 16 -vocabulary 50304 -quiet
//
// A checkpoint is resumed on any number of devices; with -options launch=env these are processes.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"iter"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/nn"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ui/commandline"

	_ "github.com/seed-ee968945/concert/integrations/gomlx"
)

//go:embed opticks.txt
var opticks []byte

var (
	data    = flag.Int("data", 1, "devices along the batch")
	fsdp    = flag.Bool("fsdp", false, "cut weights along the batch's devices, too")
	tp      = flag.Int("model", 1, "devices along heads and hidden layers")
	options = flag.String("options", "", "of concert, separated by commas: device=cuda, dump=FOLDER, memory=4GiB, ...")
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
	quiet   = flag.Bool("quiet", false, "losses instead of a progress bar")
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	flag.Parse()
	b, err := compute.NewWithConfig(fmt.Sprintf("concert:mesh=%s:%d/model:%d,%s", map[bool]string{true: "fsdp", false: "data"}[*fsdp], *data, *tp, *options))
	check(err)
	defer b.Finalize()
	store := model.NewStore()
	store.SetParams(map[string]any{model.ParamInitialSeed: int64(42), optimizer.ParamLearningRate: 0.003})
	loop := train.NewLoop(train.NewTrainer(b, store, logits, loss.SparseCategoricalCrossEntropyLogits, optimizer.Adam().Done(), nil, nil))
	report(loop)
	if *dir != "" {
		h, err := checkpoint.Build(store).Dir(*dir).Keep(2).Done() // loads variables as the model makes them
		check(err)
		save := func(*train.Loop, []*tensors.Tensor) error {
			for v := range store.IterVariables() { // all processes bring their pieces, the first saves
				check(v.MustValue().ConstBytes(func([]byte) {}))
			}
			if os.Getenv("RANK") <= "0" {
				check(h.Save())
			}
			return nil
		}
		train.EveryNSteps(loop, *every, "checkpoint", 100, save)
		loop.OnEnd("checkpoint", 100, save)
	}
	_, err = loop.RunToGlobalStep(&book{store}, *steps)
	check(err)
	write(b, store)
}

// report shows loss, bytes a second of the last ten steps and memory while the loop runs.
func report(loop *train.Loop) {
	at, rate := time.Now(), 0.0
	speed := func() (string, string) {
		var u syscall.Rusage
		check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return "bytes/s", fmt.Sprintf("%.0f, in %d MiB", rate, u.Maxrss>>10)
	}
	if !*quiet {
		commandline.AttachProgressBar(loop, speed)
	}
	train.EveryNSteps(loop, 10, "report", 0, func(l *train.Loop, ms []*tensors.Tensor) error {
		loss := ms[0].Value() // waits for the devices
		rate, at = float64(10**batch**seq)/time.Since(at).Seconds(), time.Now()
		if *quiet {
			_, s := speed()
			fmt.Printf("step %d: loss %.6f, bytes/s %s\n", optimizer.GetGlobalStep(l.Trainer.Store()), loss, s)
		}
		return nil
	})
}

// book yields sequences of the text, which depend on the step alone.
type book struct{ store *model.Store }

func (d *book) Name() string { return "opticks" }

func (d *book) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for step := optimizer.GetGlobalStep(d.store); ; step++ {
			r := rand.New(rand.NewPCG(uint64(step), 1))
			x, y := make([]int32, 0, *batch**seq), make([]int32, 0, *batch**seq)
			for range *batch {
				text := opticks[r.IntN(len(opticks)-*seq-1):]
				for k := range *seq {
					x, y = append(x, int32(text[k])), append(y, int32(text[k+1]))
				}
			}
			in, out := tensors.FromFlatDataAndDimensions(x, *batch, *seq), tensors.FromFlatDataAndDimensions(y, *batch, *seq, 1)
			if !yield(train.Batch{Inputs: []*tensors.Tensor{in}, Labels: []*tensors.Tensor{out}}, nil) {
				return
			}
		}
	}
}

func computed(x *Node) *Node {
	return ConvertDType(x, map[bool]dtypes.DType{true: dtypes.BFloat16, false: dtypes.Float32}[*bf16])
}

func weight(scope *model.Scope, g *Graph, name string, dims ...int) *Node {
	return scope.VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(g)
}

func matrix(s *model.Scope, g *Graph, name string, rows, columns int) *Node {
	return computed(weight(s.WithInitializer(initializer.RandomNormalFn(s, 0.02)), g, name, rows, columns))
}

func norm(scope *model.Scope, x *Node) *Node {
	gain := weight(scope.WithInitializer(initializer.One), x.Graph(), "gain", *dim)
	return computed(nn.LayerNorm(ConvertDType(x, dtypes.Float32), []int{-1}, 1e-5, gain, weight(scope.WithInitializer(initializer.Zero), x.Graph(), "bias", *dim), nil))
}

func dense(scope *model.Scope, x *Node, name string, out int) *Node {
	return nn.Dense(x, matrix(scope, x.Graph(), name, x.Shape().Dim(-1), out), nil, compute.DenseLayoutInputOutputs)
}

// logits predicts the byte behind each one.
func logits(scope *model.Scope, _ any, in []*Node) []*Node {
	tokens, g := in[0], in[0].Graph()
	rows, columns := tokens.Shape().Dim(0), tokens.Shape().Dim(1)
	x := Gather(matrix(scope, g, "bytes", *vocab, *dim), InsertAxes(tokens, -1))
	x = Add(x, InsertAxes(matrix(scope, g, "places", columns, *dim), 0))
	for l := range *layers {
		s := scope.In("layer%d", l)
		h := norm(s.In("attend"), x)
		head := func(name string) *Node { return Reshape(dense(s, h, name, *dim), rows, columns, *heads, *dim / *heads) }
		h, _ = attention.Core(head("q"), head("k"), head("v"), attention.LayoutBSHD, attention.CoreOptions{Scope: s, UseCausalMask: true})
		x = Add(x, dense(s, Reshape(h, rows, columns, *dim), "o", *dim))
		x = Add(x, dense(s, activation.Gelu(dense(s, norm(s.In("think"), x), "up", 4**dim)), "down", *dim))
	}
	return []*Node{ConvertDType(dense(scope, norm(scope.In("last"), x), "out", *vocab), dtypes.Float32)}
}

// write continues a text, each byte as likely as the model says, but for chance.
func write(b compute.Backend, store *model.Store) {
	e, err := model.NewExec(b, store, func(scope *model.Scope, tokens *Node) *Node {
		l := Slice(logits(scope, nil, []*Node{tokens})[0], AxisElem(0), AxisElem(-1))
		chance := Log(Neg(Log(scope.Store().RandomUniform(l.Graph(), l.Shape()))))
		return ArgMax(Sub(MulScalar(l, 1/0.7), chance), -1, dtypes.Int32)
	})
	check(err)
	text := []rune(fmt.Sprintf("%*s", *seq, "The Rays of Light")) // runes are int32
	for range *sample {
		out, err := e.Call([][]int32{text[len(text)-*seq:]})
		check(err)
		text = append(text, tensors.MustCopyFlatData[int32](out[0])[0])
	}
	fmt.Printf("\n%s\n", strings.TrimSpace(string(text)))
}
