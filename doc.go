// Package concert is a compiler library for distributed machine learning. It
// takes a tensor program whose nodes include collectives, schedules and buckets
// them so that communication hides under computation while peak memory stays
// flat, and lowers the result to calls into a runtime whose buffers live in
// symmetric memory.
//
// The packages, in the order in which a program passes through them:
//
//	ir           the graph: types, ops, builder, text form, verifier
//	ir/fx        importer of traced PyTorch graphs
//	interp       reference interpreter on simulated ranks
//	cost         how long operations take
//	sim          timeline, memory and lower bound of a schedule
//	passes       the passes and their manager
//	program      the lowered form
//	lower        graph to program, program to Go source
//	runtime      runs programs; runtime/host is the device of machines without a GPU
//	cuda         the CUDA device
//	kernels      its kernels
//	cmd/lowerdump  the tool that shows all of this
package concert
