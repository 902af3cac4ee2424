package rowmajor

import (
	"slices"
	"testing"
)

func TestStrides(t *testing.T) {
	for _, c := range []struct{ shape, want []int64 }{
		{nil, []int64{}},
		{[]int64{5}, []int64{1}},
		{[]int64{2, 3, 4}, []int64{12, 4, 1}},
		{[]int64{2, 0, 4}, []int64{4, 4, 1}},
	} {
		got := Strides(c.shape)
		if !slices.Equal(got, c.want) {
			t.Errorf("Strides(%v) = %v, want %v", c.shape, got, c.want)
		}
	}
}

func TestIs(t *testing.T) {
	for _, c := range []struct {
		shape, strides []int64
		want           bool
	}{
		{nil, nil, true},
		{[]int64{2, 3}, []int64{3, 1}, true},
		{[]int64{2, 1, 3}, []int64{3, 99, 1}, true},
		{[]int64{2, 3}, []int64{1, 2}, false},
		{[]int64{2, 3}, []int64{4, 1}, false},
		{[]int64{2, 3}, []int64{0, 1}, false},
	} {
		if got := Is(c.shape, c.strides); got != c.want {
			t.Errorf("Is(%v, %v) = %v", c.shape, c.strides, got)
		}
	}
}
