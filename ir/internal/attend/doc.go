// Package attend recognises attention that a program spells out, forward and backward, and replaces
// it by the operation attention.
//
// Scores are a matmul whose exponentials are divided by their sums. Programs
// spell this differently: divisions are multiplications by reciprocals, gradients of divisions
// are sums of any shape, tensors are viewed and permuted in between. So there are no
// patterns. Everything between the matmuls is followed as a polynomial in the
// exponentials, the gradient of the weights, and row sums (ring.go); everything around them
// as a mapping of dimensions to those of the underlying tensor (axes.go).
//
// What attention computes differs from what was spelled out in two ways: scores and weights are
// not rounded to the type of the operands, and a query whose scores are all -Inf, which sees no
// key, gets zeros, as in the libraries that have such a kernel, where a softmax is NaN.
package attend
