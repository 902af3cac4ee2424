package types

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
)

// inferAllReduce gives each operand's own type: all_reduce, broadcast, collective_permute.
func inferAllReduce(c *operands) ([]Type, error) {
	return eachOperand(c, func(t Type, _ int) (Type, error) { return TensorOf(t.dt, t.shape), nil })
}

// eachOperand applies a rule to every operand and bundles the results as one async type.
func eachOperand(c *operands, f func(t Type, i int) (Type, error)) ([]Type, error) {
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

func inferAllGather(c *operands) ([]Type, error) {
	return eachOperand(c, func(t Type, _ int) (Type, error) {
		d, err := c.dim(t.Rank())
		if err != nil {
			return t, err
		}
		s := slices.Clone(t.shape)
		s[d] = s[d].Mul(dim.New(int64(c.group)))
		return TensorOf(t.dt, s), nil
	})
}

func inferReduceScatter(c *operands) ([]Type, error) {
	return eachOperand(c, func(t Type, _ int) (Type, error) {
		d, err := c.dim(t.Rank())
		if err != nil {
			return t, err
		}
		return piece(t, d, c.group)
	})
}

// inferShard gives one of as many equal pieces as the subgroup has ranks.
func inferShard(c *operands) ([]Type, error) {
	t := c.args[0]
	d, err := c.dim(t.Rank())
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
		if !s[d].Mul(dim.New(int64(ranks))).Equal(t.shape[d]) {
			return t, fmt.Errorf("dimension %d of size %s is not a multiple of the %d ranks", d, t.shape[d], ranks)
		}
	}
	return TensorOf(t.dt, s), nil
}

func inferAllToAll(c *operands) ([]Type, error) {
	in, err := ParseSplits(c.attrs, "in_splits", len(c.args), c.group)
	if err != nil {
		return nil, err
	}
	out, err := ParseSplits(c.attrs, "out_splits", len(c.args), c.group)
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
func differ(a, b dim.Dim) bool {
	d, ok := a.Sub(b).Const()
	return ok && d != 0
}

// received is dimension 0 of what comes of operand i: as declared, if that may be the sum of
// its pieces (ir.Node.Needs), else the sum.
func (c *operands) received(i int, sum dim.Dim) dim.Dim {
	if len(c.want) == 1 && i < len(c.want[0].async) {
		if s := c.want[0].async[i].shape; len(s) > 0 && !differ(s[0], sum) {
			return s[0]
		}
	}
	return sum
}

// ParseSplits reads a list attribute that holds, per operand, as many
// comma-separated dimension expressions as the group has ranks; nil if absent.
func ParseSplits(attrs attr.List, key string, operands, ranks int) ([][]dim.Dim, error) {
	v, ok := attrs.Get(key)
	if !ok {
		return nil, nil
	}
	list, ok := v.AsStrings()
	if !ok || len(list) != operands {
		return nil, fmt.Errorf("%s must hold one text for each of the %d operands", key, operands)
	}
	out := make([][]dim.Dim, operands)
	for i, s := range list {
		parts := strings.Split(s, ",")
		if ranks > 0 && len(parts) != ranks {
			return nil, fmt.Errorf("%s of operand %d has %d sizes for %d ranks", key, i, len(parts), ranks)
		}
		for _, p := range parts {
			d, err := dim.Parse(strings.TrimSpace(p))
			if err != nil {
				return nil, fmt.Errorf("%s of operand %d: %w", key, i, err)
			}
			out[i] = append(out[i], d)
		}
	}
	return out, nil
}

// SplitsText is the attribute text for one operand's sizes.
func SplitsText(sizes []dim.Dim) string {
	parts := make([]string, len(sizes))
	for i, d := range sizes {
		parts[i] = d.String()
	}
	return strings.Join(parts, ",")
}

func inferWait(c *operands) ([]Type, error) {
	if !c.args[0].IsAsync() {
		return nil, fmt.Errorf("wait_tensor takes an async value, got %s", c.args[0])
	}
	return slices.Clone(c.args[0].async), nil
}
