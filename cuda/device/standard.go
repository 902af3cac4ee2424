package device

import (
	"fmt"
	"sync"

	"github.com/seed-ee968945/concert/cuda/attention"
	"github.com/seed-ee968945/concert/cuda/cudnn"
	"github.com/seed-ee968945/concert/cuda/gemm"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/cuda/wgmma"
	"github.com/seed-ee968945/concert/kernels"
)

// Paths say where libraries are that the loader would not find, and how they are used;
// the zero value is for those it finds.
type Paths struct {
	CuBLASLt string        // the library itself
	CuDNN    cudnn.Options // its folder, and what it needs
	NoCuDNN  bool          // attention and convolutions by our own kernels alone
}

// Standard are cuBLASLt for matmuls, and where it is not installed our own kernels for
// Hopper's tensor cores; for attention our own kernels where sequences are short, and
// cuDNN; and cuDNN for convolutions. What they do not serve, or where they are not installed, kernels of our own do,
// which every device has.
func Standard(p Paths) []OpenLibrary {
	images := sync.OnceValues(kernels.NewSet)
	out := []OpenLibrary{
		func(e LibraryEnv) (library.Library, error) {
			l, err := lt.Open(e.Driver, p.CuBLASLt)
			if err != nil {
				return nil, err
			}
			tuning := e.Matmuls
			if tuning == nil {
				tuning = lt.Known(e.Rank.Info.Name, l.Version())
			}
			if tuning != nil && !tuning.Fits(e.Rank.Info.Name, l.Version()) {
				return nil, fmt.Errorf("the tuning of matmuls is for another GPU than %s or another library than cuBLASLt %d", e.Rank.Info.Name, l.Version())
			}
			return l.Serve(e.Rank.Ctx, lt.Options{Tuning: tuning, Compile: compileWith(e, "--std=c++17")}, lt.Config{})
		},
		func(e LibraryEnv) (library.Library, error) {
			set, err := images()
			if err != nil {
				return nil, err
			}
			l, err := wgmma.Open(e.Driver, e.Rank.Ctx, e.Rank.Info, set)
			if err != nil {
				return nil, err
			}
			l.Early = e.Early
			return l, nil
		},
		ownAttention(true),
	}
	if !p.NoCuDNN {
		out = append(out, func(e LibraryEnv) (library.Library, error) {
			o := p.CuDNN
			o.Compile = e.Compile
			return cudnn.Open(e.Driver, e.Rank, o)
		})
	}
	return out
}

// own serves what no library before it does, on every device.
func own() []OpenLibrary {
	return []OpenLibrary{ownAttention(false), func(e LibraryEnv) (library.Library, error) {
		return gemm.Open(e.Driver, e.Rank.Ctx, e.Compile, e.Log)
	}}
}

func ownAttention(short bool) OpenLibrary {
	return func(e LibraryEnv) (library.Library, error) {
		return attention.Open(e.Driver, e.Rank, attention.Options{Compile: e.Compile, Short: short, Log: e.Log})
	}
}

// compileWith is the environment's compiler with fixed options, nil on the fake driver.
func compileWith(e LibraryEnv, options ...string) func(name, source string) ([]byte, error) {
	if newHostKernels(e.Driver) != nil {
		return nil
	}
	return func(name, source string) ([]byte, error) { return e.Compile(name, source, options...) }
}
