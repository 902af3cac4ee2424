package attention

import (
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// form is a kind of kernel.
type form int

const (
	nothing form = iota // no rows
	simple
	short
	tiled
)

// Shapes of the kernels, as in their sources.
const (
	shortRows  = 16
	shortKeys  = 512 // most keys of the short kernels
	shortWarps = 8
	// The backward pass is one launch up to so many queries and keys.
	shortGradients = 256
	backwardWarps  = 4
	backwardCols   = 64
	forwardRows    = 128
	forwardCols    = 64
	widest         = 128 // of the kernels for half precision
	simpleWidth    = 128
	simpleWarps    = 4
)

// seen is how many keys the last query sees.
func (p *Problem) seen() int64 {
	if p.Causal {
		return min(p.Keys, p.Queries)
	}
	return p.Keys
}

// Prefer says that the kernels of this package do a call faster than cuDNN's
// reproducible engines: those of short sequences, while every block of the launch is on
// the device at once, 8 warps a multiprocessor. Microseconds on an H200, head width
// 128, bf16, against cuDNN 9.19, as batch * heads x length:
//
//	forward              ours  cuDNN      backward     ours  cuDNN
//	8x16                  2.9    9.1      8x16          4.3   12.4
//	32x16, 8 key heads    2.9    9.3      32x16         9.1   16.5
//	8x32                  3.4    9.1      8x32          5.1   12.6
//	8x64                  3.4    9.3      8x64          6.6   12.7
//	64*8x16               3.6   19.0      64*8x16       9.1   28.3
//	8x128                 4.2    9.2      8x128        10.4   15.9
//	8x256                 5.4   10.5      8x256        17.7   21.7
//	1 of 128, 32 heads    4.0
//	1 of 512, 32 heads    7.2
//	16 of 512, 8 heads    7.3   12.9
//	64 of 256, 8 heads    5.6    9.8
//
// and, by the tiled kernels, not preferred, for little is gained where anything is:
//
//	64*8x64              15.4   19.1      64*8x64      42.1   40.4
//	8x512                12.6   13.7      8x512        45.4   32.8
//	8x2048               50.2   32.1      8x2048      185.6  122.0
//
// Forward calls that fit have at most 512 keys. Backward, the longest block walks over
// all queries of all heads that share its keys, 64 at a time: it does at most the four
// steps of 8x256. For one query cuDNN has only its engine 1, which package cudnn refuses
// where results must not differ from run to run.
func Prefer(p *Problem) bool {
	if formOf(p) != short || !p.resident() {
		return false
	}
	if p.Op == Backward {
		steps := (max(p.Queries, p.Keys) + backwardCols - 1) / backwardCols
		return p.Heads/p.KeyHeads*steps <= shortGradients/backwardCols
	}
	return p.Queries <= preferredQueries
}

// preferredQueries is the most queries of a forward call that Prefer names.
const preferredQueries = 256

// Of the devices that the kernels are made for. A device with fewer multiprocessors
// runs the same kernels in more turns; the choice must be the same on all ranks.
const (
	multiprocessors = 132
	warpsAtOnce     = 8 // of the short kernels, on a multiprocessor, by their registers
)

// resident says that all warps of a short call are on the device at once.
func (p *Problem) resident() bool {
	n := int64(multiprocessors)
	if p.SMs > 0 {
		n = min(n, int64(p.SMs))
	}
	rows, warps, all := int64(shortRows), p.shortWarps(), float64(p.Batch*p.Heads)
	if p.Op == Backward {
		warps, _ = p.gradientShape()
		rows = 16 * warps
	}
	all *= float64((p.Queries + rows - 1) / rows)
	if p.Op == Backward {
		all += float64(p.Batch*p.KeyHeads) * float64((p.Keys+rows-1)/rows)
	}
	return all*float64(warps) <= float64(n*warpsAtOnce)
}

// formOf chooses the kernels.
func formOf(p *Problem) form {
	rows := p.Batch * p.Heads * p.Queries
	if p.Op == Backward {
		rows += p.Batch * p.KeyHeads * p.Keys
	}
	switch {
	case rows == 0:
		return nothing
	case !p.half():
		return simple
	case p.Op == Backward && max(p.Queries, p.Keys) <= shortGradients:
		return short
	case p.Op == Forward && p.seen() <= shortKeys && (p.Queries <= shortRows || p.resident()):
		// Beyond one turn, a block of 16 queries reads keys and values too often.
		return short
	}
	return tiled
}

// workspace is what the kernels of a form need for a call.
func (f form) workspace(p *Problem) uint64 {
	if f == tiled && p.Op == Backward {
		return 4 * uint64(p.Batch*p.Heads*p.Queries)
	}
	return 0
}

// half says that a call suits the kernels of half precision: rows are contiguous and
// begin at multiples of 16 bytes.
func (p *Problem) half() bool {
	if p.DType != dtype.BF16 && p.DType != dtype.F16 || p.LSE.DType != dtype.F32 || p.Empty() {
		return false
	}
	if p.Dim%8 != 0 || p.DimV%8 != 0 || max(p.Dim, p.DimV) > widest {
		return false
	}
	if p.Bias != nil && p.Bias.DType != p.DType && p.Bias.DType != dtype.F32 {
		return false
	}
	for _, t := range p.wide() {
		if t.DType != p.DType || t.Strides[3] != 1 || t.At%16 != 0 {
			return false
		}
		for i := range 3 {
			if t.Shape[i] > 1 && t.Strides[i]%8 != 0 {
				return false
			}
		}
	}
	return true
}

// wide are the tensors of the problem's type.
func (p *Problem) wide() []*library.Tensor {
	ts := []*library.Tensor{&p.Q, &p.K, &p.V, &p.Out}
	if p.Op == Backward {
		ts = append(ts, &p.Grad, &p.DQ, &p.DK, &p.DV)
	}
	return ts
}
