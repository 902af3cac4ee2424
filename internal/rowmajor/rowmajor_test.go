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

func TestDistinct(t *testing.T) {
	for _, c := range []struct {
		shape, strides, want []int64
		flat                 bool
	}{
		{[]int64{2, 3}, nil, []int64{2, 3}, false},
		{[]int64{2, 3}, []int64{1, 2}, []int64{2, 3}, false},
		{[]int64{2, 3}, []int64{0, 1}, []int64{1, 3}, false},
		{[]int64{3, 1, 2}, []int64{1, 1, 3}, []int64{3, 1, 2}, false},
		{[]int64{4, 3}, []int64{2, 1}, []int64{9}, true},                 // windows of three, two apart
		{[]int64{2, 8, 3}, []int64{100, 1, 1}, []int64{110}, true},       // with a gap that is larger than they are
		{[]int64{5, 4, 3}, []int64{0, 2, 1}, []int64{9}, true},           // repeated, too
		{[]int64{4, 3}, []int64{-2, 1}, []int64{9}, true},                // backwards
		{[]int64{4, 0, 3}, []int64{2, 1, 1}, []int64{4, 0, 3}, false},    // of nothing
		{[]int64{1, 4, 3}, []int64{1, 3, 1}, []int64{1, 4, 3}, false},    // one of them
		{[]int64{3, 2}, []int64{2, 3}, []int64{8}, true},                 // apart, which is not told
		{[]int64{1 << 40, 2}, []int64{2, 1}, []int64{1 << 40, 2}, false}, // many
	} {
		if got, flat := Distinct(c.shape, c.strides); !slices.Equal(got, c.want) || flat != c.flat {
			t.Errorf("Distinct(%v, %v) = %v, %v", c.shape, c.strides, got, flat)
		}
	}
}
