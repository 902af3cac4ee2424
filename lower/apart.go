package lower

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// Fusable returns the predicate that says what one kernel can compute in f, for
// passes.Manager.Fusable: with it, pass fuse leaves no region that FuncWith would have
// to take apart. It writes the kernel that lowering would, which takes time
// linear in its text.
func Fusable(f *ir.Func) (func(nodes []*ir.Node) error, error) {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil, err
	}
	return func(nodes []*ir.Node) error {
		_, err := cudagen.Generate("k", st, nodes)
		return err
	}, nil
}

// errMisplaced says that a kernel cannot compute with its operands and results where
// annotations put them.
var errMisplaced = errors.New("the operands of a kernel lie where it cannot use them")

// refused reports whether an error of writing a kernel is about that kernel, which
// then is left out.
func refused(err error) bool {
	return errors.Is(err, cudagen.ErrUnsupported) || errors.Is(err, errMisplaced)
}

// apart returns f in a copy of its module without the regions that no kernel could be
// written for, whose nodes become launches, and without results on operands where a
// kernel cannot have them so. Where buffers lie is decided anew: what was inside a
// region needs bytes now.
func apart(f *ir.Func, nodes []*ir.Node) (*ir.Func, error) {
	names := map[string]bool{} // look-up only
	for _, n := range nodes {
		names[n.Name()] = true
	}
	f = f.Module().Clone().Func(f.Name)
	for _, n := range f.Order() {
		meta := n.Meta().Without(place.OffsetKey).Without(place.OperandOffsetKey)
		if names[n.Name()] {
			meta = meta.Without(place.FusionKey).Without(place.InPlaceKey).Without(place.HomeKey)
		}
		if !meta.Equal(n.Meta()) {
			f.SetMeta(n, meta)
		}
	}
	if err := f.Module().Verify(); err != nil {
		return nil, fmt.Errorf("lower: @%s, with regions taken apart: %w", f.Name, err)
	}
	return f, nil
}
