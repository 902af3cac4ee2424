package cudagen_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// variants are spellings of operations beside the examples of the op table, on the inputs
// of those.
var variants = []string{
	"%r = convolution %image, %image {batch_groups=2, padding=[0, 1, 1, 0]} : f32[1,2,2,2]", "%r = convolution %image, %kernel {padding=[1, 2, 0, -1], reverse=[0, 1], strides=[2, 1], window_dilation=[1, 2]} : f32[2,20,4,1]",
	"%r = convolution %image, %kernel {base_dilation=[2, 3], padding=[1, 0, 2, 2], reverse=[1, 0]} : f32[2,20,9,18]",
	`%r = reduce_window %image {base_dilation=[1, 1, 1, 2], padding=[0, 0, 1, 0, 0, 2, -1, 1], reduce="sum", strides=[1, 2, 1, 1], window=[2, 1, 3, 2], window_dilation=[1, 1, 2, 1]} : f32[1,3,3,10]`,
	`%r = reduce_window %x {padding=[0, 0, 3, 3], reduce="product", window=[2, 3]} : f32[3,12]`, `%r = reduce_window %x {padding=[0, 0, 3, 3], reduce="min", window=[1, 3]} : f32[4,12]`,
	`%r = reduce_window %x {padding=[0, 0, 3, 3], reduce="argmax", window=[2, 3]} : i64[3,12]`, `%r = reduce_window %j, %j {padding=[0, 0, 1, 1], reduce="sum", window=[1, 2]} : i64[4,3]`,
	"%r = add %x, %b {alpha=3} : f32[4,8]", "%r = sub %x, %b {alpha=-1} : f32[4,8]", "%r = sub %x {reverse=true, scalar=2} : f32[4,8]",
	"%r = div %x {reverse=true, scalar=2} : f32[4,8]", "%r = mul %x {scalar=0.5} : f32[4,8]",
	"%r = pow %x {scalar=0} : f32[4,8]", "%r = pow %x {scalar=1} : f32[4,8]", "%r = pow %x {scalar=2} : f32[4,8]", "%r = pow %x {scalar=3} : f32[4,8]",
	"%r = pow %x {scalar=-1} : f32[4,8]", "%r = pow %x {scalar=0.5} : f32[4,8]", "%r = pow %x {scalar=-0.5} : f32[4,8]", "%r = pow %x {scalar=1.5} : f32[4,8]",
	"%r = pow %x {reverse=true, scalar=2} : f32[4,8]", "%r = maximum %x {scalar=1} : f32[4,8]", "%r = clamp %x {min=1} : f32[4,8]", "%r = clamp %x {max=1} : f32[4,8]",
	"%r = ge %x, %b : bool[4,8]", "%r = mul %x {scalar=inf} : f32[4,8]", "%r = add %x {scalar=-inf} : f32[4,8]", "%r = maximum %x {scalar=nan} : f32[4,8]", "%r = convert %x : i32[4,8]", "%r = convert %x : bool[4,8]", "%r = convert %x : u64[4,8]",
	"%r = bitcast %x : i32[4,8]",
	"%r = sum %x : f32[]", "%r = mean %x {dims=[0], keepdim=true} : f32[1,8]", "%r = amax %x {dims=[0]} : f32[8]", "%r = argmax %x {dim=0} : i64[8]", "%r = cumsum %x {dim=0} : f32[4,8]",
	"%r = softmax %x {dim=0} : f32[4,8]", "%r = log_softmax %x {dim=0} : f32[4,8]", "%r = cat %x, %x {dim=1} : f32[4,16]",
	"%r = slice_scatter %x, %rows {dim=0, end=4, start=1} : f32[4,8]", "%r = index_put %x, %rows, %i {accumulate=true, dims=[0]} : f32[4,8]",
	"%r = index_add %x, %i, %rows {alpha=2, dim=0} : f32[4,8]", `%r = scatter %x, %j {dim=1, reduce="add", value=2} : f32[4,8]`, `%r = scatter %x, %j {dim=1, reduce="multiply", value=2} : f32[4,8]`,
	"%r:2 = topk %x {dim=0, k=3, largest=false} : f32[3,8], i64[3,8]", "%r = full {value=2} : f32[4,8]",
	`%r = constant {data="AQACAAMABAAFAA=="} : i16[5]`, `%r = constant {data="AAAAAAAA8D8AAAAAAAAAQA=="} : f64[2]`, `%r = constant {data="AQID"} : u8[3,1]`,
}

