package device

import (
	"github.com/seed-ee968945/concert/cuda/cudnn"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/lt"
)

// Paths say where libraries lie that the loader would not find; the zero value is for
// those it finds.
type Paths struct {
	CuBLASLt string        // the library itself
	CuDNN    cudnn.Options // its folder, and what it needs
}

// Standard are cuBLASLt for products and cuDNN for attention.
func Standard(p Paths) []OpenLibrary {
	return []OpenLibrary{
		func(e LibraryEnv) (library.Library, error) {
			l, err := lt.Open(e.Driver, p.CuBLASLt)
			if err != nil {
				return nil, err
			}
			return l.Serve(e.Rank.Ctx, lt.Options{}, lt.Config{})
		},
		func(e LibraryEnv) (library.Library, error) { return cudnn.Open(e.Driver, e.Rank, p.CuDNN) },
	}
}
