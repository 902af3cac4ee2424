package interp

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/randseed"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/types"
)

// exec runs a node that is neither input nor return on all ranks.
func (m *machine) exec(ctx context.Context, n *ir.Node) error {
	for _, a := range n.Args() {
		if m.env[a.ID()] == nil {
			return nodeError(n, -1, fmt.Errorf("operand %s is not defined", a))
		}
	}
	switch n.Op().Class() {
	case ir.ClassView:
		return m.view(n)
	case ir.ClassCollective:
		return m.collective(ctx, n)
	case ir.ClassWait:
		return m.wait(n)
	}
	switch n.Op() {
	case ir.OpCall:
		return m.call(ctx, n)
	case ir.OpShard:
		return m.shard(n)
	case ir.OpWhile, ir.OpCase:
		return m.control(ctx, n)
	case ir.OpReadSize:
		return m.readSize(n)
	}
	return m.kernel(n)
}

// kernel runs the host kernel of the node's name on every rank.
func (m *machine) kernel(n *ir.Node) error {
	outs := make([][]binding, len(n.Results()))
	work := int64(0)
	for i, v := range n.Results() {
		outs[i] = make([]binding, m.world)
		for _, r := range m.ranks {
			t, err := m.alloc(v.Type(), r)
			if err != nil {
				return nodeError(n, r, err)
			}
			outs[i][r].ts = []view{t}
			work += t.NumElems()
		}
	}
	err := m.eachRank(n, work, func(r int) error {
		var in, out []hostops.Tensor
		for _, a := range n.Args() {
			in = append(in, m.env[a.ID()][r].ts[0].Tensor)
		}
		for i := range outs {
			out = append(out, outs[i][r].ts[0].Tensor)
		}
		return hostops.Run(n.Op().Name(), m.attrs(n, r), out, in)
	})
	if err != nil {
		return err
	}
	for i, v := range n.Results() {
		m.bind(v, outs[i])
	}
	return nil
}

// readSize gives symbols their values.
func (m *machine) readSize(n *ir.Node) error {
	if err := m.kernel(n); err != nil {
		return err
	}
	for _, r := range m.ranks {
		sizes := m.env[n.Result(0).ID()][r].ts[0]
		for i, s := range n.Attrs().Strs(ir.SymbolsKey) {
			v := dtype.LoadInt(sizes.DType, sizes.Data[8*int64(i)*sizes.Strides[0]:])
			y := m.f.Module().Symbol(s)
			if v < y.Min || v > y.Max {
				return nodeError(n, r, &SymbolError{Rank: r, Symbol: s, Value: v, Min: y.Min, Max: y.Max})
			}
			m.syms[r][s] = v
			if m.opts.Sizes != nil {
				m.opts.Sizes[r][s] = v
			}
		}
	}
	return m.check()
}

// attrs are the node's attributes as its kernel wants them: a rand gets the seed
// of this rank and step.
func (m *machine) attrs(n *ir.Node, rank int) attr.List {
	if n.Op() != ir.OpRand {
		return n.Attrs()
	}
	seed := randseed.Derive(n.Attrs().Int("seed", 0), m.opts.Seed, m.opts.Step, n.Name(), rank)
	return n.Attrs().With("seed", attr.Int(seed))
}

// parallelWork is the number of result elements from which ranks get goroutines.
const parallelWork = 1 << 13

// eachRank runs fn for every rank and returns the error of the lowest rank that
// failed. Ranks touch disjoint results, so running them side by side changes nothing.
func (m *machine) eachRank(n *ir.Node, work int64, fn func(rank int) error) error {
	errs := make([]error, m.world)
	if work < parallelWork || len(m.ranks) == 1 {
		for _, r := range m.ranks {
			if errs[r] = fn(r); errs[r] != nil {
				break
			}
		}
	} else {
		var wg sync.WaitGroup
		lanes := min(len(m.ranks), runtime.GOMAXPROCS(0))
		for lane := range lanes {
			wg.Go(func() {
				for i := lane; i < len(m.ranks); i += lanes {
					errs[m.ranks[i]] = fn(m.ranks[i])
				}
			})
		}
		wg.Wait()
	}
	for r, err := range errs {
		if err != nil {
			return nodeError(n, r, err)
		}
	}
	return nil
}

