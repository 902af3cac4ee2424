package lower

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
	"github.com/seed-ee968945/concert/program"
)

// Options says what a lowering depends on besides the function.
type Options struct {
	// Kernels writes CUDA source for every region, and turns every launch for which
	// lower/cudagen can write a kernel into a region of its own. What is left as a
	// launch by name has kernels elsewhere: matmul, attention, calls, rand. Sizes that
	// are known at run time only are parameters of kernels, whose grids are those of
	// the bounds. Without it, regions are fused launches without source, which run on the
	// host.
	Kernels bool

	// Unpacked lets no buffers share bytes where pass plan-memory has placed none: for programs
	// that are looked at and not run, as packing takes the longest.
	Unpacked bool
}

// FuncWith is [Func] with options. It is linear in the text of the kernels, too. With
// Options.Kernels a region for which no kernel can be written is taken apart into its nodes,
// and buffers are placed anew, without a limit; pass fuse forms none. Errors are Func's.
func FuncWith(f *ir.Func, o Options) (*program.Program, error) {
	for {
		p, refused, err := lowered(f, o)
		if err != nil || len(refused) == 0 {
			return p, err
		}
		if f, err = splitRefused(f, refused); err != nil {
			return nil, err
		}
	}
}

// errMisplaced says that a kernel cannot compute with its operands and results where
// annotations put them.
var errMisplaced = errors.New("the operands of a kernel lie where it cannot use them")

// isKernelError reports whether an error of writing a kernel is about that kernel, which
// then is left out.
func isKernelError(err error) bool {
	return errors.Is(err, cudagen.ErrUnsupported) || errors.Is(err, errMisplaced)
}

// splitRefused returns f in a copy of its module without the regions that no kernel could be
// written for, whose nodes become launches, and without results on operands where a
// kernel cannot have them so. Buffer offsets are decided again: what was inside a
// region needs bytes now.
func splitRefused(f *ir.Func, nodes []*ir.Node) (*ir.Func, error) {
	names := map[[2]string]bool{} // of functions and nodes; look-up only
	for _, n := range nodes {
		names[[2]string{n.Func().Name, n.Name()}] = true
	}
	m := f.Module().Clone()
	for _, g := range m.Funcs() {
		for _, n := range g.Order() {
			meta := n.Meta().Without(place.OffsetKey).Without(place.OperandOffsetKey)
			if names[[2]string{g.Name, n.Name()}] {
				meta = meta.Without(place.FusionKey).Without(place.InPlaceKey).Without(place.HomeKey)
			}
			if !meta.Equal(n.Meta()) {
				g.SetMeta(n, meta)
			}
		}
	}
	f = m.Func(f.Name)
	if err := f.Module().Verify(); err != nil {
		return nil, fmt.Errorf("lower: @%s, with regions taken apart: %w", f.Name, err)
	}
	return f, nil
}
