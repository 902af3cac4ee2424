package ir_test

import (
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
	if f.Wait(f.ReduceScatter(ir.Sum, g, 0, bad)) != nil || f.View(f.Convert(bad, ir.BF16), ir.Dims(12)) != nil {
		t.Error("an operation on a failed one has a result")
	}
	f.Return(bad)
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
	s0, s1 := b.Symbol("s0", 4, 16), b.Symbol("s1", 4, 16)
	f := b.Func("dispatch")
	x := f.Input("x", ir.TensorOf(ir.BF16, ir.Shape{s0.Add(ir.D(8)), ir.D(64)}))
	y := f.AllToAllUneven(ep, x, []ir.Dim{s0, ir.D(8)}, []ir.Dim{s1, ir.D(8)})
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