// view gives operand 0's storage the layouts of the results.
func (m *machine) view(n *ir.Node) error {
	outs := make([][]binding, len(n.DeclaredResults()))
	for i := range outs {
		outs[i] = make([]binding, m.world)
	}
	for _, r := range m.ranks {
		x := m.env[n.Arg(0).ID()][r].ts[0]
		at := int64(0)
		for i, v := range n.Results() {
			t, err := m.viewOf(n, v.Type(), x, r)
			if err != nil {
				return nodeError(n, r, err)
			}
			if n.Op() == ir.OpSplit {
				d := n.Attrs().Int("dim", 0)
				t.Offset += at * x.Strides[d]
				at += n.Attrs().Ints("sizes")[i]
			}
			if err := inside(t, x.Tensor); err != nil {
				return nodeError(n, r, err)
			}
			outs[i][r].ts = []view{{t, x.st}}
		}
	}
	for i, v := range n.Results() {
		m.bind(v, outs[i])
	}
	return nil
}

// viewOf is the layout of a view's result on its operand's storage; of a split,
// as if it were the first piece.
func (m *machine) viewOf(n *ir.Node, t ir.Type, x view, rank int) (hostops.Tensor, error) {
	h, _, err := m.layout(t, rank)
	if err != nil {
		return h, err
	}
	h.Data, h.Offset = x.Data, x.Offset
	a := n.Attrs()
	d := a.Int("dim", 0)
	switch n.Op() {
	case ir.OpSlice:
		start, end := a.Int("start", 0), a.Int("end", x.Shape[d])
		if start > end || end > x.Shape[d] {
			return h, fmt.Errorf("slice %d..%d is outside dimension %d of size %d", start, end, d, x.Shape[d])
		}
		h.Offset += start * x.Strides[d]
	case ir.OpSelect:
		i := a.Int("index", 0)
		if i >= x.Shape[d] {
			return h, fmt.Errorf("index %d is outside dimension %d of size %d", i, d, x.Shape[d])
		}
		h.Offset += i * x.Strides[d]
	case ir.OpSplit:
		sum := int64(0)
		for _, s := range a.Ints("sizes") {
			sum += s
		}
		if sum != x.Shape[d] {
			return h, fmt.Errorf("sizes add up to %d, dimension %d has %d", sum, d, x.Shape[d])
		}
	case ir.OpAsStrided:
		h.Offset += a.Int("offset", 0)
	case ir.OpExpand: // sizes of 1 repeat
	default:
		if h.NumElems() != x.NumElems() {
			return h, fmt.Errorf("a view of %v as %v changes the number of elements", x.Shape, h.Shape)
		}
	}
	return h, nil
}

// inside checks that a layout stays within the memory of x.
func inside(t, x hostops.Tensor) error {
	n, ok := types.Reach(t.Shape, t.Strides)
	if room := int64(len(x.Data) / x.DType.Size()); !ok || n > 0 && (t.Offset < 0 || t.Offset > room-n) {
		return fmt.Errorf("view %s reaches outside its operand's storage %s", t, x)
	}
	return nil
}

// Call is one execution of an opaque call, on all ranks at once.
type Call struct {
	Node *ir.Node

	// Ranks are those that run it, all but in stages, in ascending order.
	Ranks []int

	// Args[r] and Results[r] are rank r's operands and results. Results come
	// zeroed and are to be filled in place. Operands are copies; what the call leaves
	// in those that it declares to write is stored.
	// Results of a call that declares "alias" are not listed: they give operand
	// 0's storage the declared layouts.
	Args, Results [][]Tensor
}

// CallFunc implements an opaque call. It is called once per execution with the
// tensors of all ranks, so that it may communicate; see PerRank.
type CallFunc func(ctx context.Context, c *Call) error

// PerRank makes a CallFunc of a function that computes each rank by itself.
func PerRank(fn func(ctx context.Context, n *ir.Node, rank int, args, results []Tensor) error) CallFunc {
	return func(ctx context.Context, c *Call) error {
		for _, r := range c.Ranks {
			if err := fn(ctx, c.Node, r, c.Args[r], c.Results[r]); err != nil {
				return &rankError{r, err}
			}
		}
		return nil
	}
}

