// Package cost estimates how long operations take, in milliseconds.
//
// Three sources, in order of precedence:
//
//  1. a cost attached to a node in the graph (traced or measured);
//  2. a table of collectives measured on a machine, interpolated (Table);
//  3. formulas: rooflines for launches (Machine.NodeMs) and protocol models for
//     collectives (Machine.CommMs), from a machine description and the placement of the
//     group's ranks (Machine.Span).
//
// Model combines them, rescales modelled costs to attached ones (Model.ScaledTo), and
// reports the source of each cost (Model.CostOf). Everything here is a pure function of the
// graph, the tables and the machine description, never of the rank, a clock or the hardware,
// so that all ranks decide alike.
//
// Times of nodes are in milliseconds, as in the graphs; tables of collectives are in
// microseconds, as is usual for such tables.
package cost
