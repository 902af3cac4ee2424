package ir

import "github.com/seed-ee968945/concert/internal/dim"

// Dim is one dimension of a shape: a number, or an expression over the module's
// symbols such as 2*s0+1 or (s0+1)//2. The zero Dim is 0.
type Dim = dim.Dim

// D returns a constant dimension.
func D(n int64) Dim { return dim.New(n) }

// Sym returns the dimension that a symbol names.
func Sym(name string) Dim { return dim.Sym(name) }

// ParseDim reads a dimension expression. The error says what was expected and at which
// character.
func ParseDim(s string) (Dim, error) { return dim.Parse(s) }
