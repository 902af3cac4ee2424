// Package lt multiplies matrices on a GPU with cuBLASLt, loaded at run time by
// dlopen, and with its own kernels for skinny matmuls (skinny.cu).
//
// A Problem describes a matmul of strided views without their addresses. Views
// cost nothing as long as a descriptor of the library can express them;
// ErrLayout reports when one cannot. A Handle belongs to a context; it makes a Plan for
// a Problem, which can be enqueued on any stream and into any command buffer, and
// captured into a graph.
//
// # Choice of the algorithm
//
// An Algo has a text form that records everything needed to use it again. Handle.Tune
// measures the candidates of a problem; a Tuning holds the winners and can be written
// to a file, so that all ranks of a program and all later runs use the same. A
// problem that is not in the tuning takes the library's first suggestion.
//
// Only deterministic algorithms are admitted: a split-k sum
// is reduced in float32 in a fixed order, never by atomic
// additions and never in the result's narrower type.
package lt
