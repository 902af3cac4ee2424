package hostops

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// A pointwise result may be any of its operands.
func TestResultMayBeAnyOperand(t *testing.T) {
	operands := map[string]int{"where": 3, "fma": 3}
	for _, op := range slices.Collect(maps.Keys(unaryOps)) {
		operands[op] = 1
	}
	for _, op := range slices.Collect(maps.Keys(binaryOps)) {
		operands[op] = 2
	}
	rng := rand.New(rand.NewPCG(7, 1))
	for op, n := range operands {
		for _, d := range []dtype.DType{dtype.F32, dtype.F64, dtype.BF16, dtype.I64, dtype.U64} {
			var ins []Tensor
			for range n {
				ins = append(ins, random(rng, d, 3, shape{3, chunk + 7}))
			}
			if op == "where" {
				ins[0] = random(rng, dtype.Bool, 2, shape{3, chunk + 7})
			}
			for i, x := range ins {
				want := like(x)
				if err := Run(op, nil, []Tensor{want}, ins); err != nil {
					t.Fatal(err)
				}
				for _, layout := range []string{"dense", "strided"} {
					in := slices.Clone(ins)
					for k, x := range in {
						if layout == "strided" {
							in[k] = relayout(t, rng, x)
						} else {
							in[k].Data = slices.Clone(x.Data)
						}
					}
					if err := Run(op, nil, in[i:i+1], in); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(rawBits(t, in[i]), want.Data) {
						t.Errorf("%s of %v, %s: another result where it is operand %d", op, d, layout, i)
					}
				}
			}
		}
	}
}

// A kernel that is bound once gives what it gives anew, for any numbers in its operands.
func TestBoundMoreThanOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 2))
	for _, s := range samples(rng, dtype.F32) {
		t.Run(fmt.Sprint(s.op, s.attrs), func(t *testing.T) {
			l := attrs(t, s.attrs)
			run, err := Bind(s.op, l, s.outs, s.ins)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if i > 0 { // the elements in another order, which leaves indices in range
					for _, x := range s.ins {
						n := x.DType.Size()
						if len(x.Data) > n {
							copy(x.Data, slices.Concat(x.Data[n:], x.Data[:n]))
						}
					}
				}
				var want []Tensor
				for _, o := range s.outs {
					want = append(want, like(o))
				}
				if err := Run(s.op, l, want, s.ins); err != nil {
					t.Fatal(err)
				}
				if err := run(); err != nil {
					t.Fatal(err)
				}
				for k := range want {
					if !bytes.Equal(rawBits(t, s.outs[k]), rawBits(t, want[k])) {
						t.Errorf("run %d: another result %d", i, k)
					}
				}
			}
		})
	}
}
