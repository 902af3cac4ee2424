// Package concert is a compiler library for distributed machine learning. It
// takes a tensor program with collectives, schedules and buckets
// them so that communication overlaps with compute while peak memory stays
// flat, and lowers the result to calls into a runtime whose buffers are in
// symmetric memory.
//
// The packages, in the order in which a program passes through them:
//
//	ir           the graph: types, ops, builder, text form, verifier
//	ir/fx        importer of traced PyTorch graphs; ir/stablehlo, ir/hlo of XLA's
//	interp       reference interpreter on simulated ranks
//	cost         how long operations take
//	sim          timeline, memory and lower bound of a schedule
//	passes       the passes and their manager
//	program      the lowered form
//	lower        graph to program, program to Go source
//	compile      all of the above in one call
//	runtime      runs programs; runtime/host is the CPU device
//	cuda         the CUDA device
//	kernels      its collective kernels
//	cmd/lowerdump  the command that shows all of this
package concert
