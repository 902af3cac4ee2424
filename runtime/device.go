package runtime

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Stream numbers an in-order queue of a device's work.
type Stream int32

// Event numbers a point in a stream that others can wait for.
type Event int32

// Device is what one rank computes on: an arena that all ranks of the world can
// address, streams and events, kernels, and collectives. The host device of
// package host and the CUDA device implement it.
//
// Calls that take a Stream only enqueue: they return an error if the call is
// malformed or the device has failed already, and what goes wrong later is
// reported by Sync, Synchronize and Err. Everything that may block all of a
// device (loading code, allocation) happens in its opening or at safe points, never between
// launches.
//
// One goroutine at a time enqueues; Abort, Err and Close may be called from any.
type Device interface {
	// Info describes the device and its place in the world.
	Info() Info
	// NewStream makes a stream; the name appears in errors and traces.
	NewStream(name string) (Stream, error)
	// NewEvent makes an event that has not been recorded.
	NewEvent() (Event, error)

	// Launch enqueues a kernel.
	Launch(s Stream, k *Kernel) error
	// Collective enqueues this rank's part of a collective. Its operands must
	// not be written, nor its results touched, before it has finished.
	Collective(s Stream, c *Collective) error
	// Copy enqueues an elementwise copy between tensors of one type.
	Copy(s Stream, dst, src Tensor) error
	// Record makes e stand for everything enqueued on s so far.
	Record(s Stream, e Event) error
	// Wait makes what is enqueued on s from now on wait for what e stands for
	// now. Waiting for an event that was never recorded is an error.
	Wait(s Stream, e Event) error
	// Signal enqueues adding one to the counter number slot that peer keeps for
	// this rank, after everything before it on s is visible to the peer.
	Signal(s Stream, peer, slot int) error
	// WaitSignal enqueues waiting for the next such signal of peer: the n-th
	// call for a peer and slot returns after the n-th signal.
	WaitSignal(s Stream, peer, slot int) error

	// Upload copies dense host bytes into the arena; Download does the reverse.
	// They return when the copy is done and order themselves after nothing: the
	// caller sees to it that no stream touches the tensor.
	Upload(dst Tensor, src []byte) error
	Download(dst []byte, src Tensor) error

	// What follows changes the device at safe points: nothing runs on any rank, and none
	// enqueues, and all ranks make the same calls, but for those that fail.

	// Compile readies the kernels of a module, which launches name by Kernel.Unit, as far as
	// it needs no device for that. It is called at any time.
	Compile(unit int, u Unit) error
	// Load brings them to the device.
	Load(unit int) error
	// Unload undoes Load and Compile.
	Unload(unit int) error
	// Grow turns a region into zeroed memory on every rank. It waits for all, and who fails
	// cancels the next barrier of Spec.Job in place of coming to it.
	Grow(ctx context.Context, at Region) error
	// Shrink gives a region back on this rank.
	Shrink(at Region) error
	// AddGroup makes a group known. Its members may use it once all have called this.
	AddGroup(ctx context.Context, g Group) error
	// DropGroup forgets a group.
	DropGroup(name string) error
	// DropStream and DropEvent give a stream and an event back, whose numbers others may get.
	DropStream(s Stream) error
	DropEvent(e Event) error

	// Synchronize waits until what e stands for has finished.
	Synchronize(ctx context.Context, e Event) error
	// Sync waits until all streams are idle. When ctx ends first it returns the
	// context's error and the work goes on.
	Sync(ctx context.Context) error
	// Abort breaks the world: everything in flight ends, on every rank, and
	// every later call returns an error. The first cause counts.
	Abort(cause error)
	// Err is the error that broke the device, nil while it works.
	Err() error
	// Close gives everything back and tells the peers, who see a rank that left.
	// It waits for the device's goroutines, not for enqueued work.
	Close() error
}

// Region is bytes Lo to Hi of every rank's arena.
type Region struct{ Lo, Hi int64 }

// Stride bounds what is given out of an arena: devices have that many bytes of addresses for
// each rank, more than any arena, or fewer, and then Grow says so.
const Stride = 1 << 40

