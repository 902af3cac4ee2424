package suggest

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/standard"
)

var layersFlag = flag.Int64("layers", 1, "of TestLlama8B")

// device is a step of one device.
func device(t testing.TB, l llama.Step) *ir.Func {
	t.Helper()
	l.Data, l.Model = 1, 1
	f, err := l.Device(nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func tiny(layers int64) llama.Step {
	return llama.Step{Layers: layers, Hidden: 8, FFN: 16, Heads: 4, Keys: 4, Head: 4, Vocab: 8, Batch: 4, Seq: 4, DType: ir.F64}
}

// pieces are what ranks have of a tensor that lies so.
func pieces(t testing.TB, m placement.Mesh, whole interp.Tensor, at placement.Placement) []interp.Tensor {
	t.Helper()
	var out []interp.Tensor
	world := int64(1)
	for _, a := range m.Axes {
		world *= a.Size
	}
	for r := range world {
		place, rest := map[string]int64{}, r // look-up only
		for _, a := range slices.Backward(m.Axes) {
			place[a.Name], rest = rest%a.Size, rest/a.Size
		}
		shape, first := slices.Clone(whole.Shape), make([]int64, len(whole.Shape))
		for d := range at {
			for _, name := range at[d] {
				axis, part, _ := strings.Cut(name, ":")
				i := slices.IndexFunc(m.Axes, func(a placement.Axis) bool { return a.Name == axis })
				pre, size := int64(1), m.Axes[i].Size
				if part != "" {
					if _, err := fmt.Sscanf(part, "(%d)%d", &pre, &size); err != nil {
						t.Fatal(err)
					}
				}
				shape[d] /= size
				first[d] += place[axis] / (m.Axes[i].Size / pre / size) % size * shape[d]
			}
		}
		p, err := interp.NewTensor(whole.DType, shape...)
		if err != nil {
			t.Fatal(err)
		}
		size := int64(whole.DType.Size())
		for i := range p.NumElems() {
			from, stride, rest := int64(0), int64(1), i
			for d := len(shape) - 1; d >= 0; d-- {
				from += (first[d] + rest%shape[d]) * stride
				stride, rest = stride*whole.Shape[d], rest/shape[d]
			}
			copy(p.Data[i*size:(i+1)*size], whole.Data[from*size:])
		}
		out = append(out, p)
	}
	return out
}

// computes fails if the ranks of an annotated program do not give what one device does.
func computes(t *testing.T, f *ir.Func, m *ir.Module) {
	t.Helper()
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(context.Background(), f, in, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	global := m.Clone().Func(f.Name)
	if err := compile.PartitionProved(m, compile.PartitionOptions{}); err != nil {
		t.Fatal(err)
	}
	ranks := m.Func(f.Name)
	o, err := mesh.Annotated(global, ranks)
	if err != nil {
		t.Fatal(err)
	}
	local := make([][]interp.Tensor, m.World)
	for i, x := range in[0] {
		for r, p := range pieces(t, o.Mesh, x, o.Inputs[i]) {
			if s, _ := ranks.Inputs()[i].Result(0).Type().Shape().Static(); !slices.Equal(s, p.Shape) {
				t.Fatalf("input %d: %v, not as annotated %v", i, s, p.Shape)
			}
			local[r] = append(local[r], p)
		}
	}
	got, err := interp.Run(context.Background(), ranks, local, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range want[0] {
		for r, p := range pieces(t, o.Mesh, x, o.Results[i]) {
			if d, err := interp.Compare(got[r][i], p); err != nil || !d.Exact && !(d.Rel < 1e-9) {
				t.Errorf("result %d of rank %d: %v %v", i, r, d, err)
			}
		}
	}
}

// TestArrangements partitions every combination of roles of a small step, proves it, and holds its
// numbers against those of one device. What search finds is among these.
func TestArrangements(t *testing.T) {
	f := device(t, tiny(1))
	p, err := newProgram(f, []ir.Axis{{Name: "data", Size: 2}, {Name: "model", Size: 2}})
	if err != nil {
		t.Fatal(err)
	}
	all := p.roles(splits(p.mesh)[0])
	if len(all) != 25 {
		t.Errorf("%d combinations of roles, want those of five each", len(all))
	}
	one, err := newProgram(f, []ir.Axis{{Name: "x", Size: 4}})
	if err != nil {
		t.Fatal(err)
	}
	parts := one.roles(splits(one.mesh)[1])
	if len(parts) != 10 {
		t.Errorf("%d combinations of roles of two parts, want those of five in order", len(parts))
	}
	for i, a := range slices.Concat(all, parts) {
		p := p
		if i >= len(all) {
			p = one
		}
		t.Run((&Result{}).String(a), func(t *testing.T) {
			m, err := p.annotated(a)
			if err != nil {
				t.Fatal(err)
			}
			computes(t, f, m)
		})
	}
}

// TestExperts: weights of experts are contiguous, and ranks have some of them each.
func TestExperts(t *testing.T) {
	const moe = `world 1

func @moe(%x: f64[8,4] !{role="data"}, %gate: f64[4,2] !{role="parameter"}, %up: f64[2,4,6] !{role="parameter"}, %down: f64[2,6,4] !{role="parameter"}) -> (f64[8,4]) {
  %l = matmul %x, %gate : f64[8,2]
  %p = softmax %l {dim=1} : f64[8,2]
  %pt = permute %p {dims=[1, 0]} : f64[2,8:1,2]
  %pv = view %pt : f64[2,8,1:1,2,1]
  %xe = view %x : f64[1,8,4]
  %xx = expand %xe : f64[2,8,4:0,4,1]
  %h = matmul %xx, %up : f64[2,8,6]
  %a = silu %h : f64[2,8,6]
  %o = matmul %a, %down : f64[2,8,4]
  %w = mul %o, %pv : f64[2,8,4]
  %y = sum %w {dims=[0]} : f64[8,4]
  return %y
}
`
	m, err := ir.Parse("moe.ir", moe)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	p, err := newProgram(f, []ir.Axis{{Name: "ep", Size: 2}})
	if err != nil {
		t.Fatal(err)
	}
	whole := splits(p.mesh)[0]
	all := p.roles(whole)
	if !slices.ContainsFunc(all, func(a *Strategy) bool { return a.Roles[0] == Expert }) {
		t.Errorf("roles of %d strategies lack experts", len(all))
	}
	a := &Strategy{Axes: whole.of, Roles: []Role{Expert}, split: whole}
	says, err := (&Result{Mesh: p.mesh, program: p}).Annotations(a)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(says, "; "), "%x: [{'ep'}, {}]; %gate: [{'ep'}p3, {}]; %up: [{'ep'}p1, {}, {}]; %down: [{'ep'}p1, {}, {}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	annotated, err := p.annotated(a)
	if err != nil {
		t.Fatal(err)
	}
	computes(t, f, annotated)
}

// TestMegatron: tensor parallelism is Megatron's, by columns and then by rows, and what stores
// parameters takes the other dimension.
func TestMegatron(t *testing.T) {
	p, err := newProgram(device(t, tiny(1)), []ir.Axis{{Name: "data", Size: 2}, {Name: "model", Size: 2}})
	if err != nil {
		t.Fatal(err)
	}
	r := &Result{Mesh: p.mesh, program: p}
	whole := splits(p.mesh)[0]
	says, err := r.Annotations(&Strategy{Axes: whole.of, Roles: []Role{FSDP, TensorSequence}, split: whole})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(says, "\n")
	for _, want := range []string{
		`%ids: [{'data'}, {'model'}p2]`,
		`%q0: [{'data'}p3, {'model'}p1]`, `%k0: [{'data'}p3, {'model'}p1]`, `%o0: [{'model'}p1, {'data'}p3]`,
		`%up0: [{'data'}p3, {'model'}p1]`, `%down0: [{'model'}p1, {'data'}p3]`, `%first0: [{}]`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("want %s in\n%s", want, text)
		}
	}
}

// TestSplit: an axis of eight is split where that takes less memory than any role of the whole, or less
// time, and the annotations name its parts.
func TestSplit(t *testing.T) {
	l := tiny(1)
	l.Hidden, l.FFN, l.Head, l.Seq, l.Heads, l.Keys = 64, 256, 16, 64, 4, 4
	r, err := Search(context.Background(), device(t, l), []ir.Axis{{Name: "x", Size: 8}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Frontier, func(a Strategy) bool { return len(a.Axes) == 2 })
	if i < 0 {
		t.Fatal("no strategy of parts is on the frontier")
	}
	a := &r.Frontier[i]
	for k, ref := range a.Axes {
		if want := strings.ReplaceAll(ref.String(), `"`, "") + "=" + a.Roles[k].String(); !strings.Contains(r.String(a), want) {
			t.Errorf("%s, want %s in it", r.String(a), want)
		}
	}
	m, err := r.Annotated(a)
	if err != nil {
		t.Fatal(err)
	}
	if text := m.String(); !strings.Contains(text, "mesh<['x'=8]>") || !strings.Contains(text, "'x':(") {
		t.Errorf("no part of the axis is named in\n%s", text)
	}
	computes(t, r.program.f, m)
}

// TestLayersOnce: programs with fewer layers lead on to all operations and to the figures of the whole
// one.
func TestLayersOnce(t *testing.T) {
	l := llama8B
	l.Layers = 8
	p, err := newProgram(device(t, l), []ir.Axis{{Name: "data", Size: 8}})
	if err != nil {
		t.Fatal(err)
	}
	if p.layers.count != 8 || p.layers.period != 9 {
		t.Fatalf("%d layers of %d parameters", p.layers.count, p.layers.period)
	}
	s := &search{program: p, ctx: context.Background(), costs: compile.Target{}.Model(), short: p.shortened()}
	if s.quick, err = standard.Table().Parse(quick); err != nil || s.short == nil {
		t.Fatal(err, s.short)
	}
	whole := splits(p.mesh)[0]
	a := &Strategy{Axes: whole.of, Roles: []Role{FSDP}, split: whole}
	got, err := s.estimate(a)
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.figures(p, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.Time/want.Time-1) > 0.02 || math.Abs(float64(got.Peak)/float64(want.Peak)-1) > 0.02 {
		t.Errorf("estimated %+v, is %+v", got, want)
	}
}

// TestNotOnce: what repeats in inputs and not in operations is not believed.
func TestNotOnce(t *testing.T) {
	b := ir.NewBuilder(1)
	f := b.Func("f")
	x := f.Input("x", ir.Tensor(ir.F32, 4, 4))
	for i := range 8 {
		w := f.Parameter(fmt.Sprintf("w%d", i), ir.Tensor(ir.F32, 4, 4))
		for range i + 1 {
			x = f.MatMul(x, w)
		}
	}
	f.Return(x)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProgram(m.Func("f"), []ir.Axis{{Name: "x", Size: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if p.layers.count != 8 || p.shortened() != nil {
		t.Errorf("%d layers, shortened %v", p.layers.count, p.shortened())
	}
}

// TestRefused: what cannot be searched is said.
func TestRefused(t *testing.T) {
	parse := func(text string) *ir.Func {
		m, err := ir.Parse("f.ir", text)
		if err != nil {
			t.Fatal(err)
		}
		return m.Funcs()[0]
	}
	const plain = "world 1\n\nfunc @f(%x: f32[4,8], %w: f32[8,8]) -> (f32[4,8]) {\n  %y = matmul %x, %w : f32[4,8]\n  return %y\n}\n"
	for _, c := range []struct {
		text, want string
		axes       []ir.Axis
	}{
		{plain, "axis", []ir.Axis{{Name: "x", Size: 0}}},
		{plain, "no role of each axis suits", []ir.Axis{{Name: "x", Size: 3}}},
		{"world 2\ngroup @g = [[0, 1]]\n\nfunc @f(%x: f32[4]) -> (f32[4]) {\n  %y = all_reduce.sum %x on @g : async f32[4]\n  %z = wait_tensor %y : f32[4]\n  return %z\n}\n", "%y is among ranks", []ir.Axis{{Name: "x", Size: 2}}},
	} {
		if _, err := Search(context.Background(), parse(c.text), c.axes, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.axes, err, c.want)
		}
	}
}

// asGood fails if no strategy of the frontier is as fast and as small as the step by hand, but for
// the tokens of all ranks that lie beside the rest.
func asGood(t testing.TB, l llama.Step, axes ...ir.Axis) {
	t.Helper()
	r, err := Search(context.Background(), device(t, l), axes, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ranks, err := l.Ranks()
	if err != nil {
		t.Fatal(err)
	}
	c, err := compile.Compile(context.Background(), ranks.Module(), compile.Target{}, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, hand, err := compile.Simulate(c.Funcs[0].Func, c.Costs())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("by hand %.2f ms, %d bytes; %d strategies tried", hand.Makespan, hand.Peak, r.Tried)
	good := false
	for i := range r.Frontier {
		a := &r.Frontier[i]
		t.Logf("%s: %.2f ms, %d bytes", r.String(a), a.Time, a.Peak)
		good = good || a.Time <= hand.Makespan && a.Peak <= hand.Peak+8*l.Batch*l.Seq*2
	}
	if !good {
		t.Error("nothing is as good as the step by hand")
	}
}

// The arena's steps: FSDP over 8, and FSDP over 8 with tensor and sequence parallelism over 8.
var (
	llama8B  = llama.Step{Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, Keys: 8, Head: 128, Vocab: 128256, Batch: 8, Seq: 4096, Data: 8, Model: 1, DType: ir.BF16}
	llama70B = llama.Step{Layers: 80, Hidden: 8192, FFN: 28672, Heads: 64, Keys: 8, Head: 128, Vocab: 128256, Batch: 8, Seq: 4096, Data: 8, Model: 8, DType: ir.BF16}
)

// TestLlama8B holds what is found for one layer of the step against the strategy by hand.
//
//	go test ./compile/suggest -run Llama8B -layers 32 -v
func TestLlama8B(t *testing.T) {
	l := llama8B
	l.Layers = *layersFlag
	asGood(t, l, ir.Axis{Name: "data", Size: 8})
}

// BenchmarkSearch searches at size; see BENCHMARKS.md.
func BenchmarkSearch(b *testing.B) {
	b.Run("8B", func(b *testing.B) {
		for b.Loop() {
			asGood(b, llama8B, ir.Axis{Name: "data", Size: 8})
		}
	})
	b.Run("70B", func(b *testing.B) {
		for b.Loop() {
			asGood(b, llama70B, ir.Axis{Name: "data", Size: 8}, ir.Axis{Name: "model", Size: 8})
		}
	})
}
