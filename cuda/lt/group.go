package lt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// maxMembers is the largest number of matmuls of a group.
const maxMembers = 4

// Group is skinny matmuls with one left operand, as q, k and v of an attention
// are, done by one launch. Alone each of them is so short that its launch counts.
type Group struct {
	problems []Problem
	algo     Algo
	kernel   kernel
}

// groupKey is the key of a group in a tuning.
func groupKey(ps []Problem) string {
	var parts []string
	for i := range ps {
		parts = append(parts, ps[i].String())
	}
	return strings.Join(parts, " + ")
}

// GetGroup finds the kernel of matmuls with one left operand.
func (t *Tuning) GetGroup(ps []Problem) (Algo, bool) {
	if len(ps) < 2 || len(ps) > maxMembers {
		return Algo{}, false
	}
	return t.get(func(known bool) string {
		list := make([]Problem, len(ps))
		for i := range ps {
			list[i] = ps[i].aligned(known)
		}
		return groupKey(list)
	})
}

// SetGroup records the kernel of matmuls with one left operand.
func (t *Tuning) SetGroup(ps []Problem, a Algo) { t.set(groupKey(ps), a) }

// fitsAll reports whether the kernel can do all matmuls in one launch, the left
// operand of which is Y of all.
func (s Skinny) fitsAll(ps []Problem) error {
	if len(ps) != int(max(s.Members, 1)) {
		return fmt.Errorf("%v: %d matmuls", s, len(ps))
	}
	for i := range ps {
		p := &ps[i]
		if err := s.fits(p); err != nil {
			return err
		}
		if p.N != ps[0].N || p.K != ps[0].K || p.Y != ps[0].Y || p.Swapped != ps[0].Swapped || len(ps) > 1 && !p.Swapped {
			return errors.New("the matmuls have different left operands")
		}
	}
	return nil
}

// Group is the tuning's kernel for matmuls that have the same left operand, in this
// order. Without one, or where matmuls alone were faster, the error wraps
// ErrUnsupported. It may load code, as Plan does.
func (h *Handle) Group(ps []Problem) (*Group, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.opts.Tuning.GetGroup(ps)
	if !ok || !h.canSkinny() {
		return nil, unsupported("no kernel is known for %s", groupKey(ps))
	}
	return h.groupWith(ps, a)
}

func (h *Handle) groupWith(ps []Problem, a Algo) (*Group, error) {
	if err := a.Skinny.fitsAll(ps); err != nil {
		return nil, unsupported("%s: %v", groupKey(ps), err)
	}
	k, err := h.load(a.Skinny)
	if err != nil {
		return nil, err
	}
	return &Group{problems: ps, algo: a, kernel: k}, nil
}

// AddTo adds the launch. All sets have the same A. No result may overlap an operand or
// another result. With early the launch may begin before the kernel before it in
// the stream has ended, see driver.Commands.LaunchDependent: that kernel must not write any
// B.
func (g *Group) AddTo(cmds *driver.Commands, s driver.Stream, sets []Operands, early bool) error {
	return g.add(cmds, s, sets, earlyArg(early))
}

func (g *Group) add(cmds *driver.Commands, s driver.Stream, sets []Operands, early int64) error {
	if len(sets) != len(g.problems) {
		return fmt.Errorf("%d matmuls, want %d", len(sets), len(g.problems))
	}
	var x, d []driver.Ptr
	for i, t := range sets {
		p := &g.problems[i]
		if t.A != sets[0].A {
			return errors.New("the matmuls have different left operands")
		}
		if uint64(t.A)%uint64(p.Y.Align) != 0 || uint64(t.B)%uint64(p.X.Align) != 0 || uint64(t.Out)%uint64(p.D.Align) != 0 {
			return fmt.Errorf("%v: %w", p, ErrAlign)
		}
		x, d = append(x, t.B), append(d, t.Out)
	}
	g.kernel.addSkinny(cmds, s, g.algo.Skinny, g.problems, sets[0].A, x, d, early)
	return nil
}

// TuneGroup measures kernels that do matmuls with one left operand at once against
// the matmuls one after the other, each as Tune left it: tune them before. If one
// wins by the margin it goes into the handle's tuning, else best is zero. Each entry of
// sets is one list of operands, with one A; o.Sets is ignored. Otherwise it is like
// Tune.
func (h *Handle) TuneGroup(ctx context.Context, s driver.Stream, ps []Problem, sets [][]Operands, o TuneOptions) (best Algo, all []Timing, err error) {
	if len(ps) < 2 || len(ps) > maxMembers || !h.canSkinny() {
		return Algo{}, nil, unsupported("a group of %d matmuls", len(ps))
	}
	for _, t := range sets {
		if len(t) != len(ps) {
			return Algo{}, nil, fmt.Errorf("%d operands for %d matmuls", len(t), len(ps))
		}
	}
	if err := h.Reserve(s); err != nil {
		return Algo{}, nil, err
	}
	o.defaults()
	apart := candidate{problems: ps}
	var plans []*Plan
	for i := range ps {
		l, err := h.Plan(ps[i])
		if err != nil {
			return Algo{}, nil, err
		}
		plans = append(plans, l)
	}
	apart.add = func(c *driver.Commands, t []Operands) error {
		for i, l := range plans {
			if err := l.AddTo(c, s, t[i].A, t[i].B, t[i].Out); err != nil {
				return err
			}
		}
		return nil
	}
	list := []candidate{apart}
	for _, k := range skinnyKernels(ps, o.SMs, o.Kernels) {
		c := candidate{algo: Algo{Skinny: k}, problems: ps}
		h.mu.Lock()
		g, err := h.groupWith(ps, c.algo)
		h.mu.Unlock()
		if c.err = err; err == nil {
			c.add = func(cmds *driver.Commands, t []Operands) error { return g.AddTo(cmds, s, t, false) }
		}
		list = append(list, c)
	}
	all, err = h.measureAll(ctx, s, list, sets, o)
	if err != nil {
		return Algo{}, all, fmt.Errorf("tuning of %s: %w", groupKey(ps), err)
	}
	if best = all[0].Algo; best != (Algo{}) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.opts.Tuning == nil {
			h.opts.Tuning = &Tuning{}
		}
		h.opts.Tuning.SetGroup(ps, best)
	}
	return best, all, nil
}
