package nccl

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
)

var (
	onGPU   = flag.Bool("gpu", false, "run the conformance cases on the GPUs of this machine instead of the fake library")
	libPath = flag.String("nccl", "", "path of libnccl for the GPU tests")
)

// device is what the conformance cases need of one rank's device. The fake and the
// GPU give the same.
type device struct {
	ctx, stream uintptr
	alloc       func(n int) (uintptr, error)
	put         func(at uintptr, b []byte) error
	get         func(at uintptr, n int) ([]byte, error)
	done        func() (bool, error)
}

// value is element i of tensor k of rank r: small, so that sums are exact.
func value(r, k, i int) float64 { return float64((i*7+r*3+k)%5) + 1 }

func putNumber(t dtype.DType, b []byte, v float64) {
	if t.IsFloat() {
		dtype.StoreFloat(t, b, v)
	} else {
		dtype.StoreInt(t, b, int64(v))
	}
}

func getNumber(t dtype.DType, b []byte) float64 {
	if t.IsFloat() {
		return dtype.LoadFloat(t, b)
	}
	return float64(dtype.LoadInt(t, b))
}

// operand is what rank r gives of tensor k.
func operand(t dtype.DType, r, k, n int) []byte {
	b := make([]byte, n*t.Size())
	for i := range n {
		putNumber(t, b[i*t.Size():], value(r, k, i))
	}
	return b
}

// reduced is the reduction of all ranks' operands.
func reduced(t dtype.DType, red Reduction, ranks, k, n int) []byte {
	ins := make([][]byte, ranks)
	for r := range ins {
		ins[r] = operand(t, r, k, n)
	}
	return reduceAll(t, red, ins)
}

// testCase is one op on one type.
type testCase struct {
	kind    Kind
	t       dtype.DType
	red     Reduction
	counts  []int // one tensor each
	inPlace bool
	uneven  bool
	root    int
	pairs   []int
}

func (c testCase) String() string {
	return fmt.Sprintf("%v %v %v %v inplace=%v uneven=%v root=%d pairs=%v", c.kind, c.red, c.t, c.counts, c.inPlace, c.uneven, c.root, c.pairs)
}

// cases lists everything that is held on every device.
func cases(n int) []testCase {
	var out []testCase
	several := []int{5, 0, 1, 1000, 4099}
	types := []dtype.DType{dtype.F32, dtype.F16, dtype.BF16, dtype.F64, dtype.I64, dtype.I32, dtype.I8, dtype.U8, dtype.U32, dtype.U64}
	for _, t := range types {
		for red := Sum; red <= Max; red++ {
			if red == Avg && !t.IsFloat() {
				continue
			}
			for _, in := range []bool{false, true} {
				out = append(out, testCase{kind: AllReduce, t: t, red: red, counts: several, inPlace: in},
					testCase{kind: ReduceScatter, t: t, red: red, counts: several, inPlace: in},
					testCase{kind: Reduce, t: t, red: red, counts: several, inPlace: in, root: n - 1})
			}
		}
	}
	ring := []int{}
	for r := range n {
		ring = append(ring, r, (r+1)%n)
	}
	for _, t := range append(types, dtype.Bool, dtype.I16, dtype.U16, dtype.F8E4M3FN, dtype.F8E5M2) {
		for _, in := range []bool{false, true} {
			out = append(out, testCase{kind: AllGather, t: t, counts: several, inPlace: in},
				testCase{kind: AllToAll, t: t, counts: several, inPlace: in},
				testCase{kind: Broadcast, t: t, counts: several, inPlace: in, root: n - 1},
				testCase{kind: Permute, t: t, counts: several, inPlace: in, pairs: ring},
				testCase{kind: Permute, t: t, counts: several, inPlace: in, pairs: []int{0, n - 1}},
				testCase{kind: Permute, t: t, counts: several, inPlace: in})
		}
		out = append(out, testCase{kind: AllToAll, t: t, counts: several, uneven: true})
	}
	large := 1 << 14
	if *onGPU {
		large = 1 << 20
	}
	return append(out, testCase{kind: AllReduce, t: dtype.F32, counts: []int{3 * large}},
		testCase{kind: AllReduce, t: dtype.F32, counts: []int{0}}, testCase{kind: AllToAll, t: dtype.F32, counts: []int{large}})
}

// split is how many elements rank from sends to rank to in an uneven all_to_all of
// about count elements a part; some are none.
func split(from, to, count int) int { return count * ((from*3 + to*2) % 4) / 3 }

