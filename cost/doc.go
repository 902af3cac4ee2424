// Package cost says how long operations take: numbers in, milliseconds out.
//
// Three sources, in order of precedence:
//
//  1. a cost attached to a node in the graph (traced or measured);
//  2. a table of collectives measured on a machine, interpolated (Table);
//  3. formulas: rooflines for launches (Machine.NodeMs) and protocol models for
//     collectives (Machine.CommMs), from a machine description, by where the group's
//     ranks are (Machine.Span).
//
// Model combines them, puts what it says on the scale of attached costs (Model.Fitted) and
// says which source a cost has (Model.Priced). Everything here is a pure function of the graph, the
// tables and the machine: it never looks at the rank, a clock or the hardware, so
// that all ranks decide alike.
//
// Times are milliseconds where they belong to nodes, as in the graphs, and
// microseconds in tables of collectives, as such tables are written.
package cost
