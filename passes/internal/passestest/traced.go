package passestest

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// Traced is the module of a traced graph.
func Traced(t testing.TB, file string) *ir.Module {
	t.Helper()
	src, err := fx.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.Import()
	if err != nil {
		t.Fatal(err)
	}
	return r.Module
}