// ArenaAlign is what regions of an arena begin at multiples of.
const ArenaAlign = 2 << 20

// Info describes a device and its place in the world.
type Info struct {
	Kind        string // "host", "cuda"
	Rank, World int
	ArenaBytes  int64
	Signals     int // number of slots of Signal
	Timeout     time.Duration
	Nonce       string // of this world: no two worlds share one
}

// Spec is what a device is opened with: this rank's place, what the world agreed
// on, and what the ranks must agree on.
type Spec struct {
	Rank, World      int
	LocalRank        int     // among the ranks of this host
	Groups           []Group // what the world begins with, each of which AddGroup brings, too
	Timeout          time.Duration
	HeartbeatTimeout time.Duration   // how long a rank of another host may give no sign of life
	Funcs            map[string]Func // Go functions of `call @target`
	Rendezvous       func(ctx context.Context, extra []byte) (*Membership, error)
	// Job is this rank's membership of the job, for what the device's ranks say to each
	// other. Its owner closes it behind the device.
	Job *rendezvous.Group
}

// Opener opens a device. It calls Spec.Rendezvous with the bytes that its peers need in order
// to reach it: once, or as often as the openers of all other ranks do.
type Opener func(ctx context.Context, spec Spec) (Device, error)

// Kernel is one launch.
type Kernel struct {
	Op        string
	Target    string // of op "call": the name of the function; of op "fused": of the kernel
	Group     string // of op "call": the group that it communicates on, may be empty
	Attrs     attr.List
	Outs, Ins []Tensor
	Label     string        // the IR op, for errors
	Code      *Code         // of op "fused": the kernel, for the sizes of the launch
	Sizes     []int64       // of op "fused": what the kernel takes behind its pointers
	Unit      int           // of op "fused": which of Spec.Units the kernel belongs to
	Dynamic   *DynamicSizes // in a captured step: sizes that tensors hold, which are at their bounds here
}

// Name is the kernel's name in errors.
func (k *Kernel) Name() string {
	s := k.Op
	if k.Target != "" {
		s += " @" + k.Target
	}
	if k.Label != "" {
		s += " (" + k.Label + ")"
	}
	return s
}

// Func is an operation of the caller's own, which programs call as `call @target`: a Go
// function for each kind of device that is to compute it, nil for the others. A module that
// calls what the world's devices have no function for is not loaded ([FuncError]).
type Func struct {
	// Host runs on the stream of the call; Data holds the bytes of operands and results.
	// Devices of the fake driver take it, too, before GPU.
	Host func(c *FuncCall) error

	// GPU runs when the call is enqueued and enqueues work on Stream: of a step that is
	// captured as a graph it is called once and its work is what replays repeat, so it
	// neither waits nor allocates.
	GPU func(c *FuncCall) error
}

// Preparer is a Device that readies a launch which is made many times: each call of launch is a
// Launch. The kernel does not change.
type Preparer interface {
	Prepare(s Stream, k *Kernel) (launch func() error, err error)
}

// FuncRunner is a device that computes calls: its RunsFunc says which functions it can use.
type FuncRunner interface{ RunsFunc(f Func) bool }

// StageRunner is a device that runs modules of stages: its collectives find operands of peers that
// are not where this rank's do.
type StageRunner interface{ RunsStages() bool }

// checkCalls reports a call of a module that the device has no function for.
func (r *Rank) checkCalls(m *Module) error {
	dev, ok := r.dev.(FuncRunner)
	if !ok {
		return nil
	}
	for _, target := range m.Calls {
		f := r.funcs[target]
		if dev.RunsFunc(f) {
			continue
		}
		e := &FuncError{Rank: r.env.Rank, Module: m.Name, Target: target, Device: r.dev.Info().Kind}
		switch {
		case f.Host != nil:
			e.Has = "the host"
		case f.GPU != nil:
			e.Has = "GPUs"
		}
		return e
	}
	return nil
}