// beyond are operations that no kernel computes alone, with the reason.
var beyond = map[ir.Op]string{
	ir.OpRand: "it draws", ir.OpShard: "its piece depends on the rank", ir.OpCall: "it is opaque",
}

// Every operation that has a kernel gives the interpreter's bits in a kernel alone, for
// every element type that it takes.
func TestEveryOperation(t *testing.T) {
	var trials, wide []*trial // of f64, in which functions of the two languages differ, apart
	ran := map[ir.Op]int{}
	for _, op := range ir.Ops() {
		if op.Class() != ir.ClassMemory && !op.Info().Generated {
			continue
		}
		lines := []string{op.Info().Example}
		for _, v := range variants {
			if strings.HasPrefix(v[strings.Index(v, "= ")+2:], op.Name()+" ") {
				lines = append(lines, v)
			}
		}
		for i, line := range lines {
			types := []string{"f32", "i64"}
			switch {
			case testing.Short():
			case i > 0:
				types = []string{"f32", "f64", "f16", "i64", "u64"}
			default:
				types = []string{"f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64", "bool", "f8e4m3fn", "f8e5m2"}
			}
			for _, dt := range types {
				tr := example(t, fmt.Sprintf("%s%d", dt, len(trials)+len(wide)), line, dt)
				switch {
				case tr == nil:
					continue
				case dt == "f64":
					wide = append(wide, tr)
				default:
					trials = append(trials, tr)
				}
				ran[op]++
			}
		}
		if why, ok := beyond[op]; ok == (ran[op] > 0) {
			t.Errorf("%s: %d kernels ran; beyond kernels: %q", op, ran[op], why)
		}
	}
	t.Logf("%d kernels of %d operations", len(trials)+len(wide), len(ran))
	compiles(t, append(slices.Clone(trials), wide...))
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	together(t, trials, "-DEXACT_MATH")
	compare(t, wide, runOnHost(t, wide, "-DEXACT_MATH"), false)
	together(t, wide, "-DEXACT_MATH")
}

// example is the kernel of a line with another element type in place of f32; nil if
// the operation does not take it, or has no kernel.
func example(t *testing.T, name, line, dt string) *trial {
	t.Helper()
	var inputs []string
	for _, in := range ir.ExampleInputs() {
		if strings.Contains(line+",", "%"+in.Name+",") || strings.Contains(line, "%"+in.Name+" ") {
			inputs = append(inputs, "%"+in.Name+": "+in.Type)
		}
	}
	of := line[strings.Index(line, " : ")+3:]
	names := []string{"%r"}
	if n := strings.Count(of, "[") - strings.Count(of, ":"); n > 1 {
		names = nil
		for i := range n {
			names = append(names, fmt.Sprintf("%%r#%d", i))
		}
	}
	text := strings.ReplaceAll(fmt.Sprintf("world 4\ngroup @tp = [[0, 1], [2, 3]]\nsym u0 hint 2 max 4\nsym u1 hint 2 max 4\n\nfunc @f(%s) -> (%s) {\n  %s\n  return %s\n}\n", strings.Join(inputs, ", "), of, line, strings.Join(names, ", ")), "f32", dt)
	m, err := ir.Parse("every.ir", text)
	if err != nil || m.Verify() != nil {
		if dt == "f32" {
			t.Errorf("%v: %s", err, text)
		}
		return nil
	}
	f := m.Funcs()[0]
	tr, err := newTrial(name, f, 4, 3, nil)
	if errors.Is(err, cudagen.ErrUnsupported) {
		return nil
	}
	if err != nil && strings.Contains(err.Error(), "element type not accepted") {
		return nil
	}
	if err != nil {
		t.Errorf("%s of %s: %v", line, dt, err)
		return nil
	}
	return tr
}
