package pack

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// conflict is the definition of conflict, written out.
func conflict(p *Problem, i, j int) bool {
	a, b := p.Buffers[i], p.Buffers[j]
	return max(a.Lower, b.Lower) < min(a.Upper, b.Upper)
}

// BestFit is Solve without a search.
func BestFit(p Problem) (offsets []int64, height int64, err error) {
	r, err := Solve(context.Background(), p, Options{Steps: -1})
	return r.Offsets, r.Height, err
}

// naiveCheck is the independent O(n^2) checker.
func naiveCheck(p *Problem, offsets []int64, height int64) bool {
	for i, a := range p.Buffers {
		o := offsets[i]
		if o < 0 || o%max(a.Align, 1) != 0 || a.Pinned && o != a.Offset || a.Size > 0 && o+a.Size > height {
			return false
		}
		for j := range i {
			b := p.Buffers[j]
			if conflict(p, i, j) && max(o, offsets[j]) < min(o+a.Size, offsets[j]+b.Size) {
				return false
			}
		}
	}
	return true
}

// A kind says what random problems contain.
type kind struct {
	n, clock, size  int
	aligned, pinned bool
}

// randomProblem makes a problem in which pinned buffers never clash.
func randomProblem(r *rand.Rand, k kind) Problem {
	var p Problem
	for range k.n {
		lo := r.IntN(k.clock)
		b := Buffer{Lower: int64(lo), Upper: int64(lo + 1 + r.IntN(k.clock-lo)), Size: int64(r.IntN(k.size + 1))}
		if r.IntN(10) == 0 {
			b.Upper = b.Lower
		}
		if k.aligned {
			b.Align = []int64{0, 1, 2, 3, 4, 8}[r.IntN(6)]
		}
		p.Buffers = append(p.Buffers, b)
	}
	if k.pinned {
		for i := range p.Buffers {
			b := &p.Buffers[i]
			if r.IntN(4) != 0 {
				continue
			}
			b.Pinned, b.Offset = true, int64(r.IntN(2*k.size))*max(b.Align, 1)
			for j := range p.Buffers {
				if c := p.Buffers[j]; j != i && c.Pinned && conflict(&p, i, j) && max(b.Offset, c.Offset) < min(b.Offset+b.Size, c.Offset+c.Size) {
					b.Pinned = false
				}
			}
		}
	}
	return p
}

var kinds = map[string]kind{
	"plain":   {n: 6, clock: 6, size: 6},
	"tall":    {n: 7, clock: 3, size: 9},
	"wide":    {n: 7, clock: 12, size: 4},
	"aligned": {n: 6, clock: 6, size: 9, aligned: true},
	"pinned":  {n: 6, clock: 6, size: 6, pinned: true},
	"all":     {n: 6, clock: 6, size: 7, aligned: true, pinned: true},
}

func TestVerifyAgreesWithDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	good, bad := 0, 0
	for name, k := range kinds {
		for range 3000 {
			p := randomProblem(r, k)
			offsets := make([]int64, len(p.Buffers))
			for i, b := range p.Buffers {
				offsets[i] = int64(r.IntN(6*k.size)) - int64(r.IntN(20)/19)
				if r.IntN(10) != 0 {
					offsets[i] -= offsets[i] % max(b.Align, 1)
				}
				if b.Pinned && r.IntN(20) != 0 {
					offsets[i] = b.Offset
				}
			}
			h := p.Height(offsets) - int64(r.IntN(10)/9)
			want := naiveCheck(&p, offsets, h)
			err := Verify(p, offsets, h)
			if (err == nil) != want {
				t.Fatalf("%s: Verify(%+v, %v, %d) = %v, definition says %v", name, p, offsets, h, err, want)
			}
			if want {
				good++
			} else {
				bad++
			}
		}
	}
	if good < 500 || bad < 500 {
		t.Errorf("the sample is lopsided: %d correct placements, %d wrong ones", good, bad)
	}
}

