// Package passes transforms graphs: it defines what a pass is, pipelines of passes,
// and the manager that runs a pipeline. Concert's own passes are in the
// packages below; package passes/standard has their table.
//
// A pass is a value: a name, a sentence, its options and
// statistics as data, and one function. All passes are in one [Table], together
// with the order constraints between them, each with its reason, and the named
// pipelines. A pipeline is also written as text:
//
//	canonicalize,sink-waits{limit=10},reorder-comms{cap=8GiB}
//
// The [Manager] trusts no pass: after each it verifies the module, compares the
// text's digest to see whether anything changed, and collects the declared statistics.
// When a pass breaks the module, the error points into
// the text that the pass produced, and carries the input text with the
// command that runs the pass alone.
//
// Every decision of a pass is a function of the module, the options and the
// cost model. No pass reads a clock, the environment or a random number, none
// depends on the iteration order of a map, and none knows the rank: all
// ranks that compile the same input get the same bytes.
package passes