// called is the function of a call.
func (m *machine) called(n *ir.Node) (CallFunc, error) {
	target := n.Attrs().Str("target", "")
	fn := m.opts.Calls[target]
	if fn == nil {
		return nil, nodeError(n, -1, fmt.Errorf("no function is registered for target %q; give one in Options.Calls", target))
	}
	return fn, nil
}

func (m *machine) call(ctx context.Context, n *ir.Node) error {
	fn, err := m.called(n)
	if err != nil {
		return err
	}
	alias := n.Effects()&ir.EffectAlias != 0
	c := &Call{Node: n, Ranks: m.ranks, Args: make([][]Tensor, m.world), Results: make([][]Tensor, m.world)}
	outs := make([][]binding, len(n.DeclaredResults()))
	for i := range outs {
		outs[i] = make([]binding, m.world)
	}
	for _, r := range m.ranks {
		for _, a := range n.DeclaredArgs() {
			t, err := m.env[a.ID()][r].ts[0].tensor()
			if err != nil {
				return nodeError(n, r, err)
			}
			c.Args[r] = append(c.Args[r], t)
		}
		for i, v := range n.DeclaredResults() {
			b, t, err := m.callResult(n, v, r, alias)
			if err != nil {
				return nodeError(n, r, err)
			}
			outs[i][r] = b
			if !alias {
				c.Results[r] = append(c.Results[r], t)
			}
		}
	}
	if err := fn(ctx, c); err != nil {
		return nodeError(n, -1, err)
	}
	if err := m.storeCall(n, c, outs, alias); err != nil {
		return err
	}
	for i, v := range n.DeclaredResults() {
		m.bind(v, outs[i])
	}
	for _, v := range n.Results()[len(outs):] {
		m.bind(v, m.env[v.Before().ID()])
	}
	return nil
}

// callResult makes a result's storage and the dense tensor that the call fills.
func (m *machine) callResult(n *ir.Node, v *ir.Value, rank int, alias bool) (binding, Tensor, error) {
	if alias {
		if len(n.Args()) == 0 {
			return binding{}, Tensor{}, fmt.Errorf("the call declares alias but has no operand")
		}
		x := m.env[n.Arg(0).ID()][rank].ts[0]
		h, _, err := m.layout(v.Type(), rank)
		if err != nil {
			return binding{}, Tensor{}, err
		}
		h.Data, h.Offset = x.Data, x.Offset
		if h.DType != x.DType {
			return binding{}, Tensor{}, fmt.Errorf("result %s aliases an operand of type %s", h.DType, x.DType)
		}
		return binding{ts: []view{{h, x.st}}}, Tensor{}, inside(h, x.Tensor)
	}
	out, err := m.alloc(v.Type(), rank)
	if err != nil {
		return binding{}, Tensor{}, err
	}
	t, err := NewTensor(out.DType, out.Shape...)
	return binding{ts: []view{out}}, t, err
}

// storeCall moves what the call computed into the ranks' storages.
func (m *machine) storeCall(n *ir.Node, c *Call, outs [][]binding, alias bool) error {
	for _, r := range m.ranks {
		for i, a := range n.DeclaredArgs() {
			if n.Writes(i) {
				if err := storeBack(m.env[a.ID()][r].ts[0], c.Args[r][i]); err != nil {
					return nodeError(n, r, fmt.Errorf("operand %d: %w", i, err))
				}
			}
		}
		for i := range outs {
			if alias {
				continue
			}
			if err := sameTensor(c.Results[r][i], outs[i][r].ts[0]); err != nil {
				return nodeError(n, r, fmt.Errorf("result %d: %w", i, err))
			}
			if err := hostops.Copy(outs[i][r].ts[0].Tensor, c.Results[r][i].host()); err != nil {
				return nodeError(n, r, err)
			}
		}
	}
	return nil
}

// storeBack writes an operand that the call changed; one that it left alone must
// not overwrite what another operand on the same storage received.
func storeBack(v view, got Tensor) error {
	if err := sameTensor(got, v); err != nil {
		return err
	}
	old, err := v.tensor()
	if err != nil || Equal(old, got) {
		return err
	}
	return fillView(v.Tensor, got.host())
}

func sameTensor(got Tensor, want view) error {
	if err := got.Check(); err != nil {
		return err
	}
	if got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
		return fmt.Errorf("the call left %s, want %s%v", got.typeText(), want.DType, want.Shape)
	}
	return nil
}
