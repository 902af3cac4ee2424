package interp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// collective runs a collective on every subgroup of its group, one operand after
// the other: a bucket means what its members mean one by one.
func (m *machine) collective(ctx context.Context, n *ir.Node) error {
	v := n.Result(0)
	if n.Group() == nil || !v.Type().IsAsync() || len(v.Type().Elems()) != len(n.Args()) {
		return nodeError(n, -1, fmt.Errorf("a collective needs a group and one async result that carries a tensor per operand"))
	}
	bs := make([]binding, m.world)
	for _, r := range m.ranks {
		for _, t := range v.Type().Elems() {
			x, err := m.alloc(t, r)
			if err != nil {
				return nodeError(n, r, err)
			}
			bs[r].ts = append(bs[r].ts, x)
		}
	}
	move := m.exchange
	if n.Op() == ir.OpAsyncCall {
		move = func(n *ir.Node, bs []binding) error { return m.asyncCall(ctx, n, bs) }
	}
	peers, across, err := m.peers(n)
	if err != nil {
		return nodeError(n, -1, err)
	}
	if !across {
		if err := move(n, bs); err != nil {
			return err
		}
	}
	if m.opts.Poison {
		for _, r := range m.ranks {
			var args []view
			for _, a := range n.Args() {
				args = append(args, m.env[a.ID()][r].ts[0])
			}
			if err := m.takeOff(&bs[r], args); err != nil {
				return nodeError(n, r, err)
			}
		}
	}
	m.bind(v, bs)
	if across {
		return m.issue(n, peers, bs)
	}
	return nil
}

// exchange fills the results of a collective, one for each operand.
func (m *machine) exchange(n *ir.Node, bs []binding) error {
	in, out, err := n.Splits()
	if err != nil {
		return nodeError(n, -1, err)
	}
	for _, ranks := range n.Group().Ranks {
		if len(m.ranks) < m.world && !slices.Contains(m.ranks, ranks[0]) {
			continue // of another stage
		}
		for i := range n.Args() {
			x := exchange{m: m, n: n, ranks: ranks}
			for _, r := range ranks {
				x.in = append(x.in, m.env[n.Arg(i).ID()][r].ts[0].Tensor)
				x.out = append(x.out, bs[r].ts[i].Tensor)
			}
			if in != nil {
				x.inSplits, x.outSplits = in[i], out[i]
			}
			if err := x.run(); err != nil {
				if len(n.Args()) > 1 {
					err = inOperand(i, err)
				}
				return nodeError(n, -1, err)
			}
		}
	}
	return nil
}

// asyncCall fills the result of communication that concert does not know.
func (m *machine) asyncCall(ctx context.Context, n *ir.Node, bs []binding) error {
	fn, err := m.called(n)
	if err != nil {
		return err
	}
	c := &Call{Node: n, Ranks: m.ranks, Args: make([][]Tensor, m.world), Results: make([][]Tensor, m.world)}
	for _, r := range m.ranks {
		x, err := m.env[n.Arg(0).ID()][r].ts[0].tensor()
		if err != nil {
			return nodeError(n, r, err)
		}
		out, err := NewTensor(bs[r].ts[0].DType, bs[r].ts[0].Shape...)
		if err != nil {
			return nodeError(n, r, err)
		}
		c.Args[r], c.Results[r] = []Tensor{x}, []Tensor{out}
	}
	if err := fn(ctx, c); err != nil {
		return nodeError(n, -1, err)
	}
	for _, r := range m.ranks {
		if err := sameTensor(c.Results[r][0], bs[r].ts[0]); err != nil {
			return nodeError(n, r, fmt.Errorf("result: %w", err))
		}
		if err := hostops.Copy(bs[r].ts[0].Tensor, c.Results[r][0].host()); err != nil {
			return nodeError(n, r, err)
		}
	}
	return nil
}

// shard copies each rank's piece of its own operand.
func (m *machine) shard(n *ir.Node) error {
	if n.Group() == nil {
		return nodeError(n, -1, fmt.Errorf("a shard needs a group"))
	}
	d := int(n.Attrs().Int("dim", 0))
	bs := make([]binding, m.world)
	for _, r := range m.ranks {
		out, err := m.alloc(n.Result(0).Type(), r)
		if err != nil {
			return nodeError(n, r, err)
		}
		bs[r].ts = []view{out}
		_, at := n.Group().Of(r)
		in := m.env[n.Arg(0).ID()][r].ts[0].Tensor
		size := out.Shape[d]
		if size*int64(n.Group().Size()) != in.Shape[d] {
			return nodeError(n, r, fmt.Errorf("dimension %d of size %d does not fall into %d pieces of %d", d, in.Shape[d], n.Group().Size(), size))
		}
		piece, err := in.Narrow(d, int64(at)*size, int64(at+1)*size)
		if err == nil {
			err = hostops.Copy(out.Tensor, piece)
		}
		if err != nil {
			return nodeError(n, r, err)
		}
	}
	m.bind(n.Result(0), bs)
	return nil
}

func inOperand(i int, err error) error {
	rank := -1
	if e := (*rankError)(nil); errors.As(err, &e) {
		rank = e.rank
	}
	return &rankError{rank, fmt.Errorf("operand %d: %w", i, err)}
}

// exchange is one operand of a collective on one subgroup. in and out are by
// group rank; ranks names the world ranks.
type exchange struct {
	m                   *machine
	n                   *ir.Node
	ranks               []int
	in, out             []hostops.Tensor
	inSplits, outSplits []ir.Dim
}

