// Package progtest is for tests of programs: it executes a program with real
// bytes under the most adversarial schedules that the order of streams, events
// and ranks permits, and makes mutants of programs.
//
// A schedule that prefers a stream runs the instructions of that stream one
// after the other, and from all other streams only what these have to wait
// for. So if nothing orders an instruction a of another stream before b of the
// preferred one, b runs before a. Together, the schedules that prefer each stream
// once and the one in list order run every unordered pair of instructions in both
// orders. An eager schedule reads the operands of an instruction as soon as the
// instruction could start, and writes its results only when they are needed:
// that models a slow instruction, and exposes pairs whose two orders agree but
// whose overlapped execution does not.
package progtest
