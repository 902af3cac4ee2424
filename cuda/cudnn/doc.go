// Package cudnn computes attention with NVIDIA's cuDNN 9: forward and backward as
// operation graphs of its backend interface, loaded by dlopen, declared by us.
//
// A plan is made in four steps. attention.ProblemOf reads the call; forwardGraph or
// backwardGraph writes the operations that cuDNN's fused engines recognise (graph.go,
// sdpa.go: plain data, which the tests also evaluate on the host); lower.go turns them
// into descriptors; plan.go asks the heuristics for engines and takes the first one
// that can be built. Everything that can load code or block happens there. What is
// left for a step of a program is one call of a C function in a command buffer.
package cudnn
