package lt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

func bf16(shape, strides []int64) Operand {
	return Operand{Type: dtype.BF16, Shape: shape, Strides: strides}
}

func TestProblemOf(t *testing.T) {
	type v = []int64
	tests := []struct {
		name      string
		a, b, out Operand
		want      string // the key, or the error
	}{
		{"row-major", bf16(v{3, 4}, v{4, 1}), bf16(v{4, 5}, v{5, 1}), bf16(v{3, 5}, v{5, 1}),
			"bf16 bf16 nn m=5 n=3 k=4 ldx=5 ldy=4 ldd=5 align=256,256,256"},
		{"weights transposed", bf16(v{16, 4096}, v{4096, 1}), bf16(v{4096, 256}, v{1, 4096}), bf16(v{16, 256}, v{256, 1}),
			"bf16 bf16 tn m=256 n=16 k=4096 ldx=4096 ldy=4096 ldd=256 align=256,256,256"},
		{"gradient of weights", bf16(v{8, 2048}, v{1, 8}), bf16(v{2048, 4096}, v{4096, 1}), bf16(v{8, 4096}, v{4096, 1}),
			"bf16 bf16 nt m=4096 n=8 k=2048 ldx=4096 ldy=8 ldd=4096 align=256,256,256"},
		{"a window of a wider matrix", bf16(v{3, 4}, v{10, 1}), bf16(v{4, 5}, v{7, 1}), bf16(v{3, 5}, v{9, 1}),
			"bf16 bf16 nn m=5 n=3 k=4 ldx=7 ldy=10 ldd=9 align=256,256,256"},
		{"column-major result", bf16(v{3, 4}, v{4, 1}), bf16(v{4, 5}, v{5, 1}), bf16(v{3, 5}, v{1, 3}),
			"bf16 bf16 tt m=3 n=5 k=4 ldx=4 ldy=5 ldd=3 align=256,256,256"},
		{"batch", bf16(v{2, 3, 4}, v{12, 4, 1}), bf16(v{2, 4, 5}, v{20, 1, 4}), bf16(v{2, 3, 5}, v{15, 5, 1}),
			"bf16 bf16 tn m=5 n=3 k=4 ldx=4 ldy=4 ldd=5 align=256,256,256 batch=2 stride=20,12,15"},
		{"batch of one", bf16(v{1, 3, 4}, v{99, 4, 1}), bf16(v{1, 4, 5}, v{7, 1, 4}), bf16(v{1, 3, 5}, v{1, 5, 1}),
			"bf16 bf16 tn m=5 n=3 k=4 ldx=4 ldy=4 ldd=5 align=256,256,256"},
		{"heads inside rows", bf16(v{2, 3, 4}, v{4, 8, 1}), bf16(v{2, 4, 5}, v{4, 1, 8}), bf16(v{2, 3, 5}, v{15, 5, 1}),
			"bf16 bf16 tn m=5 n=3 k=4 ldx=8 ldy=8 ldd=5 align=256,256,256 batch=2 stride=4,4,15"},
		{"two batch dimensions", bf16(v{2, 6, 3, 4}, v{72, 12, 4, 1}), bf16(v{2, 6, 4, 5}, v{120, 20, 5, 1}), bf16(v{2, 6, 3, 5}, v{90, 15, 5, 1}),
			"bf16 bf16 nn m=5 n=3 k=4 ldx=5 ldy=4 ldd=5 align=256,256,256 batch=12 stride=20,12,15"},
		{"shared weights fold into rows", bf16(v{2, 3, 4}, v{12, 4, 1}), bf16(v{2, 4, 5}, v{0, 5, 1}), bf16(v{2, 3, 5}, v{15, 5, 1}),
			"bf16 bf16 nn m=5 n=6 k=4 ldx=5 ldy=4 ldd=5 align=256,256,256"},
		{"shared weights, rows apart", bf16(v{2, 3, 4}, v{40, 4, 1}), bf16(v{2, 4, 5}, v{0, 5, 1}), bf16(v{2, 3, 5}, v{15, 5, 1}),
			"bf16 bf16 nn m=5 n=3 k=4 ldx=5 ldy=4 ldd=5 align=256,256,256 batch=2 stride=0,40,15"},
		{"one row keeps a leading dimension that is aligned", bf16(v{1, 64}, v{64, 1}), bf16(v{64, 8}, v{1, 64}), bf16(v{1, 8}, v{8, 1}),
			"bf16 bf16 tn m=8 n=1 k=64 ldx=64 ldy=64 ldd=8 align=256,256,256"},
		{"one column", bf16(v{4, 8}, v{8, 1}), bf16(v{8, 1}, v{1, 1}), bf16(v{4, 1}, v{1, 1}),
			"bf16 bf16 tn m=4 n=1 k=8 ldx=8 ldy=8 ldd=4 align=256,256,256"},
		{"broadcast rows", bf16(v{3, 4}, v{0, 1}), bf16(v{4, 5}, v{5, 1}), bf16(v{3, 5}, v{5, 1}), "layout of operand 0"},
		{"every second element", bf16(v{3, 4}, v{4, 1}), bf16(v{4, 5}, v{10, 2}), bf16(v{3, 5}, v{5, 1}), "layout of operand 1"},
		{"reversed rows", bf16(v{3, 4}, v{-4, 1}), bf16(v{4, 5}, v{5, 1}), bf16(v{3, 5}, v{5, 1}), "layout of operand 0"},
		{"overlapping rows of the result", bf16(v{3, 4}, v{4, 1}), bf16(v{4, 5}, v{5, 1}), bf16(v{3, 5}, v{4, 1}), "layout of operand 2"},
		{"batches that do not merge", bf16(v{2, 6, 3, 4}, v{12, 24, 4, 1}), bf16(v{2, 6, 4, 5}, v{120, 20, 5, 1}), bf16(v{2, 6, 3, 5}, v{90, 15, 5, 1}), "layout of operand 0"},
		{"a batch of results in one place", bf16(v{2, 3, 4}, v{12, 4, 1}), bf16(v{2, 4, 5}, v{20, 5, 1}), bf16(v{2, 3, 5}, v{0, 5, 1}), "layout of operand 2"},
		{"shapes", bf16(v{3, 4}, v{4, 1}), bf16(v{5, 5}, v{5, 1}), bf16(v{3, 5}, v{5, 1}), "unsupported"},
		{"vectors", bf16(v{4}, v{1}), bf16(v{4}, v{1}), bf16(v{}, v{}), "unsupported"},
		{"too long", bf16(v{1 << 31, 4}, v{4, 1}), bf16(v{4, 5}, v{5, 1}), bf16(v{1 << 31, 5}, v{5, 1}), "unsupported"},
		{"integers", Operand{Type: dtype.I32, Shape: v{3, 4}, Strides: v{4, 1}}, Operand{Type: dtype.I32, Shape: v{4, 5}, Strides: v{5, 1}},
			Operand{Type: dtype.I32, Shape: v{3, 5}, Strides: v{5, 1}}, "unsupported"},
		{"alignment", Operand{Type: dtype.BF16, Shape: v{3, 4}, Strides: v{4, 1}, Align: 24}, bf16(v{4, 5}, v{5, 1}), bf16(v{3, 5}, v{5, 1}), "unsupported"},
		{"nothing", bf16(v{0, 4}, v{4, 1}), bf16(v{4, 5}, v{5, 1}), bf16(v{0, 5}, v{5, 1}),
			"bf16 bf16 nn m=5 n=0 k=4 ldx=1 ldy=1 ldd=1 align=0,0,0"},
	}
	for _, tt := range tests {
		p, err := ProblemOf(tt.a, tt.b, tt.out, Config{TF32: true})
		got := p.String()
		var le *LayoutError
		switch {
		case errors.As(err, &le):
			got = fmt.Sprintf("layout of operand %d", le.Operand)
			if !errors.Is(err, ErrLayout) {
				t.Errorf("%s: %v is no ErrLayout", tt.name, err)
			}
		case errors.Is(err, ErrUnsupported):
			got = "unsupported"
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// element is where the descriptor puts element (batch, i, j) of an operand.
func element(m Matrix, batch, i, j int64) int64 {
	if m.Trans {
		i, j = j, i
	}
	return batch*m.Stride + i + j*m.LD
}

func pick(rng *rand.Rand, v ...int64) int64 { return v[rng.IntN(len(v))] }

// randomOperand is the i-th operand of a product, 2 its result, of rows and columns in any layout.
func randomOperand(rng *rand.Rand, i int, dims []int64, rows, cols int64) Operand {
	shape := append(append([]int64{}, dims...), rows, cols)
	strides := make([]int64, len(shape))
	step := pick(rng, 1, 1, 1, 1, 1, 1, 2)
	order := make([]int, len(shape)) // from the fastest dimension
	for j := range order {
		order[j] = len(shape) - 1 - j
	}
	if rng.IntN(2) == 0 {
		order[0], order[1] = order[1], order[0]
	}
	if rng.IntN(4) == 0 {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, d := range order {
		strides[d] = step
		step *= shape[d] + pick(rng, 0, 0, 0, 0, 1, 3)
		if i < 2 && d < len(dims) && rng.IntN(3) == 0 {
			strides[d] = 0
		}
		if i < 2 && rng.IntN(40) == 0 {
			strides[d] = 0
		}
		if shape[d] == 1 && rng.IntN(2) == 0 {
			strides[d] = pick(rng, 0, 1, 77)
		}
	}
	return bf16(shape, strides)
}

// checkElements compares where descriptors and operands have each element.
func checkElements(t *testing.T, p *Problem, a, b, out Operand, dims []int64) {
	last := len(dims)
	m, n, k := out.Shape[last], out.Shape[last+1], a.Shape[last+1]
	x, y := p.X, p.Y
	if p.Swapped {
		x, y = y, x
		x.Trans, y.Trans = !x.Trans, !y.Trans
	}
	d := p.D
	if p.Swapped {
		d.Trans = true
	}
	for at := range product(dims) {
		idx, rest := make([]int64, last), at
		for j := last - 1; j >= 0; j-- {
			idx[j], rest = rest%dims[j], rest/dims[j]
		}
		check := func(name string, o Operand, mat Matrix, ni, nj int64, fold bool) {
			for i := range ni {
				for j := range nj {
					want := i*o.Strides[last] + j*o.Strides[last+1]
					for q := range dims {
						want += idx[q] * o.Strides[q]
					}
					batch, row := at, i
					if p.Batch != product(dims) {
						batch = 0
						if fold {
							row = at*m + i
						}
					}
					if got := element(mat, batch, row, j); got != want {
						t.Fatalf("%s element %v,%d,%d of %v %v: descriptor %+v gives %d, want %d", name, idx, i, j, o.Shape, o.Strides, mat, got, want)
					}
				}
			}
		}
		check("a", a, x, m, k, true)
		check("b", b, y, k, n, false)
		check("out", out, d, m, n, true)
	}
}

// Every element of every operand is found by the descriptor where the strides of the
// view say it is, for random views: permuted, sliced, broadcast, with dimensions of
// one and batch dimensions of any layout. Views that are refused have no descriptor.
func TestDescriptorsFindElements(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	mapped, refused, folded, swapped := 0, 0, 0, 0
	for range 60000 {
		batchDims := rng.IntN(3)
		m, n, k := pick(rng, 1, 2, 3, 5), pick(rng, 1, 2, 4, 5), pick(rng, 1, 2, 3, 4)
		var dims []int64
		for range batchDims {
			dims = append(dims, pick(rng, 1, 2, 3))
		}
		a, b, out := randomOperand(rng, 0, dims, m, k), randomOperand(rng, 1, dims, k, n), randomOperand(rng, 2, dims, m, n)
		p, err := ProblemOf(a, b, out, Config{})
		var le *LayoutError
		if errors.As(err, &le) {
			refused++
			if o := [...]Operand{a, b, out}[le.Operand]; expressible(o, dims, [...]Operand{a, b, out}) {
				t.Fatalf("refused: %v of %v %v, %v %v -> %v %v", err, a.Shape, a.Strides, b.Shape, b.Strides, out.Shape, out.Strides)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		mapped++
		if p.Swapped {
			swapped++
		}
		if p.M*p.N*p.Batch != m*n*product(dims) {
			t.Fatalf("%v of batch %v, %d x %d", &p, dims, m, n)
		}
		if p.Batch != product(dims) {
			folded++
		}
		checkElements(t, &p, a, b, out, dims)
	}
	for name, n := range map[string]int{"mapped": mapped, "refused": refused, "folded": folded, "column-major results": mapped - swapped} {
		if n < 500 {
			t.Errorf("only %d views were %s", n, name)
		}
	}
}

// expressible says, in a way that is independent of ProblemOf, whether some
// descriptor reaches all elements of the operand o of batch dimensions dims: it
// tries them all.
func expressible(o Operand, dims []int64, all [3]Operand) bool {
	r := len(o.Shape)
	rows, cols := o.Shape[r-2], o.Shape[r-1]
	total := product(dims)
	result := &o.Strides[0] == &all[2].Strides[0]
	for _, trans := range []bool{false, true} {
		contiguous := rows
		if trans {
			contiguous = cols
		}
		for ld := contiguous; ld < 400; ld++ {
			mat := Matrix{Trans: trans, LD: ld}
			for stride := int64(0); stride < 400; stride++ {
				if result && total > 1 && stride == 0 {
					continue
				}
				if mat.Stride = stride; reaches(o, dims, mat, rows, cols) {
					return true
				}
				if total == 1 {
					break
				}
				if want := innermost(o, dims); stride < want-1 { // nothing below the last dimension's stride can match
					stride = want - 1
				} else if stride > want {
					break
				}
			}
		}
	}
	return false
}

// innermost is the stride of the innermost batch dimension that is not one.
func innermost(o Operand, dims []int64) int64 {
	for j := len(dims) - 1; j >= 0; j-- {
		if dims[j] > 1 {
			return o.Strides[j]
		}
	}
	return 0
}

func reaches(o Operand, dims []int64, mat Matrix, rows, cols int64) bool {
	for at := range product(dims) {
		base, rest := int64(0), at
		for j := len(dims) - 1; j >= 0; j-- {
			base += rest % dims[j] * o.Strides[j]
			rest /= dims[j]
		}
		for i := range rows {
			for j := range cols {
				if element(mat, at, i, j) != base+i*o.Strides[len(dims)]+j*o.Strides[len(dims)+1] {
					return false
				}
			}
		}
	}
	return true
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}
