// Package fx reads traced PyTorch graphs (*.graph.json, plain or gzip) into the
// IR, and writes scheduled graphs back in the same format.
//
// A graph file is one JSON object: name, world, groups and a list of nodes in
// program order, each with its ATen or c10d operator and the operator's
// arguments as Python text. Read parses and checks the document; Import turns it
// into one IR function with one node per traced node, of the same name and in
// the same order; Export writes a function that passes have reordered or
// bucketed, node for node, so that others can compare the two.
//
// # How traced nodes map to IR nodes
//
//   - An operator that the table in internal/aten knows becomes that op; any other
//     becomes an opaque call, and Import returns a warning that names it.
//   - A getitem becomes an alias of one result of its producer. Its index counts
//     the operator's whole result tuple, while the node's out lists tensors only.
//   - A collective gives an async value and its first wait takes it; any later
//     wait becomes an alias that keeps its name.
//   - A coalesced collective is one variadic collective. One added node waits for
//     all of it where the trace waits first; the traced getitems and waits become
//     aliases.
//   - In-place and _out forms become their functional forms; the names that they
//     overwrite stand for the result from then on.
//   - Sizes that are known at run time only are expressions over the document's
//     "symbols": in shapes and strides as text, and in nodes of kind "size", PyTorch's
//     SymInts, which have a field "size" or an operator that concert can follow. They
//     become symbols in the IR's types; where a tensor is computed with one, it is counted.
//     "checks", expressions that must not be negative, and assertions of comparisons become
//     checks of the module.
//   - Inputs that a step updates, such as running statistics, are donated to their new values: the output's field
//     "updates" has for each of its entries the name of the input whose new value it is, "" for others.
//   - The output node becomes the return. Entries that are None are left out and
//     remembered in the annotation "outputs", see Outputs.
//
// # Annotations
//
// The importer and the exporter speak through these annotations (ir.Node.Meta):
//
//	role, from   of an input, as in the file
//	fx           the traced name, where it is not a name of the text form
//	helper       on a node that the importer added: the traced node it belongs to
//	members      on a bucket: the traced collectives that it stands for, in operand order
//	outputs      on the return: for each traced output its operand, or -1 for None
//
// # What a bucket pass must leave
//
// Export recognises a bucket of the traced collectives c0, c1, ... by this form:
//
//	%b = all_gather %x0, %x1 on @g : async(T0, T1) ms 0.02 !{members=["c0", "c1"]}
//	%b.wait:2 = wait_tensor %b : T0, T1
//	%w0 = alias %b.wait#0 : T0
//	%w1 = alias %b.wait#1 : T1
//
// where w0 and w1 are the names of the traced waits of c0 and c1, %x0 and %x1 the
// members' operands or copies of them, and c0 and c1 are removed. Operator, group,
// reduction and attributes are those of the members. Later traced waits of a
// member stay the aliases that they were. In-place, _out and coalesced
// collectives cannot be members.
package fx

import "github.com/seed-ee968945/concert/ir/fx/internal/traced"

// The annotation keys that Import writes and Export reads; passes that form
// buckets write MetaMembers.
const (
	MetaRole    = "role"            // of an input: parameter, data, saved or tangent
	MetaFrom    = "from"            // of a backward input: the forward value that feeds it
	MetaName    = traced.MetaName   // the traced name, where the IR's name differs
	MetaHelper  = traced.MetaHelper // the traced node that an added node belongs to
	MetaMembers = "members"         // of a bucket: the traced collectives in operand order
	MetaOutputs = "outputs"         // of the return: operand of each traced output, -1 for None
)
