package passes_test

import (
	"fmt"
	"os"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// A tensor-parallel layer in two chunks: while the first chunk's all_reduce
// travels, the second chunk computes.
func Example() {
	m, err := ir.Parse("mlp.ir", `world 8
group @tp = [[0, 1, 2, 3, 4, 5, 6, 7]]

func @mlp(%x0: bf16[256,512], %x1: bf16[256,512], %w: bf16[512,512]) -> (bf16[256,512], bf16[256,512]) {
  %p0 = matmul %x0, %w : bf16[256,512] ms 2
  %r0 = all_reduce.sum %p0 on @tp : async bf16[256,512] ms 1
  %y0 = wait_tensor %r0 : bf16[256,512]
  %p1 = matmul %x1, %w : bf16[256,512] ms 2
  %r1 = all_reduce.sum %p1 on @tp : async bf16[256,512] ms 1
  %y1 = wait_tensor %r1 : bf16[256,512]
  return %y0, %y1
}
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := standard.Table().Parse("canonicalize,sink-waits")
	if err != nil {
		fmt.Println(err)
		return
	}
	var g passes.Manager
	report, err := g.Run(m, p)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range report.Steps[1].Records {
		fmt.Println(r)
	}
	m.WriteTo(os.Stdout)
	// Output:
	// y0 moved 1, exposed 1.0000 to 0.0000 ms, limit: data dependence (return)
	// y1 moved 0, exposed 1.0000 to 1.0000 ms, limit: data dependence (return)
	// world 8
	// group @tp = [[0, 1, 2, 3, 4, 5, 6, 7]]
	//
	// func @mlp(%x0: bf16[256,512], %x1: bf16[256,512], %w: bf16[512,512]) -> (bf16[256,512], bf16[256,512]) {
	//   %p0 = matmul %x0, %w : bf16[256,512] ms 2
	//   %r0 = all_reduce.sum %p0 on @tp : async bf16[256,512] ms 1
	//   %p1 = matmul %x1, %w : bf16[256,512] ms 2
	//   %r1 = all_reduce.sum %p1 on @tp : async bf16[256,512] ms 1
	//   %y0 = wait_tensor %r0 : bf16[256,512]
	//   %y1 = wait_tensor %r1 : bf16[256,512]
	//   return %y0, %y1
	// }
}
