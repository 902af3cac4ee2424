package overlap

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// LayerKey is the annotation of a collective that names the module or layer that
// it belongs to, for buckets by layer.
const LayerKey = "layer"

// Modes of the option "mode": which collectives may share a bucket.
const (
	modeAuto   = "auto"   // all of a kind, where the cost model says that it pays
	modeAll    = "all"    // all of a kind, wherever nothing is late for it
	modeParams = "params" // gathers of parameter shards, and reductions that only the output reads
	modeLayer  = "layer"  // those with equal annotation LayerKey
)

func Bucket() passes.Pass {
	return passes.Pass{
		Name:      "bucket",
		Doc:       "Buckets collectives where that makes nothing late and the peak of live memory no higher.",
		Options:   append(capOptions(), bucketOptions()...),
		Stats:     scheduleStats(),
		OrderOnly: true,
		Run:       runBucket,
	}
}

// bucketOptions are the options about buckets that bucket and overlap share.
func bucketOptions() []passes.Option {
	return []passes.Option{
		{Name: "mode", Kind: passes.KindString, Default: modeAuto, Choices: []string{modeAuto, modeAll, modeParams, modeLayer},
			Doc: "which collectives of one kind may share a bucket: any for which it pays; any; gathers of parameters, and reductions that only the output reads; those with the same annotation \"layer\""},
		{Name: "bucket-bytes", Kind: passes.KindBytes, Default: "0", Doc: "largest bucket, 0 for the size at which latency stops to matter, in mode all for no limit"},
		{Name: "in-flight", Kind: passes.KindBytes, Default: "0", Doc: "most bytes that collectives in flight carry, 0 for any number"},
		{Name: "coalesced", Kind: passes.KindBool, Default: "false", Doc: "collectives of several operands may join, too; who reads their wait reads the bucket's instead"},
	}
}

func runBucket(ctx *passes.Context, f *ir.Func) error {
	s, err := newScheduler(ctx, f)
	if err != nil {
		return err
	}
	r, err := sched.Join(s.d.Model, s.options())
	if err != nil {
		return err
	}
	return s.apply(r)
}

// options are the scheduler's options that bucket and overlap share.
func (s *scheduler) options() sched.Options {
	return sched.Options{Cap: s.cap, InFlight: s.ctx.Bytes("in-flight"), BucketBytes: s.ctx.Bytes("bucket-bytes"), JoinAny: s.may.mode == modeAll, Cost: s.cost, Tick: s.ctx.Tick}
}

// joining says which collectives may join buckets.
type joining struct {
	ctx       *passes.Context
	mode      string
	coalesced bool
}

func newJoining(ctx *passes.Context) joining {
	return joining{ctx, ctx.Str("mode"), ctx.Bool("coalesced")}
}

func (j joining) bucketable(n *ir.Node) bool { return j.exclusion(n) == "" && j.ctx.Enable(n.Name()) }

// exclusion says why a collective may not join any bucket; empty if it may.
func (j joining) exclusion(n *ir.Node) string {
	switch {
	case n.Op() == ir.OpAsyncCall:
		return "it is a call"
	case passes.WaitOf(n) == nil:
		return "it leaves in flight"
	case n.Ordered() || passes.WaitOf(n).Ordered():
		return "it has order-only edges"
	case len(n.Args()) > 1 && !j.coalesced:
		return "it has several operands already"
	case j.mode == modeParams && !ofParameter(n):
		return "neither the gather of a parameter nor the reduction of a gradient"
	case j.mode == modeLayer && n.Meta().Str(LayerKey, "") == "":
		return "it names no layer"
	}
	return ""
}

// tag separates collectives that may not share a bucket.
func (j joining) tag(n *ir.Node) string {
	if j.mode == modeLayer {
		return n.Meta().Str(LayerKey, "")
	}
	return ""
}

// chain is how many operations between a parameter or a gradient and its
// collective are looked through.
const chain = 16

// ofParameter reports whether a collective gathers a parameter's shard (an input
// that the caller keeps, or that forward saved for backward) or reduces what only
// the output reads, in both cases but for views, conversions and other
// operations of one operand.
func ofParameter(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpAllGather, ir.OpBroadcast:
		for _, v := range n.Args() {
			if !fromParameter(v) {
				return false
			}
		}
		return true
	case ir.OpAllReduce, ir.OpReduceScatter:
		w := passes.WaitOf(n)
		for _, v := range w.Results() {
			if !intoOutput(v) {
				return false
			}
		}
		return true
	}
	return false
}

