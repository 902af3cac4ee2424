package passes

import (
	"hash/fnv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// snapshot is what the manager keeps of a module to check, after a pass that may
// decide only order and buckets, that nothing else changed: a hash of every
// node's line of text, and the parts of collectives and waits that a bucket takes
// over. It holds some 40 bytes a node where a copy of the module holds 450; when
// it finds a difference, the manager reads the text before the pass back and lets
// CheckOrderOnly say what it is.
type snapshot struct {
	funcs []funcSnapshot
}

type funcSnapshot struct {
	name  string
	names []string // of the nodes, in order
	lines []uint64 // FNV-1a of the nodes' text
	comms map[string]commSnapshot
}

// commSnapshot is a collective, or a wait with only operand and type.
type commSnapshot struct {
	op      ir.Op
	group   string
	attrs   attr.List
	operand string
	typ     ir.Type
}

func takeSnapshot(m *ir.Module) *snapshot {
	s := &snapshot{}
	var line []byte
	for _, f := range m.Funcs() {
		order := f.Order()
		fs := funcSnapshot{name: f.Name, names: make([]string, len(order)), lines: make([]uint64, len(order)), comms: map[string]commSnapshot{}}
		for i, n := range order {
			line = n.AppendText(line[:0])
			fs.names[i], fs.lines[i] = n.Name(), lineHash(line)
			switch {
			case n.Op().IsCollective() && len(n.Args()) == 1:
				fs.comms[n.Name()] = commSnapshot{n.Op(), n.Group().Name, n.Attrs(), n.Arg(0).Name(), n.Result(0).Type().Elems()[0]}
			case n.Op() == ir.OpWaitTensor && len(n.Results()) == 1:
				fs.comms[n.Name()] = commSnapshot{op: n.Op(), operand: n.Arg(0).Def().Name(), typ: n.Result(0).Type()}
			}
		}
		s.funcs = append(s.funcs, fs)
	}
	return s
}

func lineHash(line []byte) uint64 {
	h := fnv.New64a()
	h.Write(line) // a hash never fails to write
	return h.Sum64()
}

// kept reports whether m is the module of the snapshot in another order and with
// other buckets, and nothing else; see CheckOrderOnly for the rule. Linear.
func (s *snapshot) kept(m *ir.Module) bool {
	if len(s.funcs) != len(m.Funcs()) {
		return false
	}
	for i, f := range m.Funcs() {
		if !s.funcs[i].kept(f) {
			return false
		}
	}
	return true
}

func (s *funcSnapshot) kept(f *ir.Func) bool {
	if s.name != f.Name {
		return false
	}
	old := make([]bool, f.NumNodeIDs())
	for _, name := range s.names {
		if n := f.Lookup(name); n != nil {
			old[n.ID()] = true
		}
	}
	members := map[string]bucketPlace{} // look-up only
	for _, n := range f.Order() {
		names := n.Meta().Strs(MembersKey)
		switch {
		case old[n.ID()]:
		case n.Op().IsCollective() && len(names) > 0 && len(names) == len(n.Args()):
			for k, name := range names {
				if _, twice := members[name]; twice {
					return false
				}
				members[name] = bucketPlace{n, k}
			}
		case n.Op() == ir.OpWaitTensor && !old[n.Arg(0).Def().ID()] && len(n.Arg(0).Def().Meta().Strs(MembersKey)) > 0:
		default:
			return false
		}
	}
	var line []byte
	for i, name := range s.names {
		now := f.Lookup(name)
		at, bucketed := members[name]
		if bucketed || now == nil {
			if !bucketed || now != nil || !s.comms[name].travels(at) {
				return false
			}
			continue
		}
		if c, ok := s.comms[name]; ok && c.op == ir.OpWaitTensor {
			if at, ok := members[c.operand]; ok {
				if !c.aliases(now, at) {
					return false
				}
				continue
			}
		}
		line = now.AppendText(line[:0])
		if lineHash(line) != s.lines[i] {
			return false
		}
	}
	return true
}

// travels reports whether the collective is the member of a bucket that at says.
func (c commSnapshot) travels(at bucketPlace) bool {
	b := at.bucket
	return c.op == b.Op() && c.group == b.Group().Name && c.attrs.Equal(b.Attrs()) &&
		c.operand == b.Arg(at.k).Name() && c.typ.Equal(b.Result(0).Type().Elems()[at.k])
}

// aliases reports whether now stands for the wait of the member that at says.
func (c commSnapshot) aliases(now *ir.Node, at bucketPlace) bool {
	if now.Op() != ir.OpAlias || now.Arg(0).Index() != at.k || !now.Result(0).Type().Equal(c.typ) {
		return false
	}
	w := now.Arg(0).Def()
	return w.Op() == ir.OpWaitTensor && w.Arg(0).Def() == at.bucket
}
