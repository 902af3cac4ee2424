// Package progtest serves tests of programs: it executes a program with real
// bytes under schedules that are as unfortunate as the order of streams, events
// and ranks permits, and makes mutants of programs.
//
// A schedule that prefers a stream demands the instructions of that stream one
// after the other, and runs of all other streams only what these have to wait
// for. So if nothing orders an instruction a of another stream before b of the
// preferred one, b runs before a. Together, the schedules that prefer each stream
// once and the one in list order run every unordered pair of instructions in both
// orders. An eager schedule reads the operands of an instruction as soon as the
// instruction could start, and writes its results only when they are demanded:
// that is a slow instruction, and it also shows pairs whose two orders agree but
// whose overlapped execution does not.
package progtest
