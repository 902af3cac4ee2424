package concert

import (
	"context"
	"fmt"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
)

// A layer whose weight is split over four ranks, from the builder to a program.
// README.md shows the same lines; a test compares them.
func Example() {
	ctx := context.Background()
	layer := func() error {
		b := ir.NewBuilder(4)
		tp := b.Group("tp", [][]int{{0, 1, 2, 3}})
		f := b.Func("layer")
		x := f.Input("x", ir.Tensor(ir.BF16, 256, 1024))
		w := f.Parameter("w", ir.Tensor(ir.BF16, 1024, 4096))
		y := f.Wait(f.AllReduce(ir.Sum, tp, f.MatMul(x, w)))
		f.Return(y...)
		m, err := b.Finish() // the first error made on the way, with what to do about it
		if err != nil {
			return err
		}
		r, err := compile.Compile(ctx, m, compile.Target{}, compile.Options{}) // r.Report: what every pass did
		if err != nil {
			return err
		}
		prog, err := r.Func("layer").Program()
		if err != nil {
			return err
		}
		fmt.Printf("%d passes, %d instructions on %d streams\n", len(r.Report.Steps), len(prog.Instrs), len(prog.Streams))
		return nil
	}
	if err := layer(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 9 passes, 6 instructions on 2 streams
}