// FuncCall is what a Func gets.
type FuncCall struct {
	Rank, World int
	Target      string
	Group       string // the group that the call communicates on, may be empty
	Attrs       attr.List
	Outs, Ins   []FuncTensor
	// Stream and Context are the GPU's stream of the call and its context, as the CUDA
	// driver names them; 0 on the host device.
	Stream, Context uint64
}

// FuncTensor is an operand or result of a Func.
type FuncTensor struct {
	Tensor
	Data []byte // from element (0, 0, ...) on; nil where the host cannot see the arena
	Ptr  uint64 // device address of element (0, 0, ...); 0 on the host device
}

// CollOp is the kind of a collective.
type CollOp uint8

// The kinds of collectives.
const (
	CollInvalid CollOp = iota
	AllReduce
	AllGather
	ReduceScatter
	AllToAll
	Broadcast
	CollectivePermute
	Barrier
)

var collNames = [...]string{"invalid", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "collective_permute", "barrier"}

// String returns the IR's name of the operation.
func (o CollOp) String() string {
	if int(o) < len(collNames) {
		return collNames[o]
	}
	return fmt.Sprintf("collective(%d)", uint8(o))
}

// ParseCollOp returns the operation of that name.
func ParseCollOp(name string) (CollOp, bool) {
	i := slices.Index(collNames[:], name)
	return CollOp(max(i, 0)), i > 0
}

// Collective is one rank's part of a collective over the subgroups of a group.
// N operands and N results are coalesced: result k belongs to operand k. An
// operand and its result may be the same tensor.
type Collective struct {
	Op         CollOp
	Group      string
	Reduce     string    // all_reduce, reduce_scatter: sum avg product min max; reduced in the order of the subgroup
	Dim        int       // all_gather, reduce_scatter: the dimension that grows or shrinks
	Root       int       // broadcast: position in the subgroup
	Pairs      []int64   // collective_permute: source, destination, ...: positions; who is no destination gets zeros
	InSplits   [][]int64 // all_to_all: for each operand, rows of dimension 0 to each position; nil: equal parts
	OutSplits  [][]int64 // all_to_all: for each operand, rows from each position; nil: equal parts
	Outs, Ins  []Tensor
	Label      string        // the IR op, for errors
	InMatmul   bool          // it should take place within a matmul, see program.InMatmulKey
	Dynamic    *DynamicSizes // in a captured step: sizes that tensors hold, which are at their bounds here
	CrossStage bool          // ranks of several stages take part, so that offsets of operands and results differ by rank
}

// Name is the collective's name in errors.
func (c *Collective) Name() string {
	s := fmt.Sprintf("%v on %q", c.Op, c.Group)
	if c.Label != "" {
		s += " (" + c.Label + ")"
	}
	return s
}

// Check reports whether c is well formed for a subgroup of n ranks in which this
// rank has position pos: counts, types and shapes of operands and results, and
// the operation's own fields. It does not know the arena's size.
func (c *Collective) Check(n, pos int) error {
	if c.Op == Barrier {
		if len(c.Ins)+len(c.Outs) > 0 {
			return fmt.Errorf("a barrier has no operands")
		}
		return nil
	}
	if c.Op == CollInvalid || c.Op > Barrier {
		return fmt.Errorf("unknown operation %v", c.Op)
	}
	if len(c.Ins) == 0 || len(c.Ins) != len(c.Outs) {
		return fmt.Errorf("%d operands and %d results; a collective has equally many, at least one", len(c.Ins), len(c.Outs))
	}
	for i := range c.Ins {
		in, out := &c.Ins[i], &c.Outs[i]
		if in.DType != out.DType {
			return fmt.Errorf("operand %d is %v, its result %v", i, in.DType, out.DType)
		}
		for _, t := range []*Tensor{in, out} {
			if _, _, err := t.Span(); err != nil {
				return fmt.Errorf("operand or result %d: %w", i, err)
			}
		}
	}
	if err := c.checkFields(n); err != nil {
		return err
	}
	for i := range c.Ins {
		if err := c.checkPair(i, n, pos); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
	}
	return nil
}

