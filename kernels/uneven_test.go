package kernels

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestUnevenPlans are pieces that no scratch can serve, and sizes that contradict each other.
func TestUnevenPlans(t *testing.T) {
	const n = 4
	sc := Scratch{FlaggedHalf: 8 << 20}
	at := func(bytes ...uint64) (t Table) {
		for i, b := range bytes {
			t.Src[i], t.Send[i] = 1<<40, b
		}
		return t
	}
	for _, c := range []struct {
		sc   Scratch
		t    Table
		want string
	}{
		{sc, at(0, 1<<63), "slots of 2097152 bytes take"},
		{sc, at(0, math.MaxUint64-3), "ends beyond all addresses"},
		{sc, at(0, math.MaxUint64), "ends beyond all addresses"},
		{sc, at(3), "sends itself 3 bytes and expects 0"},
		{Scratch{FlaggedHalf: 4096}, at(0, 505), "slots of 1024 bytes take 504 (GroupOptions.Flagged)"},
		{sc, at(0, 0, 0, 5<<40), ""},
		{sc, at(0, 8, 0, 9), ""},
		{Scratch{FlaggedHalf: 4096}, at(0, 504), ""},
	} {
		_, err := PlanAllToAllV(c.t, n, 0, c.sc)
		var plan *PlanError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &plan) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.t.Send[:n], err, c.want)
		}
	}
}
