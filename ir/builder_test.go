package ir_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// A tensor-parallel layer: the weight is split over four ranks, so each rank has
// a partial sum that all_reduce completes.
func ExampleBuilder() {
	b := ir.NewBuilder(4)
	tp := b.Group("tp", [][]int{{0, 1, 2, 3}})
	f := b.Func("layer")
	x := f.Input("x", ir.Tensor(ir.BF16, 256, 1024))
	w := f.Parameter("w", ir.Tensor(ir.BF16, 1024, 4096))
	h := f.Named("h").Cost(0.02).MatMul(x, w)
	r := f.Named("r").AllReduce(ir.Sum, tp, h)
	y := f.Wait(r)[0]
	f.Return(f.Unary(ir.OpRelu, y))
	m, err := b.Finish()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(m)
	// Output:
	// world 4
	// group @tp = [[0, 1, 2, 3]]
	//
	// func @layer(%x: bf16[256,1024] !{role="data"}, %w: bf16[1024,4096] !{role="parameter"}) -> (bf16[256,4096]) {
	//   %h = matmul %x, %w : bf16[256,4096] ms 0.02
	//   %r = all_reduce.sum %h on @tp : async bf16[256,4096]
	//   %wait_tensor = wait_tensor %r : bf16[256,4096]
	//   %relu = relu %wait_tensor : bf16[256,4096]
	//   return %relu
	// }
}

// The first error is reported, once, and later calls on its nil results are harmless.
func TestBuilderErrors(t *testing.T) {
	b := ir.NewBuilder(2)
	g := b.Group("g", [][]int{{0, 1}})
	f := b.Func("f")
	x := f.Input("x", ir.Tensor(ir.F32, 3, 4))
	bad := f.MatMul(x, x)
	w := f.Wait(f.ReduceScatter(ir.Sum, g, 0, bad, x))
	if len(w) != 2 {
		t.Errorf("%d results of a wait for two", len(w))
	}
	values, _ := f.TopK(f.View(f.Convert(w[1], ir.BF16), ir.Dims(12)), 2, 0)
	pieces := f.Split(values, 0, 1, 1)
	f.Return(bad, f.Wait1(f.AllGather(g, 0, pieces[1])), f.Wait1(nil))
	_, err := b.Finish()
	const want = "error[builder]: @f: matmul: inner dimensions differ: 4 and 3"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	b = ir.NewBuilder(2)
	f1, f2 := b.Func("f1"), b.Func("f2")
	f2.Return(f1.Input("x", ir.Tensor(ir.F32)))
	if _, err := b.Finish(); err == nil || !strings.Contains(err.Error(), "belongs to another function") {
		t.Errorf("got %v", err)
	}
}

func TestBuilderSymbols(t *testing.T) {
	b := ir.NewBuilder(2)
	ep := b.Group("ep", [][]int{{0, 1}})
	s0, s1 := b.Symbol("s0", 4, 0, 16), b.Symbol("s1", 4, 0, 16)
	f := b.Func("dispatch")
	x := f.Input("x", ir.TensorOf(ir.BF16, ir.Shape{s0.Add(ir.D(8)), ir.D(64)}))
	y := f.AllToAllV(ep, x, []ir.Dim{s0, ir.D(8)}, []ir.Dim{s1, ir.D(8)})
	f.Return(f.Wait(y)...)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	const want = `  %all_to_all = all_to_all %x on @ep {in_splits=["s0,8"], out_splits=["s1,8"]} : async bf16[s1+8,64]`
	if !strings.Contains(m.String(), want) {
		t.Errorf("got\n%s", m)
	}
}

// Inputs may be declared where they are needed; they stand in the signature.
func TestBuilderLateInput(t *testing.T) {
	b := ir.NewBuilder(1)
	f := b.Func("f")
	x := f.Input("x", ir.Tensor(ir.F32, 2))
	y := f.Unary(ir.OpNeg, x)
	f.Return(f.Add(y, f.Input("z", ir.Tensor(ir.F32, 2))))
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if want := "func @f(%x: f32[2] !{role=\"data\"}, %z: f32[2] !{role=\"data\"}) -> (f32[2])"; !strings.Contains(m.String(), want) {
		t.Errorf("got\n%s", m)
	}
}

