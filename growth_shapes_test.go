//go:build unix

package concert

import (
	"fmt"
	"strings"
)

// list joins item(0) to item(n-1) by commas.
func list(n int, item func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = item(i)
	}
	return strings.Join(parts, ", ")
}

var growthShapes = []growthShape{
	{"chain", 50_000, func(w *growthWriter, n int) { // pointwise nodes, each reading the one before
		w.param("x0", "f32[1024]")
		for i := range n {
			w.line("%%x%d = neg %%x%d : f32[1024] ms 0.001", i+1, i)
		}
		w.result(fmt.Sprintf("x%d", n), "f32[1024]")
	}},
	{"fan", 50_000, func(w *growthWriter, n int) { // many readers of one tensor, all results
		w.param("x", "f32[1024]")
		for i := range n {
			w.line("%%y%d = neg %%x : f32[1024] ms 0.001", i)
			w.result(fmt.Sprintf("y%d", i), "f32[1024]")
		}
	}},
	{"sums", 50_000, func(w *growthWriter, n int) { // forward values that a backward half reads in reverse
		w.param("x", "f32[1024]")
		w.line("%%f0 = sin %%x : f32[1024] ms 0.001")
		for i := 1; i < n/2; i++ {
			w.line("%%f%d = sin %%f%d : f32[1024] ms 0.001", i, i-1)
		}
		prev := fmt.Sprintf("f%d", n/2-1)
		for i := n/2 - 1; i >= 0; i-- {
			w.line("%%b%d = mul %%%s, %%f%d : f32[1024] ms 0.001", i, prev, i)
			prev = fmt.Sprintf("b%d", i)
		}
		w.result(prev, "f32[1024]")
	}},
	{"collectives", 80_000, func(w *growthWriter, n int) { // all independent, started and awaited at once
		w.param("x", "f32[1024]")
		for i := range n / 2 {
			w.line("%%s%d = all_reduce.sum %%x on @g : async f32[1024] ms 0.01", i)
			w.line("%%w%d = wait_tensor %%s%d : f32[1024]", i, i)
			w.result(fmt.Sprintf("w%d", i), "f32[1024]")
		}
	}},
	{"started", 80_000, func(w *growthWriter, n int) { // all in flight at once, of many sizes
		for i := range n / 2 {
			w.param(fmt.Sprintf("x%d", i), fmt.Sprintf("f32[%d]", 64+i%97*32))
		}
		for i := range n / 2 {
			w.line("%%s%d = all_reduce.sum %%x%d on @g : async f32[%d] ms 0.01", i, i, 64+i%97*32)
		}
		for i := range n / 2 {
			w.line("%%w%d = wait_tensor %%s%d : f32[%d]", i, i, 64+i%97*32)
			w.result(fmt.Sprintf("w%d", i), fmt.Sprintf("f32[%d]", 64+i%97*32))
		}
	}},
	{"reduced-chain", 50_000, func(w *growthWriter, n int) { // each collective reads the one before
		w.param("w0", "f32[1024]")
		for i := range n / 3 {
			w.line("%%s%d = all_reduce.sum %%w%d on @g : async f32[1024] ms 0.01", i, i)
			w.line("%%v%d = wait_tensor %%s%d : f32[1024]", i, i)
			w.line("%%w%d = sin %%v%d : f32[1024] ms 0.01", i+1, i)
		}
		w.result(fmt.Sprintf("w%d", n/3), "f32[1024]")
	}},
	{"reduced-sums", 50_000, func(w *growthWriter, n int) { // a sum of sums of ranks
		w.param("x", "f32[1024]")
		w.line("%%t0 = neg %%x : f32[1024] ms 0.001")
		for i := range n / 4 {
			w.line("%%y%d = mul %%x {scalar=%d.0} : f32[1024] ms 0.001", i, i)
			w.line("%%s%d = all_reduce.sum %%y%d on @g : async f32[1024] ms 0.01", i, i)
			w.line("%%w%d = wait_tensor %%s%d : f32[1024]", i, i)
			w.line("%%t%d = add %%t%d, %%w%d : f32[1024] ms 0.001", i+1, i, i)
		}
		w.result(fmt.Sprintf("t%d", n/4), "f32[1024]")
	}},
	{"layers", 50_000, func(w *growthWriter, n int) { // gathered weights, reduced activations
		w.param("x0", "f32[64,64]")
		for i := range n / 8 {
			w.param(fmt.Sprintf("p%d", i), "f32[16,64]")
			w.line("%%g%d = all_gather %%p%d on @g : async f32[64,64] ms 0.01", i, i)
			w.line("%%v%d = wait_tensor %%g%d : f32[64,64]", i, i)
			w.line("%%m%d = matmul %%x%d, %%v%d : f32[64,64] ms 0.02", i, i, i)
			w.line("%%s%d = all_reduce.sum %%m%d on @h : async f32[64,64] ms 0.005", i, i)
			w.line("%%u%d = wait_tensor %%s%d : f32[64,64]", i, i)
			w.line("%%r%d = relu %%u%d : f32[64,64] ms 0.001", i, i)
			w.line("%%x%d = add %%x%d, %%r%d : f32[64,64] ms 0.001", i+1, i, i)
		}
		w.result(fmt.Sprintf("x%d", n/8), "f32[64,64]")
	}},
	{"training", 50_000, func(w *growthWriter, n int) { // a forward half and a backward half that reads it
		w.param("x0", "f32[64,64]")
		w.param("p", "f32[64,64]")
		for i := range n / 8 {
			w.line("%%m%d = matmul %%x%d, %%p : f32[64,64] ms 0.02", i, i)
			w.line("%%s%d = all_reduce.sum %%m%d on @h : async f32[64,64] ms 0.005", i, i)
			w.line("%%u%d = wait_tensor %%s%d : f32[64,64]", i, i)
			w.line("%%x%d = relu %%u%d : f32[64,64] ms 0.001", i+1, i)
		}
		w.line("%%d%d = neg %%x%d : f32[64,64] ms 0.001", n/8, n/8)
		for i := n/8 - 1; i >= 0; i-- {
			w.line("%%e%d = mul %%d%d, %%x%d : f32[64,64] ms 0.001", i, i+1, i+1)
			w.line("%%d%d = matmul %%e%d, %%p : f32[64,64] ms 0.02", i, i)
			w.line("%%t%d = all_reduce.sum %%e%d on @g : async f32[64,64] ms 0.005", i, i)
			w.line("%%v%d = wait_tensor %%t%d : f32[64,64]", i, i)
			w.result(fmt.Sprintf("v%d", i), "f32[64,64]")
		}
	}},
	{"recurrent", 60_000, func(w *growthWriter, n int) { // an LSTM cell unrolled, and its gradients in reverse
		const h, g, all = "bf16[4,64]", "bf16[4,256]", "bf16[4,256]"
		steps := n / 46
		w.param("x", fmt.Sprintf("bf16[4,%d,64]", steps))
		w.param("h0", h)
		w.param("c0", h)
		w.param("p", "bf16[16,256]")
		w.param("q", "bf16[16,256]")
		for _, p := range []string{"p", "q"} {
			w.line("%%%ss = all_gather %%%s on @g : async bf16[64,256] ms 0.01", p, p)
			w.line("%%%sw = wait_tensor %%%ss : bf16[64,256]", p, p)
		}
		for i := range steps {
			w.line("%%e%d = select %%x {dim=1, index=%d} : bf16[4,64:%d,1]", i, i, steps*64)
			w.line("%%a%d = matmul %%e%d, %%pw : %s ms 0.004", i, i, g)
			w.line("%%b%d = matmul %%h%d, %%qw : %s ms 0.004", i, i, g)
			w.line("%%g%d = add %%a%d, %%b%d : %s ms 0.002", i, i, i, all)
			w.line("%%s%d:4 = split %%g%d {dim=1, sizes=[64, 64, 64, 64]} : %s", i, i, list(4, func(int) string { return "bf16[4,64:256,1]" }))
			for k, op := range []string{"sigmoid", "sigmoid", "sigmoid", "tanh"} {
				w.line("%%s%d_%d = %s %%s%d#%d : %s ms 0.002", i, k, op, i, k, h)
			}
			w.line("%%k%d = mul %%s%d_0, %%c%d : %s ms 0.002", i, i, i, h)
			w.line("%%j%d = mul %%s%d_1, %%s%d_3 : %s ms 0.002", i, i, i, h)
			w.line("%%c%d = add %%k%d, %%j%d : %s ms 0.002", i+1, i, i, h)
			w.line("%%t%d = tanh %%c%d : %s ms 0.002", i, i+1, h)
			w.line("%%h%d = mul %%s%d_2, %%t%d : %s ms 0.002", i+1, i, i, h)
		}
		w.line("%%d%d = neg %%h%d : %s ms 0.002", steps, steps, h)
		w.line("%%f%d = neg %%c%d : %s ms 0.002", steps, steps, h)
		w.line("%%pT = permute %%pw {dims=[1, 0]} : bf16[256,64:1,256]")
		w.line("%%qT = permute %%qw {dims=[1, 0]} : bf16[256,64:1,256]")
		for i := steps - 1; i >= 0; i-- {
			mul := func(out, a, b string) { w.line("%%%s%d = mul %%%s, %%%s : %s ms 0.002", out, i, a, b, h) }
			of := func(name string, i int) string { return fmt.Sprintf("%s%d", name, i) }
			slope := func(out, of string) { // y * (1 - y), as sigmoids have it
				w.line("%%%s%d_r = sub %%%s {reverse=true, scalar=1.0} : %s ms 0.002", out, i, of, h)
				mul(out, of, fmt.Sprintf("%s%d_r", out, i))
			}
			mul("do", of("d", i+1), of("t", i))
			mul("dt", of("d", i+1), of("s", i)+"_2")
			slope("st", of("t", i))
			mul("du", of("dt", i), of("st", i))
			w.line("%%dc%d = add %%f%d, %%du%d : %s ms 0.002", i, i+1, i, h)
			mul("f", of("dc", i), of("s", i)+"_0")
			mul("dg0_", of("dc", i), of("c", i))
			mul("dg1_", of("dc", i), of("s", i)+"_3")
			mul("dg3_", of("dc", i), of("s", i)+"_1")
			for k, up := range []string{"dg0_", "dg1_", "do", "dg3_"} {
				slope(fmt.Sprintf("sl%d_", k), fmt.Sprintf("s%d_%d", i, k))
				mul(fmt.Sprintf("dy%d_", k), of(up, i), fmt.Sprintf("sl%d_%d", k, i))
			}
			w.line("%%dy%d = cat %s {dim=1} : %s ms 0.002", i, list(4, func(k int) string { return fmt.Sprintf("%%dy%d_%d", k, i) }), g)
			w.line("%%d%d = matmul %%dy%d, %%qT : %s ms 0.004", i, i, h)
			w.line("%%hT%d = permute %%h%d {dims=[1, 0]} : bf16[64,4:1,64]", i, i)
			w.line("%%dq%d = matmul %%hT%d, %%dy%d : bf16[64,256] ms 0.004", i, i, i)
			if i < steps-1 {
				w.line("%%gq%d = add %%%s, %%dq%d : bf16[64,256] ms 0.004", i, gradient(i+1, steps), i)
			}
		}
		w.line("%%r = reduce_scatter.sum %%%s on @g : async bf16[16,256] ms 0.01", gradient(0, steps))
		w.line("%%rw = wait_tensor %%r : bf16[16,256]")
		w.result("rw", "bf16[16,256]")
		w.result("d0", h)
	}},
	{"groups", 4_000, func(w *growthWriter, n int) { // a group for every collective
		w.param("x", "f32[1024]")
		for i := range n {
			w.top("group @g%d = [[0, 1, 2, 3]]", i)
			w.line("%%s%d = all_reduce.sum %%x on @g%d : async f32[1024] ms 0.01", i, i)
			w.line("%%w%d = wait_tensor %%s%d : f32[1024]", i, i)
			w.result(fmt.Sprintf("w%d", i), "f32[1024]")
		}
	}},
	{"symbols", 20_000, func(w *growthWriter, n int) { // one dimension is the sum of all symbols
		for i := range n {
			w.top("sym s%d hint 4 max 8", i)
			w.param(fmt.Sprintf("x%d", i), fmt.Sprintf("f32[s%d]", i))
		}
		total := strings.ReplaceAll(list(n, func(i int) string { return fmt.Sprintf("s%d", i) }), ", ", "+")
		w.line("%%c = cat %s {dim=0} : f32[%s] ms 0.01", list(n, func(i int) string { return fmt.Sprintf("%%x%d", i) }), total)
		w.line("%%y = neg %%c : f32[%s] ms 0.01", total)
		w.result("y", "f32["+total+"]")
	}},
	{"slices", 50_000, func(w *growthWriter, n int) { // many views of one tensor, each read
		w.param("x", fmt.Sprintf("f32[%d,128]", n/2))
		w.line("%%z = neg %%x : f32[%d,128]", n/2)
		for i := range n / 2 {
			w.line("%%v%d = slice %%z {dim=0, start=%d, end=%d} : f32[1,128]", i, i, i+1)
			w.line("%%y%d = neg %%v%d : f32[1,128] ms 0.001", i, i)
			w.result(fmt.Sprintf("y%d", i), "f32[1,128]")
		}
	}},
	{"views", 50_000, func(w *growthWriter, n int) { // a view of a view of a view
		w.param("x", "f32[32,64]")
		w.line("%%v0 = neg %%x : f32[32,64] ms 0.001")
		for i := range n {
			shape := "[2048]"
			if i%2 == 1 {
				shape = "[32,64]"
			}
			w.line("%%v%d = view %%v%d : f32%s", i+1, i, shape)
		}
		w.line("%%y = neg %%v%d : f32[32,64] ms 0.001", n)
		w.result("y", "f32[32,64]")
	}},
	{"operands", 16_000, func(w *growthWriter, n int) { // one collective of many operands
		for i := range n {
			w.param(fmt.Sprintf("x%d", i), "f32[128]")
			w.line("%%y%d = neg %%x%d : f32[128] ms 0.001", i, i)
			w.result(fmt.Sprintf("z%d", i), "f32[128]")
		}
		w.line("%%s = all_reduce.sum %s on @g : async(%s) ms 1", list(n, func(i int) string { return fmt.Sprintf("%%y%d", i) }), list(n, func(int) string { return "f32[128]" }))
		w.line("%%w:%d = wait_tensor %%s : %s", n, list(n, func(int) string { return "f32[128]" }))
		for i := range n {
			w.line("%%z%d = neg %%w#%d : f32[128] ms 0.001", i, i)
		}
	}},
	{"split", 16_000, func(w *growthWriter, n int) { // one node with many results, put together again
		w.param("x", fmt.Sprintf("f32[%d,128]", n))
		w.line("%%a = neg %%x : f32[%d,128]", n)
		w.line("%%p:%d = split %%a {dim=0, sizes=[%s]} : %s", n, list(n, func(int) string { return "1" }), list(n, func(int) string { return "f32[1,128]" }))
		w.line("%%c = cat %s {dim=0} : f32[%d,128] ms 0.01", list(n, func(i int) string { return fmt.Sprintf("%%p#%d", i) }), n)
		w.result("c", fmt.Sprintf("f32[%d,128]", n))
	}},
	{"writes", 50_000, func(w *growthWriter, n int) { // calls that write one storage, each read behind
		w.param("x", "f32[1024]")
		w.line("%%z = neg %%x : f32[1024] ms 0.001")
		for i := range n / 2 {
			w.line("call %%z {target=\"inc\", effects=[\"writes\"]}")
			w.line("%%y%d = neg %%z : f32[1024] ms 0.001", i)
			w.result(fmt.Sprintf("y%d", i), "f32[1024]")
		}
	}},
}

// gradient names the sum of a weight's gradients of step i and those behind it.
func gradient(i, steps int) string {
	if i == steps-1 {
		return fmt.Sprintf("dq%d", i)
	}
	return fmt.Sprintf("gq%d", i)
}