func fromParameter(v *ir.Value) bool {
	for range chain {
		n := v.Def()
		if n.Op() == ir.OpInput {
			return n.Role() == ir.RoleParameter || n.Role() == ir.RoleSaved
		}
		if !deps.Light(n) || len(n.Args()) != 1 {
			return false
		}
		v = n.Arg(0)
	}
	return false
}

func intoOutput(v *ir.Value) bool {
	for range chain {
		if len(v.Uses()) != 1 {
			return false
		}
		n := v.Uses()[0].Node
		if n.Op().Class() == ir.ClassOutput {
			return true
		}
		if !deps.Light(n) || len(n.Args()) != 1 || len(n.Results()) != 1 {
			return false
		}
		v = n.Result(0)
	}
	return false
}

// formBucket puts one variadic collective in place of the starts of b, annotated with the
// names of those that it stands for, once for each operand. The starts stand
// together, and so do the waits, in the order that pos describes.
//
// The wait of a member with one operand becomes an alias, of the same name, of
// the bucket's result at the member's place: nobody who reads it is rewired. The
// wait of a member with several goes, and whoever reads it reads the bucket's. A
// member that is a bucket itself passes on the names that it stands for. What goes
// is left to the caller in s.gone, so that no bucket takes its name.
func (s *scheduler) formBucket(b sim.Bucket, pos []int32) error {
	f, d := s.f, s.d
	var names, send, receive []string
	var carried []*ir.Member
	var args []*ir.Value
	var types []ir.Type
	members, waits := make([]*ir.Node, len(b.Members)), make([]*ir.Node, len(b.Members))
	first, firstWait := b.Members[0], int32(-1)
	for k, m := range b.Members {
		n, w := d.Nodes[m], d.WaitOf(m)
		if w < 0 {
			return fmt.Errorf("collective %%%s cannot be bucketed", n.Name())
		}
		members[k], waits[k], carried = n, d.Nodes[w], append(carried, n.Members()...)
		names, args, types = append(names, passes.MemberNames(n)...), append(args, n.Args()...), append(types, n.Result(0).Type().Elems()...)
		send, receive = append(send, n.Attrs().Strs("in_splits")...), append(receive, n.Attrs().Strs("out_splits")...)
		if pos[m] < pos[first] {
			first = m
		}
		if firstWait < 0 || pos[w] < pos[firstWait] {
			firstWait = w
		}
	}
	if len(carried) != len(names) { // a member was read from text
		carried = nil
	}
	lead := d.Nodes[first]
	attrs, meta := lead.Attrs(), attr.Make(attr.Attr{Key: passes.MembersKey, Val: attr.Strings(names...)})
	if send != nil {
		attrs = attrs.With("in_splits", attr.Strings(send...))
	}
	if receive != nil {
		attrs = attrs.With("out_splits", attr.Strings(receive...))
	}
	if s.may.mode == modeLayer {
		meta = meta.With(LayerKey, attr.String(s.may.tag(lead)))
	}
	start := f.InsertBefore(lead, ir.NodeSpec{
		Op: lead.Op(), Name: lead.Op().Name() + "_bucket", Args: args, Results: []ir.Type{ir.Async(types...)}, Group: lead.Group(),
		Attrs: attrs, Meta: meta, Cost: min(b.Dur, ir.MaxCost), HasCost: true, Pos: lead.Pos(), From: members, Members: carried,
	})
	wait := f.InsertBefore(d.Nodes[firstWait], ir.NodeSpec{
		Op: ir.OpWaitTensor, Name: start.Name() + "_wait", Args: []*ir.Value{start.Result(0)}, Results: types, Pos: d.Nodes[firstWait].Pos(), From: waits,
	})
	at := 0
	for _, w := range waits {
		if len(w.Results()) == 1 {
			f.SetOp(w, ir.OpAlias)
			f.SetArg(w, 0, wait.Result(at))
			f.SetType(w.Result(0), types[at])
		} else {
			for i, r := range w.Results() {
				f.ReplaceUses(r, wait.Result(at+i))
			}
			s.gone = append(s.gone, w)
		}
		at += len(w.Results())
	}
	for _, m := range b.Members {
		s.gone = append(s.gone, d.Nodes[m])
	}
	return nil
}
