// Package cudnn computes attention and convolutions, and their gradients, with NVIDIA's
// cuDNN 9: as operation graphs of its backend interface, loaded by dlopen, declared by us.
//
// A plan is made in four steps. attention.ProblemOf or newConvolution reads the call;
// forwardGraph, backwardGraph or convolution.graph writes the operations that cuDNN's engines
// recognise (graph.go, sdpa.go, convolution.go: plain data, which the tests also evaluate on
// the host; move.go has what is copied before and behind them); lower.go turns them
// into descriptors; plan.go asks the heuristics for engines and takes the first one
// that can be built. Everything that can load code or block happens there. What is
// left for a step of a program is one call of a C function in a command buffer.
package cudnn
