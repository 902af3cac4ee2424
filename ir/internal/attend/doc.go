// Package attend finds attention that a program writes out, forward and backward, and makes it
// the operation attention.
//
// Scores are a product of matrices whose exponentials a softmax divides by their sums. How a
// program spells that differs: divisions are products with reciprocals, gradients of divisions
// are sums of any shape, tensors are viewed and permuted on the way. So neither is matched as a
// pattern. What is between the products of matrices is followed as a polynomial in the
// exponentials, the gradient of the weights, and sums over rows (ring.go); what surrounds them
// as the places that dimensions have in the tensor behind them (axes.go).
package attend
