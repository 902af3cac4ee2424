package intmath

import (
	"math"
	"testing"
)

func TestGCD(t *testing.T) {
	for a := range int64(60) {
		for b := range int64(60) {
			want := max(a, b) // of 0 and a number
			for d := int64(1); a > 0 && d <= a; d++ {
				if a%d == 0 && b%d == 0 {
					want = d
				}
			}
			if got := GCD(a, b); got != want {
				t.Errorf("GCD(%d, %d) = %d, want %d", a, b, got, want)
			}
		}
	}
	if got := GCD(math.MaxInt64, math.MaxInt64/7); got != math.MaxInt64/7 {
		t.Errorf("of the largest number and a seventh of it: %d", got) // 2^63-1 is a multiple of 7
	}
}

func TestProduct(t *testing.T) {
	for _, c := range []struct {
		list []int64
		want int64
	}{{nil, 1}, {[]int64{7}, 7}, {[]int64{2, 3, 4}, 24}, {[]int64{2, 0, 4}, 0}} {
		if got := Product(c.list); got != c.want {
			t.Errorf("Product(%v) = %d, want %d", c.list, got, c.want)
		}
	}
}