// io gives operand and expected result of tensor k, and how many bytes of each
// rank's piece the op is told.
func (c testCase) io(k, rank, n int) (in, out []byte, t Tensor) {
	count, s := c.counts[k], c.t.Size()
	t.Bytes = uint64(count * s)
	switch c.kind {
	case AllReduce, Reduce:
		in, out = operand(c.t, rank, k, count), reduced(c.t, c.red, n, k, count)
	case ReduceScatter:
		in = operand(c.t, rank, k, count*n)
		out = reduced(c.t, c.red, n, k, count*n)[rank*count*s:][:count*s]
	case AllGather:
		in = operand(c.t, rank, k, count)
		for r := range n {
			out = append(out, operand(c.t, r, k, count)...)
		}
	case AllToAll:
		part := func(from, to int) []byte { // what from sends to to
			if c.uneven {
				at := 0
				for r := range to {
					at += split(from, r, count)
				}
				return operand(c.t, from, k, at+split(from, to, count))[at*s:]
			}
			return operand(c.t, from, k, count*n)[to*count*s:][:count*s]
		}
		for r := range n {
			in, out = append(in, part(rank, r)...), append(out, part(r, rank)...)
			if c.uneven {
				t.SendBytes = append(t.SendBytes, uint64(len(part(rank, r))))
				t.RecvBytes = append(t.RecvBytes, uint64(len(part(r, rank))))
			}
		}
	case Broadcast:
		in, out = operand(c.t, rank, k, count), operand(c.t, c.root, k, count)
	case Permute:
		in, out = operand(c.t, rank, k, count), make([]byte, count*s)
		for i := 0; i < len(c.pairs); i += 2 {
			if c.pairs[i+1] == rank {
				out = operand(c.t, c.pairs[i], k, count)
			}
		}
	}
	return in, out, t
}

const guard = 64 // bytes around every result that must stay as they are

// bufs is where a tensor of a case is.
type bufs struct {
	in, out []byte
	at      uintptr // of the guarded result
	t       Tensor
}

// place puts tensor k into device memory at *top, which it moves.
func (c testCase) place(d device, top *uintptr, k, rank, n int) (b bufs, err error) {
	take := func(n int) uintptr {
		at := *top
		*top += uintptr(n+255) &^ 255
		return at
	}
	b.in, b.out, b.t = c.io(k, rank, n)
	b.at = take(len(b.out) + 2*guard)
	frame := bytes.Repeat([]byte{0xa5}, len(b.out)+2*guard)
	b.t.Dst = b.at + guard
	switch {
	case !c.inPlace:
		b.t.Src = take(len(b.in))
		if err := d.put(b.at, frame); err != nil {
			return b, err
		}
		return b, d.put(b.t.Src, b.in)
	case c.kind == AllGather:
		b.t.Src = b.t.Dst + uintptr(rank*len(b.in))
	case c.kind == ReduceScatter: // the result is a piece of the operand: no guards within
		b.t.Src = take(len(b.in))
		b.t.Dst = b.t.Src + uintptr(rank*len(b.out))
		b.at = b.t.Dst - guard
		return b, d.put(b.t.Src, b.in)
	default:
		b.t.Src = b.t.Dst
	}
	if err := d.put(b.at, frame); err != nil {
		return b, err
	}
	return b, d.put(b.t.Src, b.in)
}

// verify compares the result of a tensor with what it must be.
func (c testCase) verify(d device, b bufs, rank int) error {
	want := b.out
	if c.kind == Reduce && rank != c.root {
		if !c.inPlace {
			want = bytes.Repeat([]byte{0xa5}, len(want))
		} else {
			want = b.in
		}
	}
	got, err := d.get(b.t.Dst, len(want))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		s := c.t.Size()
		for i := 0; i < len(got); i += s {
			g, w := getNumber(c.t, got[i:]), getNumber(c.t, want[i:])
			if c.red != Avg && g != w || math.Abs(g-w) > 0.02*math.Abs(w) {
				return fmt.Errorf("element %d is %v, want %v", i/s, g, w)
			}
		}
	}
	if c.inPlace && c.kind == ReduceScatter {
		return nil
	}
	for _, at := range []uintptr{b.at, b.at + guard + uintptr(len(b.out))} {
		g, err := d.get(at, guard)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(g, func(x byte) bool { return x != 0xa5 }) {
			return fmt.Errorf("guard bytes at %#x were written", at)
		}
	}
	return nil
}

// arenaBytes is device memory that conform needs.
const arenaBytes = 96 << 20

// conform runs every case on one rank; all ranks run it at once.
func conform(cx context.Context, c *Comm, d device) error {
	base, err := d.alloc(arenaBytes)
	if err != nil {
		return err
	}
	for _, tc := range cases(c.Size()) {
		op := Op{Kind: tc.kind, Reduce: tc.red, DType: tc.t, Root: tc.root, Pairs: tc.pairs, Label: tc.String()}
		top := base
		var all []bufs
		for k := range tc.counts {
			b, err := tc.place(d, &top, k, c.Rank(), c.Size())
			if err != nil {
				return fmt.Errorf("%v: %w", tc, err)
			}
			all = append(all, b)
			op.Tensors = append(op.Tensors, b.t)
		}
		op.Scratch, op.ScratchBytes = top, op.NeedsScratch(c.Size())
		if err := c.Run(cx, d.stream, op); err != nil {
			return fmt.Errorf("%v: %w", tc, err)
		}
		if err := c.Wait(cx, tc.String(), d.done); err != nil {
			return err
		}
		for k, b := range all {
			if err := tc.verify(d, b, c.Rank()); err != nil {
				return fmt.Errorf("rank %d: %v: tensor %d: %w", c.Rank(), tc, k, err)
			}
		}
	}
	return nil
}
