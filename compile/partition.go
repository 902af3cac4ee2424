package compile

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sharding"
)

// Partition makes of a module's global functions, which say how values lie on a mesh, those of
// each rank's pieces. It comes before [Compile]: inputs and results get the types of pieces. The error is a
// *passes.PassError and says which value cannot be cut.
func Partition(m *ir.Module) error {
	if !slices.ContainsFunc(m.Funcs(), sharding.Annotated) {
		return nil
	}
	p, err := standard.Table().Parse("spmd")
	if err != nil {
		return err
	}
	_, err = (&passes.Manager{}).Run(m, p)
	return err
}