// What a builder says of an operation holds for that operation, and not for what is built
// among its operands.
func TestBuilderOptions(t *testing.T) {
	type mine struct{ id int }
	b := ir.NewBuilder(1)
	f := b.Func("f")
	x := f.Input("x", ir.Tensor(ir.F32, 2, 3))
	obj := &mine{7}
	y := f.Cost(5).Named("mm").Origin(obj).MatMul(x, f.Permute(x, 1, 0))
	f.Return(f.Annotate(ir.A("layer", 3)).Unary(ir.OpNeg, y))
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"%permute = permute %x {dims=[1, 0]} : f32[3,2:1,3]\n", "%mm = matmul %x, %permute : f32[2,2] ms 5\n", "neg %mm : f32[2,2] !{layer=3}\n"} {
		if !strings.Contains(m.String(), want) {
			t.Errorf("no %q in\n%s", want, m)
		}
	}
	if got := m.Func("f").Lookup("mm").Origins(); len(got) != 1 || got[0] != obj {
		t.Errorf("origins %v", got)
	}
}

// Every operation of the table can be built, and what a call's author adds stays.
func TestBuilderOps(t *testing.T) {
	b := ir.NewBuilder(2)
	g := b.Group("g", [][]int{{0, 1}})
	f := b.Func("f")
	x := f.Input("x", ir.Tensor(ir.F32, 4, 6))
	i := f.Input("i", ir.Tensor(ir.I64, 3))
	q := f.Input("q", ir.Tensor(ir.BF16, 1, 2, 8, 16))
	v, k := f.TopK(x, 2, 1)
	out := []*ir.Value{
		f.Full(ir.Tensor(ir.F32, 2), 1.5), f.Constant(ir.Tensor(ir.I16, 3), []byte{1, 0, 2, 0, 255, 255}), f.Iota(ir.Tensor(ir.I64, 4), 1, 2), f.Rand(ir.Tensor(ir.F32, 2), 3), f.Sub(x, x), f.Div(x, x), f.Clamp(x, 0, 1),
		f.Where(f.Scalar(ir.OpGt, x, 0), x, x), f.Fma(x, x, x), f.Argmax(x, 1, false), f.Cumsum(x, 0), f.Softmax(x, 1), f.LogSoftmax(x, 1),
		f.Addmm(f.Full(ir.Tensor(ir.F32, 4, 4), 0), x, f.Permute(x, 1, 0), 1, 2), f.Attention(q, q, q, nil, true, 0.5)[0], f.Clone(f.Permute(x, 1, 0)), f.Cat(0, x, x),
		f.Index(x, []int64{0}, i), f.IndexPut(x, f.Full(ir.Tensor(ir.F32, 3, 6), 1), []int64{0}, true, i), f.IndexAdd(x, i, f.Full(ir.Tensor(ir.F32, 3, 6), 1), 0, 2),
		f.Gather(x, f.Full(ir.Tensor(ir.I64, 1, 6), 0), 0), f.Scatter(x, f.Full(ir.Tensor(ir.I64, 1, 6), 0), f.Full(ir.Tensor(ir.F32, 1, 6), 0), 0),
		f.SliceScatter(x, f.Full(ir.Tensor(ir.F32, 1, 6), 1), 0, 1, 2), f.Embedding(x, i), v, k, f.Expand(f.Unsqueeze(x, 0), ir.Dims(3, 4, 6)),
		f.Split(x, 1, 2, 4)[1], f.Squeeze(f.Unsqueeze(x, 2), 2), f.Select(x, 0, 1), f.AsStrided(x, ir.Tensor(ir.F32, 2), 5),
		f.Wait1(f.CollectivePermute(g, []int64{0, 1}, x)),
	}
	out = append(out, f.CallWith("mine", g, ir.A("class", "compute", "tile", []int{64, 64}, "mode", "fast"), []*ir.Value{x}, ir.Tensor(ir.F32, 4))...)
	f.Return(out...)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if want := `call %x on @g {class="compute", mode="fast", target="mine", tile=[64, 64]} : f32[4]`; !strings.Contains(m.String(), want) {
		t.Errorf("no %q in\n%s", want, m)
	}
	b = ir.NewBuilder(1)
	f = b.Func("f")
	f.Return(f.CallWith("mine", nil, ir.A("odd"), nil, ir.Tensor(ir.F32))...)
	if _, err := b.Finish(); err == nil || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("malformed attributes: %v", err)
	}
}

