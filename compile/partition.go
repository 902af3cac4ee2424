package compile

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sharding"
)

// PartitionOptions are for [Partition]; the zero value keeps the program's precision.
type PartitionOptions struct {
	// NarrowSums has the parts of a sum over ranks rounded to 16-bit floats where the program
	// rounds the sum to them: half the bytes, as frameworks reduce gradients of 16-bit weights.
	NarrowSums bool
}

// Partition makes of a module's global functions, which say how values lie on a mesh, those of
// each rank's pieces. It comes before [Compile]: inputs and results get the types of pieces. The error is a
// *passes.PassError and says which value cannot be cut.
func Partition(m *ir.Module, o PartitionOptions) error {
	if !slices.ContainsFunc(m.Funcs(), sharding.Annotated) {
		return nil
	}
	p, err := standard.Table().Parse(fmt.Sprintf("spmd{narrow-sums=%v}", o.NarrowSums))
	if err != nil {
		return err
	}
	_, err = (&passes.Manager{}).Run(m, p)
	return err
}

// PartitionProved is [Partition] with a proof that the ranks compute what the global functions
// do, but for rounding and the order of sums, by package equiv/mesh, which shares nothing with the
// pass. The error wraps a *mesh.Error where no proof was found.
func PartitionProved(m *ir.Module, o PartitionOptions) error {
	global := m.Clone()
	if err := Partition(m, o); err != nil {
		return err
	}
	for _, f := range global.Funcs() {
		if !sharding.Annotated(f) {
			continue
		}
		how, err := mesh.Annotated(f, m.Func(f.Name))
		if err == nil {
			_, err = mesh.Check(f, m.Func(f.Name), how)
		}
		if err != nil {
			return fmt.Errorf("@%s: %w", f.Name, err)
		}
	}
	return nil
}
