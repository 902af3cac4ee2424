// Package attention computes scaled dot matmul attention and its gradients with
// kernels of this project, compiled when a call is planned: see Library. ProblemOf
// reads and checks a call for other libraries too.
//
// Four kinds of kernels share the work. The short ones (short.cu) do few queries with
// the least latency. The tiled ones (forward.cu, backward.cu) do long sequences on the
// tensor cores, after FlashAttention-2. The simple ones (simple.cu) take any type,
// width and layout. All are deterministic: no sum depends on the order in which blocks
// run.
package attention
