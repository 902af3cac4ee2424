package ir

// EffectOrder says what has to come before a node besides its operands, because of
// effects. Every pass that moves nodes, the simulator and the schedulers ask it:
//
//   - a node that writes in place follows all who name the old contents, a view too, a wait
//     counting as a read of what its collective had in flight, and all other writes;
//   - nodes that draw random numbers keep their order;
//   - what names a symbol follows the read_size that reads it;
//   - order-only edges hold (Node.After);
//   - an opaque call that communicates is a fence: it keeps its place among all
//     communication. Waits are local to a rank, so no fence holds them;
//   - a collective between stages follows the one before it in its group, which the other stages
//     issue in that order, and a wait for one follows all that were started before it: another
//     stage may not get to what is waited for without them.
//
// What a write has to precede needs no word: its versions are operands there.
type EffectOrder struct {
	roots *roots

	readers    [][]*Node // by root: who has read the newest contents; nil if nothing writes
	lastWrite  *Node
	lastRandom *Node
	sizes      map[string]*Node // by symbol: who reads it; look-up only
	fence      *Node            // the last opaque call that communicates
	comms      []*Node          // collectives since then
	links      []*Node          // the last collective between stages of each group
}

// NewEffectOrder prepares to follow f. O(nodes + values).
func NewEffectOrder(f *Func) *EffectOrder {
	o := &EffectOrder{sizes: sizeReaders(f)}
	if f.writes() {
		o.roots = findRoots(f)
		o.readers = make([][]*Node, o.roots.count)
	}
	return o
}

// Next appends to before the nodes that n has to follow, some more than once. It is
// asked for every node, in program order; all calls together take O(nodes + uses).
func (o *EffectOrder) Next(n *Node, before []*Node) []*Node {
	after := func(p *Node) {
		if p != nil && p != n {
			before = append(before, p)
		}
	}
	for _, p := range n.after {
		after(p)
	}
	if o.sizes != nil {
		for _, s := range n.SymbolsNamed() {
			after(o.sizes[s])
		}
	}
	effects := n.Effects()
	if effects&EffectRandom != 0 {
		after(o.lastRandom)
		o.lastRandom = n
	}
	switch {
	case n.op.IsCollective():
		after(o.fence)
		o.comms = append(o.comms, n)
		if n.betweenStages() {
			o.link(n, after)
		}
	case n.op == OpWaitTensor && o.links != nil && n.betweenStages():
		for _, p := range o.links {
			after(p)
		}
	case effects&EffectCommunicates != 0:
		after(o.fence)
		for _, p := range o.comms {
			after(p)
		}
		o.comms, o.fence = o.comms[:0], n
	}
	if o.readers == nil || n.op == OpInput {
		return before
	}
	for i, a := range n.args[:n.declaredArgs()] {
		switch {
		case n.op == OpWaitTensor:
			if start := a.def; start.op.IsCollective() {
				for _, x := range start.args { // in flight until now
					o.read(n, x)
				}
			}
		case n.Writes(i):
			root := o.roots.of[a.id]
			for _, r := range o.readers[root] {
				after(r)
			}
			o.readers[root] = append(o.readers[root][:0], n)
		}
		o.read(n, a)
	}
	if effects&EffectWrites != 0 {
		after(o.lastWrite)
		o.lastWrite = n
	}
	return before
}

// link puts a collective between stages behind the last one of its group.
func (o *EffectOrder) link(n *Node, after func(p *Node)) {
	for i, p := range o.links {
		if p.group == n.group {
			after(p)
			o.links[i] = n
			return
		}
	}
	o.links = append(o.links, n)
}

func (o *EffectOrder) read(n *Node, v *Value) {
	for k := range v.typ.Tensors() {
		root := int(o.roots.of[v.id]) + k
		o.readers[root] = append(o.readers[root], n)
	}
}
