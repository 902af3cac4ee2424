package hostops

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/safetensors"
)

// This file runs graphs traced from PyTorch, node by node on all ranks at once,
// straight on the kernels, and compares with what PyTorch computed. It knows only
// the operators of the tiny graphs.

type tracedGraph struct {
	World  int
	Groups map[string][][]int
	Nodes  []*tracedNode
}

type tracedNode struct {
	Name, Kind, Target, Args, Kwargs string
	Op, Group, Reduce, Role, From    string
	Out                              []struct {
		Shape, Stride []int64
		DType         string `json:"dtype"`
	}
}

func readGraph(t *testing.T, name string) *tracedGraph {
	t.Helper()
	f, err := os.Open("../../testdata/graphs/" + name + ".graph.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	g := &tracedGraph{}
	if err := json.NewDecoder(z).Decode(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// word is a bare identifier of the arguments: a node or a constant such as torch.int64.
type word string

// parseArgs reads the Python tuples, lists, numbers, strings and names of an
// argument text; tuples and lists become []any.
func parseArgs(s string) []any {
	p := &argParser{s: s}
	v, _ := p.value().([]any)
	return v
}

type argParser struct {
	s string
}

func (p *argParser) value() any {
	p.s = strings.TrimLeft(p.s, " ,")
	switch c := p.s[0]; c {
	case '(', '[':
		p.s = p.s[1:]
		l := []any{}
		for {
			p.s = strings.TrimLeft(p.s, " ,")
			if p.s[0] == ')' || p.s[0] == ']' {
				p.s = p.s[1:]
				return l
			}
			l = append(l, p.value())
		}
	case '\'':
		end := strings.IndexByte(p.s[1:], '\'') + 1
		v := p.s[1:end]
		p.s = p.s[end+1:]
		return v
	}
	end := strings.IndexAny(p.s, " ,)]")
	w := p.s[:end]
	p.s = p.s[end:]
	if n, err := strconv.ParseInt(w, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(w, 64); err == nil && w != "inf" && w != "nan" {
		return f
	}
	switch w {
	case "True":
		return true
	case "False":
		return false
	case "None":
		return nil
	}
	return word(w)
}

func torchType(s string) dtype.DType {
	s = strings.TrimPrefix(s, "torch.")
	for short, long := range map[string]string{"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "i64": "int64", "i32": "int32"} {
		if s == long {
			s = short
		}
	}
	d, _ := dtype.Parse(s)
	return d
}

// blank allocates the storage of a declared result.
func (n *tracedNode) blank(i int) Tensor {
	o := n.Out[i]
	t := Tensor{DType: torchType(o.DType), Shape: o.Shape, Strides: o.Stride}
	_, hi, _ := t.span()
	if t.NumElems() > 0 {
		t.Data = make([]byte, (hi+1)*int64(t.DType.Size()))
	}
	return t
}

// as views x with the declared shape and strides of result i, moved by offset elements.
func (n *tracedNode) as(i int, x Tensor, offset int64) Tensor {
	x.Shape, x.Strides, x.Offset = n.Out[i].Shape, n.Out[i].Stride, x.Offset+offset
	return x
}

// machine holds every node's results on one rank.
type machine map[string][]Tensor

func (m machine) get(v any) Tensor { return m[string(v.(word))][0] }

func intList(v any) []int64 {
	var l []int64
	for _, x := range v.([]any) {
		l = append(l, x.(int64))
	}
	return l
}

func number64(v any) attr.Value {
	switch v := v.(type) {
	case int64:
		return attr.Int(v)
	case float64:
		return attr.Float(v)
	}
	return attr.Bool(v.(bool))
}

// step runs a node that needs no other rank.
func (m machine) step(n *tracedNode) error {
	a := parseArgs(n.Args)
	var at attr.List
	run := func(op string, ins ...Tensor) error {
		outs := make([]Tensor, len(n.Out))
		for i := range outs {
			outs[i] = n.blank(i)
		}
		m[n.Name] = outs
		return Run(op, at, outs, ins)
	}
	view := func(offset int64) error {
		m[n.Name] = []Tensor{n.as(0, m.get(a[0]), offset)}
		return nil
	}
	set := func(k string, v attr.Value) { at = at.With(k, v) }
	parts := strings.Split(n.Target, ".")
	switch op := parts[min(1, len(parts)-1)]; op {
	case "<built-in function getitem>":
		src, k := m[string(a[0].(word))], a[1].(int64)
		if len(src) == 4 && k >= 6 { // attention: items 0, 1, 6, 7 are tensors
			k -= 4
		}
		m[n.Name] = src[k : k+1]
		return nil
	case "alias", "expand", "permute", "squeeze", "unsqueeze", "view", "wait_tensor":
		return view(0)
	case "slice":
		x := m.get(a[0])
		return view(a[2].(int64) * x.Strides[a[1].(int64)])
	case "split":
		x := m.get(a[0])
		dim := len(x.Shape) - 1
		for i := range n.Out {
			m[n.Name] = append(m[n.Name], n.as(i, x, int64(i)*a[1].(int64)*x.Strides[dim]))
		}
		return nil
	case "mm", "bmm":
		return run("matmul", m.get(a[0]), m.get(a[1]))
	case "neg", "exp", "log", "rsqrt", "reciprocal", "clone":
		return run(op, m.get(a[0]))
	case "convert_element_type":
		return run("convert", m.get(a[0]))
	case "add", "sub", "mul", "div", "pow", "eq", "ne":
		x, okX := a[0].(word)
		y, okY := a[1].(word)
		switch {
		case okX && okY:
			return run(op, m.get(x), m.get(y))
		case okX:
			set("scalar", number64(a[1]))
			return run(op, m.get(x))
		}
		set("scalar", number64(a[0]))
		set("reverse", attr.Bool(true))
		return run(op, m.get(y))
	case "where", "fma":
		return run(op, m.get(a[0]), m.get(a[1]), m.get(a[2]))
	case "clamp_max":
		set("max", number64(a[1]))
		return run("clamp", m.get(a[0]))
	case "full":
		set("value", number64(a[1]))
		return run("full")
	case "scalar_tensor":
		set("value", number64(a[0]))
		return run("full")
	case "sum", "mean", "amax":
		if len(a) > 1 {
			set("dims", attr.Ints(intList(a[1])...))
			set("keepdim", attr.Bool(len(a) > 2 && a[2].(bool)))
		}
		return run(op, m.get(a[0]))
	case "cat":
		set("dim", number64(a[1]))
		var xs []Tensor
		for _, x := range a[0].([]any) {
			xs = append(xs, m.get(x))
		}
		return run(op, xs...)
	case "embedding":
		return run(op, m.get(a[0]), m.get(a[1]))
	case "index":
		return run(op, m.get(a[0]), m.get(a[1].([]any)[0]))
	case "index_put":
		set("accumulate", attr.Bool(a[3].(bool)))
		return run(op, m.get(a[0]), m.get(a[2]), m.get(a[1].([]any)[0]))
	case "gather":
		set("dim", number64(a[1]))
		return run(op, m.get(a[0]), m.get(a[2]))
	case "index_add":
		set("dim", number64(a[1]))
		return run(op, m.get(a[0]), m.get(a[2]), m.get(a[3]))
	case "scatter":
		set("dim", number64(a[1]))
		if _, ok := a[3].(word); ok {
			return run(op, m.get(a[0]), m.get(a[2]), m.get(a[3]))
		}
		set("value", number64(a[3]))
		return run(op, m.get(a[0]), m.get(a[2]))
	case "slice_scatter":
		set("dim", number64(a[2]))
		set("start", number64(a[3]))
		set("end", number64(a[4]))
		return run(op, m.get(a[0]), m.get(a[1]))
	case "topk":
		set("k", number64(a[1]))
		set("dim", number64(a[2]))
		return run(op, m.get(a[0]))
	case "_scaled_dot_product_cudnn_attention":
		set("dropout", number64(a[5]))
		set("causal", number64(a[6]))
		return run("attention", m.get(a[0]), m.get(a[1]), m.get(a[2]))
	case "_scaled_dot_product_cudnn_attention_backward":
		set("dropout", number64(a[13]))
		set("causal", number64(a[14]))
		var ins []Tensor
		for _, x := range a[:8] {
			ins = append(ins, m.get(x))
		}
		return run("attention_backward", ins...)
	}
	return fmt.Errorf("no rule for %s", n.Target)
}

// collective runs one node on the ranks of one group.
func collective(n *tracedNode, ranks []machine) error {
	a := parseArgs(n.Args)
	var ins, outs []Tensor
	for _, m := range ranks {
		ins = append(ins, m.get(a[0]))
		m[n.Name] = []Tensor{n.blank(0)}
		outs = append(outs, m[n.Name][0])
	}
	w := int64(len(ranks))
	for r := range ranks {
		r64 := int64(r)
		size := outs[r].NumElems() / w // of one rank's part of a gathered tensor
		switch n.Op {
		case "all_reduce":
			if err := Reduce(n.Reduce, outs[r], ins); err != nil {
				return err
			}
		case "reduce_scatter":
			var parts []Tensor
			for _, x := range ins {
				k := x.Shape[0] / w
				part, err := x.Narrow(0, r64*k, (r64+1)*k)
				if err != nil {
					return err
				}
				parts = append(parts, part)
			}
			if err := Reduce(n.Reduce, outs[r], parts); err != nil {
				return err
			}
		case "all_gather", "all_to_all":
			for src := range ranks {
				from := int64(0)
				if n.Op == "all_to_all" {
					from = r64 * size
				}
				if err := CopyRange(outs[r], int64(src)*size, ins[src], from, size); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("no rule for collective %s", n.Op)
		}
	}
	return nil
}

// run executes the graph on all ranks and returns the outputs of each, nil for None.
func (g *tracedGraph) run(t *testing.T, ranks []machine) [][]*Tensor {
	t.Helper()
	outputs := make([][]*Tensor, len(ranks))
	for _, n := range g.Nodes {
		var err error
		switch n.Kind {
		case "input":
		case "output":
			for r, m := range ranks {
				for _, v := range parseArgs(n.Args)[0].([]any) {
					outputs[r] = append(outputs[r], nil)
					if w, ok := v.(word); ok {
						x := m.get(w)
						outputs[r][len(outputs[r])-1] = &x
					}
				}
			}
		case "collective":
			for _, group := range g.Groups[n.Group] {
				var members []machine
				for _, r := range group {
					members = append(members, ranks[r])
				}
				if err == nil {
					err = collective(n, members)
				}
			}
		default:
			for _, m := range ranks {
				if err == nil {
					err = m.step(n)
				}
			}
		}
		if err != nil {
			t.Fatalf("node %s %s%s: %v", n.Name, n.Target, n.Args, err)
		}
	}
	return outputs
}

// feed gives the inputs of a backward graph: the forward values that `from` names,
// in the declared layout, and ones for the tangents.
func (g *tracedGraph) feed(t *testing.T, forward []machine) []machine {
	t.Helper()
	ranks := make([]machine, len(forward))
	for r := range ranks {
		ranks[r] = machine{}
		for _, n := range g.Nodes {
			if n.Kind != "input" {
				continue
			}
			x := n.blank(0)
			var err error
			if n.Role == "tangent" {
				err = Run("full", attr.Make(attr.Attr{Key: "value", Val: attr.Int(1)}), []Tensor{x}, nil)
			} else {
				err = Copy(x, forward[r][n.From][0])
			}
			if err != nil {
				t.Fatalf("input %s: %v", n.Name, err)
			}
			ranks[r][n.Name] = []Tensor{x}
		}
	}
	return ranks
}

func vectors(t *testing.T, name string, rank int, what string) map[string]Tensor {
	t.Helper()
	f, err := safetensors.ReadFile(fmt.Sprintf("../../testdata/vectors/%s.rank%d.%s.safetensors", name, rank, what))
	if err != nil {
		t.Fatal(err)
	}
	ts := map[string]Tensor{}
	for _, x := range f.Tensors {
		ts[x.Name] = Tensor{DType: x.DType, Shape: x.Shape, Strides: RowMajor(x.Shape), Data: x.Data}
	}
	return ts
}

// relativeError is the 2-norm of got-want over that of want.
func relativeError(t *testing.T, got, want Tensor) float64 {
	t.Helper()
	if !slices.Equal(got.Shape, want.Shape) {
		t.Fatalf("shape %v, want %v", got.Shape, want.Shape)
	}
	g, w := values(t, got), values(t, want)
	var diff, norm float64
	for i := range g {
		diff += (g[i] - w[i]) * (g[i] - w[i])
		norm += w[i] * w[i]
	}
	return math.Sqrt(diff / norm)
}

// values reads a tensor as float64 in row-major order.
func values(t testing.TB, x Tensor) []float64 {
	t.Helper()
	if msg, kind := x.check(); kind != nil {
		t.Fatal(kind, msg)
	}
	v := make([]float64, x.NumElems())
	loadInto(v, &x)
	return v
}

// The agreement asked for is 1e-2 for the loss and 2e-2 for gradients. The kernels
// round where PyTorch's do, so most results are equal to the bit; attention that
// rounds its weights elsewhere is inside those bounds, but not inside these.
const (
	lossTolerance = 1e-4
	gradTolerance = 8e-3
)

func TestTracedSteps(t *testing.T) {
	for _, name := range []string{"tiny_fsdp2", "tiny_tp2", "tiny_tpsp2", "tiny_ddp2"} {
		t.Run(name, func(t *testing.T) {
			fw, bw := readGraph(t, name+".fw"), readGraph(t, name+".bw")
			ranks := make([]machine, fw.World)
			for r := range ranks {
				ranks[r] = machine{}
				for k, x := range vectors(t, name+".fw", r, "in") {
					ranks[r][k] = []Tensor{x}
				}
			}
			losses := fw.run(t, ranks)
			grads := bw.run(t, bw.feed(t, ranks))
			worst := 0.0
			for r := range ranks {
				e := relativeError(t, *losses[r][0], vectors(t, name+".fw", r, "out")["out0"])
				if !(e < lossTolerance) {
					t.Errorf("rank %d: the loss differs by %.3g", r, e)
				}
				want := vectors(t, name+".bw", r, "out")
				found := 0
				for k, g := range grads[r] {
					w, ok := want[fmt.Sprintf("out%d", k)]
					if (g != nil) != ok {
						t.Fatalf("rank %d: output %d is there on one side only", r, k)
					}
					if !ok {
						continue
					}
					found++
					e := relativeError(t, *g, w)
					worst = max(worst, e)
					if !(e < gradTolerance) {
						t.Errorf("rank %d: gradient %d differs by %.3g", r, k, e)
					}
				}
				if found != len(want) {
					t.Errorf("rank %d: %d gradients, want %d", r, found, len(want))
				}
				t.Logf("rank %d: loss error %.2g, worst gradient error so far %.3g", r, e, worst)
			}
		})
	}
}

// TestTracedMoE has no vectors: it runs on random inputs and must stay finite.
func TestTracedMoE(t *testing.T) {
	fw, bw := readGraph(t, "tiny_moe2.fw"), readGraph(t, "tiny_moe2.bw")
	ranks := make([]machine, fw.World)
	for r := range ranks {
		rng := rand.New(rand.NewPCG(1, uint64(r)))
		ranks[r] = machine{}
		for _, n := range fw.Nodes {
			if n.Kind != "input" {
				continue
			}
			x := n.blank(0)
			v := make([]float64, x.NumElems())
			for i := range v {
				v[i] = rng.NormFloat64() * 0.1
				if x.DType == dtype.I64 {
					v[i] = float64(rng.IntN(256))
				}
			}
			storeAll(&x, v)
			ranks[r][n.Name] = []Tensor{x}
		}
	}
	losses := fw.run(t, ranks)
	outs := bw.run(t, bw.feed(t, ranks))
	for r := range ranks {
		for k, x := range append(losses[r][:1:1], outs[r]...) {
			if x == nil {
				continue
			}
			norm := 0.0
			for _, v := range values(t, *x) {
				norm += v * v
			}
			if math.IsNaN(norm) || math.IsInf(norm, 0) {
				t.Errorf("rank %d: output %d is not finite", r, k)
			}
			if norm == 0 {
				t.Errorf("rank %d: output %d is zero", r, k)
			}
		}
	}
}
