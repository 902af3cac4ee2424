// Package attention computes scaled dot-product attention and its gradients with our own
// kernels, compiled when a call is planned: see Library. ProblemOf reads and checks a call,
// for other libraries too.
//
// There are three kinds of kernels. The short ones (short.cu) serve few queries with
// the least latency. The tiled ones (forward.cu, backward.cu) serve long sequences on the
// tensor cores, after FlashAttention-2. The simple ones (simple.cu) take any type,
// width and layout. All are deterministic: no sum depends on the order in which blocks
// run.
package attention