// Names may hold what is printable; what others call their nodes survives text.
func TestQuotedNames(t *testing.T) {
	b := ir.NewBuilder(2)
	g := b.Group("data/replica-0", [][]int{{0, 1}})
	f := b.Func("main.1/step")
	x := f.Input("params['w']", ir.Tensor(ir.F32, 4))
	c := f.Named("fusion/add-1 # \"a\" */ %b = \\").Unary(ir.OpNeg, x)
	parts := f.Named("s p l i t").Split(c, 0, 1, 3)
	r := f.Named("all-reduce.1").AllReduce(ir.Sum, g, parts[0], parts[1])
	f.Return(append(f.Wait(r), f.Named("é").Unary(ir.OpNeg, parts[1]))...)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ir.Parse("quoted.ir", m.String())
	if err != nil {
		t.Fatal(err)
	}
	if again.String() != m.String() || !strings.Contains(m.String(), `%"all-reduce.1" = all_reduce.sum %"s p l i t"#0, %"s p l i t"#1 on @"data/replica-0"`) || strings.Contains(m.String(), "*/") {
		t.Errorf("printed\n%s\nread and printed\n%s", m, again)
	}
	if _, err := ir.Parse("bad.ir", strings.Replace(m.String(), `"all-reduce.1"`, `"all\nreduce"`, 1)); err == nil {
		t.Error("a name of two lines is accepted")
	}
	var findings *ir.Findings
	_, err = ir.Parse("bad.ir", "world 2\nfunc @f() -> () {\n  return %x\n}\n")
	if !errors.As(err, &findings) || findings.Findings[0].Pos != (ir.Pos{Line: 3, Col: 10}) || findings.Findings[0].Rule != "undefined" {
		t.Errorf("findings: %v", err)
	}
}

// An order-only edge survives text, clones and removals, and the verifier holds it.
func TestOrderOnlyEdges(t *testing.T) {
	b := ir.NewBuilder(1)
	f := b.Func("f")
	x := f.Input("x", ir.Tensor(ir.F32, 4, 4))
	a := f.Named("a b").CallWith("first", nil, nil, []*ir.Value{x}, ir.Tensor(ir.F32, 4, 4))[0]
	c := f.Named("c").Cost(1).After(f.Permute(a, 1, 0), a).Unary(ir.OpNeg, x)
	d := f.Named("d").After(c).Unary(ir.OpNeg, x)
	f.Return(d)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if want := "  %c = neg %x : f32[4,4] ms 1 after %\"a b\"\n  %d = neg %x : f32[4,4] after %c\n"; !strings.Contains(m.String(), want) {
		t.Errorf("no %q in\n%s", want, m)
	}
	again, err := ir.Parse("order.ir", m.String())
	if err != nil || again.String() != m.String() {
		t.Errorf("read: %v\n%s", err, again)
	}
	m = m.Clone()
	fn := m.Func("f")
	nc := fn.Lookup("c")
	if nc.Pure() || fn.Lookup("a b").Pure() || nc.After()[0] != fn.Lookup("a b") {
		t.Errorf("%s follows %v", nc, nc.After())
	}
	fn.MoveBefore(nc, fn.Lookup("a b"))
	if err := m.Verify(); err == nil || !strings.Contains(err.Error(), "[order]") || !strings.Contains(err.Error(), "after which it has to come") {
		t.Errorf("an edge backwards: %v", err)
	}
	fn.Remove(nc)
	if n := fn.Lookup("d"); n.Ordered() || fn.Lookup("a b").Ordered() {
		t.Errorf("edges of a removed node: %s", n)
	}
}