func TestVerifyErrors(t *testing.T) {
	p := Problem{Buffers: []Buffer{{Lower: 0, Upper: 2, Size: 4}, {Lower: 1, Upper: 3, Size: 4, Align: 4}, {Lower: 5, Upper: 6, Size: 1}}}
	for _, c := range []struct {
		offsets []int64
		height  int64
		want    string
	}{
		{[]int64{0, 4, 0}, 8, ""},
		{[]int64{0, 4}, 8, "2 offsets for 3 buffers"},
		{[]int64{0, 4, 0}, 7, "buffer 1: [4, +4) ends above the height 7"},
		{[]int64{0, 5, 0}, 9, "buffer 1: offset 5 is not a multiple of its alignment 4"},
		{[]int64{-1, 4, 0}, 8, "buffer 0: offset -1 is negative"},
		{[]int64{1, 4, 0}, 8, "buffers 0 at [1,5) and 1 at [4,8) conflict but share bytes"},
	} {
		got := ""
		if err := Verify(p, c.offsets, c.height); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("Verify(%v, %d) = %q, want %q", c.offsets, c.height, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	ok := Buffer{Lower: 0, Upper: 1, Size: 1}
	for _, c := range []struct {
		p    Problem
		want string
	}{
		{Problem{}, ""},
		{Problem{Buffers: []Buffer{ok, {Lower: 3, Upper: 3}}}, ""},
		{Problem{Buffers: []Buffer{ok, {Lower: 3, Upper: 2}}}, "buffer 1: lifetime [3,2) ends before it starts"},
		{Problem{Buffers: []Buffer{{Size: -1}}}, "size -1 is negative"},
		{Problem{Buffers: []Buffer{{Align: -8}}}, "alignment -8 is negative"},
		{Problem{Buffers: []Buffer{{Pinned: true, Offset: -8}}}, "pinned offset -8 is negative"},
		{Problem{Buffers: []Buffer{{Pinned: true, Offset: 6, Align: 4}}}, "not a multiple of its alignment 4"},
		{Problem{Buffers: []Buffer{{Pinned: true, Offset: 1 << 62, Size: 1}}}, "ends beyond"},
		{Problem{Buffers: []Buffer{{Size: 1 << 60}}}, "exceeds"},
		{Problem{Buffers: []Buffer{{Size: 1 << 55}, {Size: 1 << 55}, {Size: 1}}}, "buffer 2: sizes and alignments up to here exceed"},
	} {
		err := c.p.Check()
		if c.want == "" {
			if err != nil {
				t.Errorf("Check(%+v) = %v", c.p, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrProblem) {
			t.Errorf("Check(%+v) = %v, want an ErrProblem with %q", c.p, err, c.want)
		}
	}
}

func TestLowerBound(t *testing.T) {
	for _, c := range []struct {
		buffers []Buffer
		want    int64
	}{
		{nil, 0},
		{[]Buffer{{Lower: 0, Upper: 2, Size: 3}, {Lower: 2, Upper: 4, Size: 5}}, 5},
		{[]Buffer{{Lower: 0, Upper: 3, Size: 3}, {Lower: 2, Upper: 4, Size: 5}}, 8},
		// Only the topmost may end at an odd place.
		{[]Buffer{{Lower: 0, Upper: 1, Size: 3, Align: 8}, {Lower: 0, Upper: 1, Size: 5, Align: 16}}, 11},
		{[]Buffer{{Lower: 0, Upper: 1, Size: 3, Pinned: true, Offset: 100}}, 103},
		{[]Buffer{{Lower: 4, Upper: 4, Size: 9}}, 9},
	} {
		got, err := LowerBound(Problem{Buffers: c.buffers})
		if err != nil || got != c.want {
			t.Errorf("LowerBound(%+v) = %d, %v, want %d", c.buffers, got, err, c.want)
		}
	}
}

func TestRankSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 63, 64, 65, 5000} {
		s, in := newRankSet(n), make([]bool, n)
		for range 2000 {
			i := r.IntN(n)
			if in[i] {
				s.remove(i)
			} else {
				s.add(i)
			}
			in[i] = !in[i]
			q := r.IntN(n)
			before, after := q-1, q+1
			for before >= 0 && !in[before] {
				before--
			}
			for after < n && !in[after] {
				after++
			}
			if after == n {
				after = -1
			}
			if s.before(q) != before || s.after(q) != after {
				t.Fatalf("n=%d: neighbours of %d are %d, %d, want %d, %d", n, q, s.before(q), s.after(q), before, after)
			}
		}
	}
}
