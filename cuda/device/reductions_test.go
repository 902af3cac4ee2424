//go:build linux

package device_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// reductionsOf is a function of all reductions over ranks of all integers, bools and 8-bit
// floats; bytes that mean NaN or infinity in one of the latter are not among its inputs.
func reductionsOf(ranks int) string {
	var params, body, names, types []string
	for _, dt := range []ir.DType{ir.I8, ir.U8, ir.I16, ir.U16, ir.I32, ir.U32, ir.I64, ir.U64, ir.Bool, ir.F8E4M3FN, ir.F8E5M2} {
		params = append(params, fmt.Sprintf("%%%s: %s[8,5]", dt, dt))
		for _, red := range []ir.Reduction{ir.Sum, ir.Product, ir.Min, ir.Max} {
			name := fmt.Sprintf("%%%s_%s", dt, red)
			body = append(body, fmt.Sprintf("  %s_a = all_reduce.%s %%%s on @g : async %s[8,5]", name, red, dt, dt), fmt.Sprintf("  %s_all = wait_tensor %s_a : %s[8,5]", name, name, dt),
				fmt.Sprintf("  %s_s = reduce_scatter.%s %%%s on @g {dim=0} : async %s[%d,5]", name, red, dt, dt, 8/ranks), fmt.Sprintf("  %s_mine = wait_tensor %s_s : %s[%d,5]", name, name, dt, 8/ranks))
			names = append(names, name+"_all", name+"_mine")
			types = append(types, fmt.Sprintf("%s[8,5]", dt), fmt.Sprintf("%s[%d,5]", dt, 8/ranks))
		}
	}
	all := make([]string, ranks)
	for r := range all {
		all[r] = fmt.Sprint(r)
	}
	return fmt.Sprintf("world %d\ngroup @g = [[%s]]\n\nfunc @f(%s) -> (%s) {\n%s\n  return %s\n}\n", ranks, strings.Join(all, ", "), strings.Join(params, ", "), strings.Join(types, ", "), strings.Join(body, "\n"), strings.Join(names, ", "))
}

// Reductions over ranks give the interpreter's bits for every type, by kernels and by NCCL:
// pipeline cuda makes those in types that they lack ones in another.
func TestReductionsOfAllTypes(t *testing.T) {
	for _, over := range []struct {
		name   string
		target func(testing.TB, int) (driver.Driver, []int, device.Options)
	}{{"kernels", target}, {"NCCL", overNCCL}} {
		for _, ranks := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", over.name, ranks), func(t *testing.T) {
				m, err := ir.Parse("reductions.ir", reductionsOf(ranks))
				if err != nil {
					t.Fatal(err)
				}
				f := m.Funcs()[0]
				in, err := interp.RandomInputs(f, 3, interp.RandomOptions{})
				if err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(1, uint64(ranks)))
				for _, x := range slices.Concat(in...) {
					for i := range x.Data {
						switch x.Data[i] = byte(rng.Uint32()); {
						case x.DType == ir.Bool:
							x.Data[i] &= 1
						case x.DType.IsFloat8():
							x.Data[i] &= 0xbf // below 2
						}
					}
				}
				want, err := interp.Run(t.Context(), f, in, interp.Options{})
				if err != nil {
					t.Fatal(err)
				}
				p, err := standard.Table().Parse("cuda")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := new(passes.Manager).RunContext(context.Background(), m, p); err != nil {
					t.Fatal(err)
				}
				f = m.Func("f")
				drv, devs, o := over.target(t, ranks)
				got, err := runner(drv, devs, o, lower.Options{Kernels: true}, eager, 1)(t.Context(), f, in)
				if err != nil {
					t.Fatal(err)
				}
				for r := range want {
					for i, w := range want[r] {
						if !interp.Equal(got[r][i], w) {
							t.Errorf("rank %d: %s differs from the interpreter's", r, f.Return().Arg(i))
						}
					}
				}
			})
		}
	}
}
