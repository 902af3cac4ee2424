//go:build linux

package cuda

// GraphUpdate lets later launches of x replay g, which must have the lanes, items and
// events of the graph that x was made from, in the same order.
func (f *Fake) GraphUpdate(_ Ctx, x Exec, g Graph) error {
	const call = "cuGraphExecUpdate"
	if err := f.call(); err != nil {
		return err
	}
	e, err := fakeGet[*fakeExec](f, call, uint64(x))
	if err != nil {
		return err
	}
	o, err := fakeGet[*fakeGraph](f, call, uint64(g))
	if err != nil {
		return err
	}
	if why := e.graph.differs(o); why != "" {
		return &Error{Call: call, Code: codeGraphChanged, Name: "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", Text: why}
	}
	e.graph = o
	return nil
}

// differs says what keeps an executable graph of g from becoming one of o. What an item
// does is its parameters.
func (g *fakeGraph) differs(o *fakeGraph) string {
	if len(g.ops) != len(o.ops) || len(g.streams) != len(o.streams) {
		return "the number or order of nodes differs"
	}
	for i, a := range g.ops {
		b := o.ops[i]
		if a.lane != b.lane || (a.rec == nil) != (b.rec == nil) || (a.wait == nil) != (b.wait == nil) || (a.run == nil) != (b.run == nil) {
			return "the kind of a node differs"
		}
	}
	return ""
}
