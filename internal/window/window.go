// Package window is the arithmetic of sliding windows, for
// convolutions and window reductions. Type rules, host kernels
// and generated kernels share it, so that they cannot disagree.
//
// Along a dimension the operand is dilated by Base, then padded by Low and High elements
// (negative: cropped). Window o begins at
// position o*Stride of the result and has Size elements, Dilation apart.
package window

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// The attributes, each a list with a number for every dimension, padding with two.
const (
	StridesKey  = "strides"         // distance of windows, 1 if absent
	PaddingKey  = "padding"         // low, high, low, high, ...; 0 if absent
	BaseKey     = "base_dilation"   // distance of the operand's elements, 1 if absent
	DilationKey = "window_dilation" // distance of a window's places, 1 if absent
	ReverseKey  = "reverse"         // 1 where a window's places are counted from its end; 0 if absent
)

// Dim is the window along one dimension.
type Dim struct {
	Size, Stride, Low, High, Base, Dilation int64
	Reverse                                 bool
}

// limit bounds every number, so that places fit 64 bits.
const limit = 1 << 30

// Parse reads the attributes of a window of the given sizes.
func Parse(ints func(key string) []int64, sizes []int64) ([]Dim, error) {
	read := func(key string, each int, def int64) ([]int64, error) {
		l := ints(key)
		if l == nil {
			for range each * len(sizes) {
				l = append(l, def)
			}
		}
		if len(l) != each*len(sizes) {
			return nil, fmt.Errorf("%s has %d numbers, want %d for %d dimensions", key, len(l), each*len(sizes), len(sizes))
		}
		for _, n := range l {
			if n < def && key != PaddingKey || n > limit || n < -limit || key == ReverseKey && n > 1 {
				return nil, fmt.Errorf("%s has a number %d", key, n)
			}
		}
		return l, nil
	}
	var lists [5][]int64
	for i, key := range [5]string{StridesKey, PaddingKey, BaseKey, DilationKey, ReverseKey} {
		each, def := 1, int64(1)
		switch key {
		case PaddingKey:
			each, def = 2, 0
		case ReverseKey:
			def = 0
		}
		var err error
		if lists[i], err = read(key, each, def); err != nil {
			return nil, err
		}
	}
	out := make([]Dim, len(sizes))
	for d, n := range sizes {
		if n < 0 || n > limit {
			return nil, fmt.Errorf("a window of size %d", n)
		}
		out[d] = Dim{n, lists[0][d], lists[1][2*d], lists[1][2*d+1], lists[2][d], lists[3][d], lists[4][d] == 1}
	}
	return out, nil
}

// Reach is how many places the window covers, those between its own included.
func (d Dim) Reach() int64 { return max((d.Size-1)*d.Dilation+1, 0) }

// Span is how many places n elements have.
func (d Dim) Span(n int64) int64 { return max((n-1)*d.Base+1, 0) + d.Low + d.High }

// Count is how many windows there are over n elements.
func (d Dim) Count(n int64) int64 {
	if rest := d.Span(n) - d.Reach(); rest >= 0 && d.Size > 0 {
		return rest/d.Stride + 1
	}
	return 0
}

// Tap is the place that number k of a window's places has, counted from its front.
func (d Dim) Tap(k int64) int64 {
	if d.Reverse {
		return d.Size - 1 - k
	}
	return k
}

// Phase is a set of windows that meet elements at the same of their places, and nothing
// but elements and padding there: what base dilation puts between elements lies under
// none of these places.
type Phase struct {
	// Windows First, First+Step, ..., Count of them.
	First, Step, Count int64
	// Places Tap, Tap+TapStep, ..., Taps of them, of the window counted from its front.
	Tap, TapStep, Taps int64
	// Place i of window j is element Start + i*TapMove + j*Move.
	Start, TapMove, Move int64
}

// Phases lists the phases of count windows, all windows in all.
func (d Dim) Phases(count int64) []Phase {
	step, taps := d.Base/intmath.GCD(d.Base, d.Stride), d.Base/intmath.GCD(d.Base, d.Dilation)
	var out []Phase
	for first := range min(step, count) {
		p := Phase{First: first, Step: step, Count: (count - first + step - 1) / step,
			TapStep: taps, TapMove: taps * d.Dilation / d.Base, Move: step * d.Stride / d.Base}
		for tap := range min(taps, d.Size) {
			if at := first*d.Stride + tap*d.Dilation - d.Low; at%d.Base == 0 {
				p.Tap, p.Taps, p.Start = tap, (d.Size-tap+taps-1)/taps, at/d.Base
				break
			}
		}
		out = append(out, p)
	}
	return out
}