func (x *exchange) run() error {
	switch x.n.Op() {
	case ir.OpAllReduce:
		return x.allReduce()
	case ir.OpAllGather:
		return x.allGather()
	case ir.OpReduceScatter:
		return x.reduceScatter()
	case ir.OpAllToAll:
		return x.allToAll()
	case ir.OpBroadcast:
		return x.broadcast()
	case ir.OpCollectivePermute:
		return x.permute()
	}
	return fmt.Errorf("the interpreter does not know the collective %s", x.n.Op().Name())
}

// sameShapes checks that every rank brings what the first one brings.
func (x *exchange) sameShapes() error {
	for i, t := range x.in {
		if !slices.Equal(t.Shape, x.in[0].Shape) {
			return onRank(x.ranks[i], "the operand is %v here and %v on rank %d; %s needs one shape", t.Shape, x.in[0].Shape, x.ranks[0], x.n.Op().Name())
		}
	}
	return nil
}

// copy moves a tensor between ranks; dst is of rank i.
func (x *exchange) copy(i int, dst, src hostops.Tensor) error {
	if !slices.Equal(dst.Shape, src.Shape) {
		return onRank(x.ranks[i], "%v arrives where the result has room for %v", src.Shape, dst.Shape)
	}
	return hostops.Copy(dst, src)
}

func (x *exchange) allReduce() error {
	if err := x.sameShapes(); err != nil {
		return err
	}
	if err := hostops.Reduce(string(x.n.Reduction()), x.out[0], x.in); err != nil {
		return err
	}
	for i := 1; i < len(x.out); i++ {
		if err := x.copy(i, x.out[i], x.out[0]); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) allGather() error {
	if err := x.sameShapes(); err != nil {
		return err
	}
	d := int(x.n.Attrs().Int("dim", 0))
	for i := range x.out {
		for j, src := range x.in {
			piece, err := x.out[i].Narrow(d, int64(j)*src.Shape[d], int64(j+1)*src.Shape[d])
			if err != nil {
				return err
			}
			if err := x.copy(i, piece, src); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *exchange) reduceScatter() error {
	if err := x.sameShapes(); err != nil {
		return err
	}
	d := int(x.n.Attrs().Int("dim", 0))
	for i, out := range x.out {
		size := out.Shape[d]
		if size*int64(len(x.ranks)) != x.in[i].Shape[d] {
			return onRank(x.ranks[i], "dimension %d of size %d does not fall into %d pieces of %d", d, x.in[i].Shape[d], len(x.ranks), size)
		}
		pieces := make([]hostops.Tensor, len(x.in))
		for j, src := range x.in {
			var err error
			if pieces[j], err = src.Narrow(d, int64(i)*size, int64(i+1)*size); err != nil {
				return err
			}
		}
		if err := hostops.Reduce(string(x.n.Reduction()), out, pieces); err != nil {
			return err
		}
	}
	return nil
}

// splits evaluates the piece sizes of group rank i along dimension 0; equal pieces if none are given.
func (x *exchange) splits(i int, dims []ir.Dim, size int64, what string) ([]int64, error) {
	n := int64(len(x.ranks))
	out := make([]int64, n)
	sum := int64(0)
	for j := range out {
		if dims == nil {
			out[j] = size / n
		} else {
			var err error
			if out[j], err = x.m.dim(dims[j], x.ranks[i]); err != nil {
				return nil, err
			}
		}
		sum += out[j]
	}
	if sum != size {
		return nil, onRank(x.ranks[i], "the %s pieces %v do not add up to dimension 0 of size %d", what, out, size)
	}
	return out, nil
}

func (x *exchange) allToAll() error {
	n := len(x.ranks)
	send, recv := make([][]int64, n), make([][]int64, n)
	for i := range n {
		var err error
		if send[i], err = x.splits(i, x.inSplits, x.in[i].Shape[0], "sent"); err != nil {
			return err
		}
		if recv[i], err = x.splits(i, x.outSplits, x.out[i].Shape[0], "received"); err != nil {
			return err
		}
	}
	for dst := range n {
		to := int64(0)
		for src := range n {
			k := send[src][dst]
			if k != recv[dst][src] {
				return onRank(x.ranks[dst], "rank %d sends %d rows, but this rank expects %d from it", x.ranks[src], k, recv[dst][src])
			}
			from := int64(0)
			for _, s := range send[src][:dst] {
				from += s
			}
			s, err := x.in[src].Narrow(0, from, from+k)
			if err != nil {
				return err
			}
			d, err := x.out[dst].Narrow(0, to, to+k)
			if err != nil {
				return err
			}
			if err := x.copy(dst, d, s); err != nil {
				return err
			}
			to += k
		}
	}
	return nil
}

func (x *exchange) broadcast() error {
	root := x.n.Attrs().Int("root", 0)
	for i, out := range x.out {
		if err := x.copy(i, out, x.in[root]); err != nil {
			return err
		}
	}
	return nil
}

// permute moves operands along the pairs; results start as zeros.
func (x *exchange) permute() error {
	pairs := x.n.Attrs().Ints("pairs")
	for k := 0; k+1 < len(pairs); k += 2 {
		src, dst := pairs[k], pairs[k+1]
		if err := x.copy(int(dst), x.out[dst], x.in[src]); err != nil {
			return err
		}
	}
	return nil
}
