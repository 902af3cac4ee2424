package interp_test

import (
	"context"
	"fmt"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// Two ranks hold half of a matrix product's inner dimension each.
func ExampleRun() {
	m, err := ir.Parse("tp.ir", `world 2
group @tp = [[0, 1]]

func @linear(%x: f32[1,2], %w: f32[2,2]) -> (f32[1,2]) {
  %part = matmul %x, %w : f32[1,2]
  %sum = all_reduce.sum %part on @tp : async f32[1,2]
  %y = wait_tensor %sum : f32[1,2]
  return %y
}
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	var inputs [][]interp.Tensor
	for rank := range 2 {
		x, _ := interp.FromSlice([]float32{1, float32(rank)}, 1, 2)
		w, _ := interp.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
		inputs = append(inputs, []interp.Tensor{x, w})
	}
	out, err := interp.Run(context.Background(), m.Func("linear"), inputs, interp.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out[0][0])
	fmt.Println(out[1][0])
	// Output:
	// f32[1,2] [5 8]
	// f32[1,2] [5 8]
}

// Three steps of a parameter that is updated in place: what a step returns for a donated
// input is the next one's input.
func ExampleNext() {
	m, err := ir.Parse("sgd.ir", `world 1

func @sgd(%w: f32[2] {donate=0} !{role="parameter"}, %g: f32[2]) -> (f32[2]) {
  %step = mul %g {scalar=0.5} : f32[2]
  %new = sub %w, %step : f32[2]
  return %new
}
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	f := m.Func("sgd")
	w, _ := interp.FromSlice([]float32{1, 2}, 2)
	g, _ := interp.FromSlice([]float32{1, 1}, 2)
	in := [][]interp.Tensor{{w, g}}
	for range 3 {
		out, err := interp.Run(context.Background(), f, in, interp.Options{})
		if err == nil {
			in, err = interp.Next(f, in, out)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(in[0][0])
	// Output: f32[2] [-0.5 0.5]
}
