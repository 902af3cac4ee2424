package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
)

// inferAllReduce gives each operand's own type: all_reduce, broadcast, collective_permute.
func inferAllReduce(c *inferCtx) ([]Type, error) {
	return eachOperand(c, func(t Type, _ int) (Type, error) { return TensorOf(t.dt, t.shape), nil })
}

// eachOperand applies a rule to every operand and bundles the results as one async type.
func eachOperand(c *inferCtx, f func(t Type, i int) (Type, error)) ([]Type, error) {
	out := make([]Type, len(c.args))
	for i, a := range c.args {
		t, err := f(a, i)
		if err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
		out[i] = t
	}
	return []Type{Async(out...)}, nil
}

func inferAllGather(c *inferCtx) ([]Type, error) {
	return eachOperand(c, func(t Type, _ int) (Type, error) {
		d, err := c.dim("dim", t.Rank())
		if err != nil {
			return t, err
		}
		s := slices.Clone(t.shape)
		s[d] = s[d].Mul(D(int64(c.group)))
		return TensorOf(t.dt, s), nil
	})
}

func inferReduceScatter(c *inferCtx) ([]Type, error) {
	return eachOperand(c, func(t Type, _ int) (Type, error) {
		d, err := c.dim("dim", t.Rank())
		if err != nil {
			return t, err
		}
		return piece(t, d, c.group)
	})
}

// inferShard gives one of as many equal pieces as the subgroup has ranks.
func inferShard(c *inferCtx) ([]Type, error) {
	t := c.args[0]
	d, err := c.dim("dim", t.Rank())
	if err != nil {
		return nil, err
	}
	t, err = piece(t, d, c.group)
	return []Type{t}, err
}

// piece is a tensor of t's type cut into equal pieces along dimension d.
func piece(t Type, d, ranks int) (Type, error) {
	s := slices.Clone(t.shape)
	if ranks > 0 {
		s[d] = s[d].Div(int64(ranks))
		if !s[d].Mul(D(int64(ranks))).Equal(t.shape[d]) {
			return t, fmt.Errorf("dimension %d of size %s is not a multiple of the %d ranks", d, t.shape[d], ranks)
		}
	}
	return TensorOf(t.dt, s), nil
}

func inferAllToAll(c *inferCtx) ([]Type, error) {
	in, err := parseSplits(c.attrs, "in_splits", len(c.args), c.group)
	if err != nil {
		return nil, err
	}
	out, err := parseSplits(c.attrs, "out_splits", len(c.args), c.group)
	if err != nil {
		return nil, err
	}
	return eachOperand(c, func(t Type, i int) (Type, error) {
		if t.Rank() == 0 {
			return t, fmt.Errorf("all_to_all needs at least one dimension")
		}
		s := slices.Clone(t.shape)
		if in != nil {
			if sum := dim.Sum(in[i]...); differ(sum, t.shape[0]) {
				return t, fmt.Errorf("in_splits add up to %s, dimension 0 has %s", sum, t.shape[0])
			}
		} else if n, ok := t.shape[0].Const(); ok && c.group > 0 && n%int64(c.group) != 0 {
			return t, fmt.Errorf("dimension 0 of size %d is not a multiple of the %d ranks; give in_splits", n, c.group)
		}
		if out != nil {
			s[0] = c.received(i, dim.Sum(out[i]...))
		} else if in != nil {
			return t, fmt.Errorf("in_splits without out_splits")
		}
		return TensorOf(t.dt, s), nil
	})
}

// differ reports whether two sizes differ for all values of their symbols.
func differ(a, b Dim) bool {
	d, ok := a.Sub(b).Const()
	return ok && d != 0
}

// received is dimension 0 of what comes of operand i: as declared, if that may be the sum of
// its pieces (Node.Needs), else the sum.
func (c *inferCtx) received(i int, sum Dim) Dim {
	if len(c.want) == 1 && i < len(c.want[0].async) {
		if s := c.want[0].async[i].shape; len(s) > 0 && !differ(s[0], sum) {
			return s[0]
		}
	}
	return sum
}

// parseSplits reads a list attribute that holds, per operand, as many
// comma-separated dimension expressions as the group has ranks; nil if absent.
func parseSplits(attrs attr.List, key string, operands, ranks int) ([][]Dim, error) {
	v, ok := attrs.Get(key)
	if !ok {
		return nil, nil
	}
	list, ok := v.AsStrings()
	if !ok || len(list) != operands {
		return nil, fmt.Errorf("%s must hold one text for each of the %d operands", key, operands)
	}
	out := make([][]Dim, operands)
	for i, s := range list {
		parts := strings.Split(s, ",")
		if ranks > 0 && len(parts) != ranks {
			return nil, fmt.Errorf("%s of operand %d has %d sizes for %d ranks", key, i, len(parts), ranks)
		}
		for _, p := range parts {
			d, err := ParseDim(strings.TrimSpace(p))
			if err != nil {
				return nil, fmt.Errorf("%s of operand %d: %w", key, i, err)
			}
			out[i] = append(out[i], d)
		}
	}
	return out, nil
}

// Splits returns the sizes along dimension 0 that an all_to_all sends to and receives from
// each rank, per operand. Both are nil when the pieces are equal. The error says which
// attribute is malformed, or not of the group's size.
func (n *Node) Splits() (in, out [][]Dim, err error) {
	size := 0
	if n.group != nil {
		size = n.group.Size()
	}
	if in, err = parseSplits(n.attrs, "in_splits", len(n.args), size); err != nil {
		return nil, nil, err
	}
	out, err = parseSplits(n.attrs, "out_splits", len(n.args), size)
	return in, out, err
}

// SplitsText is the attribute text for one operand's sizes.
func SplitsText(sizes []Dim) string {
	parts := make([]string, len(sizes))
	for i, d := range sizes {
		parts[i] = d.String()
	}
	return strings.Join(parts, ",")
}

func inferWait(c *inferCtx) ([]Type, error) {
	if !c.args[0].IsAsync() {
		return nil, fmt.Errorf("wait_tensor takes an async value, got %s", c.args[0])
	}
	return slices.Clone(c.args[0].async), nil
}