// checkPair compares the shapes of operand i and its result.
func (c *Collective) checkPair(i, n, pos int) error {
	in, out := &c.Ins[i], &c.Outs[i]
	switch c.Op {
	case AllReduce, Broadcast, CollectivePermute:
		if !slices.Equal(in.Shape, out.Shape) {
			return fmt.Errorf("operand shape %v, result shape %v", in.Shape, out.Shape)
		}
	case AllGather:
		return scaledDim(in.Shape, out.Shape, c.Dim, n)
	case ReduceScatter:
		return scaledDim(out.Shape, in.Shape, c.Dim, n)
	case AllToAll:
		if len(in.Shape) == 0 || len(in.Shape) != len(out.Shape) || !slices.Equal(in.Shape[1:], out.Shape[1:]) {
			return fmt.Errorf("operand shape %v, result shape %v", in.Shape, out.Shape)
		}
		if c.InSplits == nil {
			if !slices.Equal(in.Shape, out.Shape) || in.Shape[0]%int64(n) != 0 {
				return fmt.Errorf("%v cannot be exchanged as %v in %d equal parts", in.Shape, out.Shape, n)
			}
			return nil
		}
		send, receive := c.InSplits[i], c.OutSplits[i]
		if in.Shape[0] != sum(send) || out.Shape[0] != sum(receive) {
			return fmt.Errorf("splits %v of %v rows, %v of %v rows", send, in.Shape[0], receive, out.Shape[0])
		}
		if send[pos] != receive[pos] {
			return fmt.Errorf("this rank sends itself %d rows and expects %d", send[pos], receive[pos])
		}
	}
	return nil
}

// checkFields checks what belongs to the operation as a whole.
func (c *Collective) checkFields(n int) error {
	switch c.Op {
	case AllReduce, ReduceScatter:
		if !slices.Contains([]string{"sum", "avg", "product", "min", "max"}, c.Reduce) {
			return fmt.Errorf("unknown reduction %q", c.Reduce)
		}
	case Broadcast:
		if c.Root < 0 || c.Root >= n {
			return fmt.Errorf("root %d in a subgroup of %d", c.Root, n)
		}
	case CollectivePermute:
		src, dst := make([]bool, n), make([]bool, n)
		if len(c.Pairs)%2 != 0 {
			return fmt.Errorf("odd number of positions in pairs %v", c.Pairs)
		}
		for i := 0; i < len(c.Pairs); i += 2 {
			s, d := c.Pairs[i], c.Pairs[i+1]
			if s < 0 || s >= int64(n) || d < 0 || d >= int64(n) {
				return fmt.Errorf("pair %d to %d in a subgroup of %d", s, d, n)
			}
			if src[s] || dst[d] {
				return fmt.Errorf("pairs %v use a source or a destination twice", c.Pairs)
			}
			src[s], dst[d] = true, true
		}
	case AllToAll:
		if (c.InSplits == nil) != (c.OutSplits == nil) {
			return fmt.Errorf("splits of operands and results go together")
		}
		if c.InSplits == nil {
			return nil
		}
		if len(c.InSplits) != len(c.Ins) || len(c.OutSplits) != len(c.Ins) {
			return fmt.Errorf("splits of %d and %d operands for %d", len(c.InSplits), len(c.OutSplits), len(c.Ins))
		}
		for _, list := range slices.Concat(c.InSplits, c.OutSplits) {
			if len(list) != n || slices.ContainsFunc(list, func(s int64) bool { return s < 0 }) {
				return fmt.Errorf("splits %v in a subgroup of %d", list, n)
			}
		}
	}
	return nil
}

// scaledDim checks that large is small with dimension dim multiplied by n.
func scaledDim(small, large []int64, dim, n int) error {
	if dim < 0 || dim >= len(small) || len(small) != len(large) {
		return fmt.Errorf("dimension %d of shapes %v and %v", dim, small, large)
	}
	for i := range small {
		want := small[i]
		if i == dim {
			want *= int64(n)
		}
		if large[i] != want {
			return fmt.Errorf("shapes %v and %v do not differ by %d in dimension %d", small, large, n, dim)
		}
	}
	return nil
}

func sum(v []int64) int64 {
	var s int64
	for _, x := range v {
		s += x
	}
	return s
}
