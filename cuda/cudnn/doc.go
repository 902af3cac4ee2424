// Package cudnn computes attention and convolutions, and their gradients, with NVIDIA's
// cuDNN 9: as operation graphs of its backend API, loaded by dlopen, with our own declarations.
//
// Planning has four steps. attention.ProblemOf or newConvolution reads the call.
// forwardGraph, backwardGraph or convolution.graph builds the operations that cuDNN's engines
// recognise (graph.go, sdpa.go, convolution.go: plain data, which the tests also evaluate on
// the host; move.go adds copies before and after). lower.go turns them
// into descriptors. plan.go asks the heuristics for engines and takes the first one
// that can be built. Everything that may load code or block happens there; a step of a program
// is then one call of a C function in a command buffer.
package cudnn
