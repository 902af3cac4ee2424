// Package prelude is the CUDA header included by kernels for any
// element type: those that package lower/cudagen generates, and those that the device
// compiles for itself.
package prelude

import (
	_ "embed"

	"github.com/seed-ee968945/concert/internal/dtype"
)

var (
	//go:embed types.cuh
	types string
	//go:embed elementwise.cuh
	elementwise string
	//go:embed reduce.cuh
	reduce string
	//go:embed scatter.cuh
	scatter string

	// Source is the text.
	Source = types + elementwise + reduce + scatter
)

// Options are the compiler options that numbers of kernels behind it rely on. The caller
// adds those that choose the device.
func Options() []string {
	return []string{"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"}
}

// Type is the name of an element type in memory.
func Type(t dtype.DType) string {
	if t == dtype.Bool {
		return "b8"
	}
	return t.String()
}

// Held is the name of the type as which elements are computed with: f64 if one of the
// types is, else f32 if one is a float, else u64 if one is, else i64.
func Held(ts ...dtype.DType) string {
	d := "i64"
	for _, t := range ts {
		switch {
		case t == dtype.F64:
			return "f64"
		case t.IsFloat():
			d = "f32"
		case t == dtype.U64 && d == "i64":
			d = "u64"
		}
	}
	return d
}
