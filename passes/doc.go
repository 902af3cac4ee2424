// Package passes is what transforms graphs: what a pass is, the pipelines made of
// them, and the manager that runs a pipeline. Concert's own passes stand in the
// packages below; package passes/standard has the table of them.
//
// A pass is a value, not a class: a name, a sentence, its options and
// statistics as data, and one function. All passes stand in one [Table] together
// with the order constraints between them, each with its reason, and the named
// pipelines. A pipeline is also written as text:
//
//	canonicalize,sink-waits{limit=10},reorder-comms{cap=8GiB}
//
// The [Manager] trusts no pass: after each it verifies the module, compares the
// text's digest to tell whether anything changed, and collects what the pass
// declared it would count. When a pass breaks the module, the error points into
// the text that the pass produced and carries the text that went in, with the
// command that runs the pass alone.
//
// Every decision of a pass is a function of the module, the options and the
// cost model. No pass reads a clock, the environment or a random number, none
// depends on the iteration order of a map, and the rank is not known to any: all
// ranks that compile the same input get the same bytes.
package passes
