//go:build linux

package device_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
)

// unserved are the operations of which no line of the op table's can run on one GPU, with
// the reason.
var unserved = map[ir.Op]string{
	ir.OpShard:    "it asks for the rank: TestRandomAndShard has two",
	ir.OpCall:     "it is the caller's: TestFunc",
	ir.OpReadSize: "it gives values to symbols, which no line declares",
	ir.OpWhile:    "it runs functions, which no line has", ir.OpCase: "it runs functions, which no line has",
}

// spellings are lines beside the examples of the op table.
var spellings = []string{
	"%r = matmul %rows, %w : f64[3,16]", "%r = matmul %experts, %stack : f32[3,8,5]", "%r = cat %x, %none, %rows {dim=0} : f32[7,8]",
	"%r = cumsum %long {dim=1} : f32[2,3000]", "%r = cumsum %many {dim=0} : f32[300,3]", "%r:2 = topk %long {dim=1, k=3000} : f32[2,3000], i64[2,3000]",
	"%r = sum %none {dims=[0]} : f32[8]", "%r = amax %none {dims=[0]} : f32[8]", "%r = matmul %thin, %none : f32[4,8]",
	"%r = where %c, %x, %half : f32[4,8]", "%r = add %x, %half : f32[4,8]",
	"%r = index_add %x, %i, %halfrows {dim=0} : f32[4,8]",
	"%r = matmul %half, %w : f32[4,16]", "%r = grouped_matmul %half, %experts, %ends : f32[4,16]", "%r = convolution %image, %halves {groups=2} : f64[2,20,4,4]",
}

// layouts are how inputs are: they turn a type's sizes into its text and, with from, what the
// function takes instead of the input.
var layouts = []struct {
	name string
	typ  func(dt string, shape []string) string
}{
	{"dense", func(dt string, shape []string) string { return dt + "[" + strings.Join(shape, ",") + "]" }},
	{"transposed", func(dt string, shape []string) string { return strided(dt, shape, 1, true) }},
	{"gaps", func(dt string, shape []string) string { return strided(dt, shape, 3, false) }},
}

// strided spells a type whose elements are step apart, the first dimension innermost or the last.
func strided(dt string, shape []string, step int, reverse bool) string {
	strides := make([]string, len(shape))
	for i := range shape {
		d := len(shape) - 1 - i
		if reverse {
			d = i
		}
		strides[d] = fmt.Sprint(step)
		n, _ := strconv.Atoi(shape[d])
		step *= max(n, 1)
	}
	if len(shape) == 0 {
		return dt + "[]"
	}
	return dt + "[" + strings.Join(shape, ",") + ":" + strings.Join(strides, ",") + "]"
}

var typeText = regexp.MustCompile(`\b(bool|[a-z]+[0-9][0-9a-z]*)\[([0-9,]*)\]`)

// variant is what is walked over beside the lines.
type variant struct {
	layout, dt string
	shifted    bool // inputs begin one element behind a place that loads of many elements like
	results    bool // the layout is that of results, too
}

func (v variant) String() string {
	return fmt.Sprintf("%s/%s", v.dt, v.layout) + map[bool]string{true: "/shifted"}[v.shifted] + map[bool]string{true: "/results"}[v.results]
}

// lay gives types in a text the element type of v and, if on, its layout.
func (v variant) lay(text string, on bool) string {
	return typeText.ReplaceAllStringFunc(text, func(s string) string {
		m := typeText.FindStringSubmatch(s)
		if m[1] == "f32" {
			m[1] = v.dt
		}
		var shape []string
		if m[2] != "" {
			shape = strings.Split(m[2], ",")
		}
		for _, l := range layouts {
			if l.name == v.layout && on {
				return l.typ(m[1], shape)
			}
		}
		return layouts[0].typ(m[1], shape)
	})
}

// exampleInputs are what lines read.
func exampleInputs() []ir.ExampleInput {
	return append(ir.ExampleInputs(), ir.ExampleInput{Name: "none", Type: "f32[0,8]"}, ir.ExampleInput{Name: "long", Type: "f32[2,3000]"}, ir.ExampleInput{Name: "many", Type: "f32[300,3]"},
		ir.ExampleInput{Name: "stack", Type: "f32[3,16,5]"}, ir.ExampleInput{Name: "thin", Type: "f32[4,0]"},
		ir.ExampleInput{Name: "half", Type: "bf16[4,8]"}, ir.ExampleInput{Name: "halfrows", Type: "bf16[3,8]"})
}

// function is the text of a function of lines, each of which is "name: result types".
func (v variant) function(lines []string) string {
	var params, head, body, results, types []string
	all := strings.Join(lines, "\n") + "\n"
	for _, in := range exampleInputs() {
		if !regexp.MustCompile(`%`+in.Name+`[, :\n]`).MatchString(all) || strings.HasPrefix(in.Type, "async") {
			continue
		}
		t := v.lay(in.Type, true)
		if dense := v.lay(in.Type, false); v.shifted && dense == t && !strings.Contains(t, "[]") {
			m := typeText.FindStringSubmatch(t)
			n := 1
			for _, d := range strings.Split(m[2], ",") {
				k, _ := strconv.Atoi(d)
				n *= k
			}
			params = append(params, fmt.Sprintf("%%%s_0: %s[%d]", in.Name, m[1], n+1))
			var shape []string
			if m[2] != "" {
				shape = strings.Split(m[2], ",")
			}
			head = append(head, fmt.Sprintf("  %%%s = as_strided %%%s_0 {offset=1} : %s", in.Name, in.Name, strided(m[1], shape, 1, false)))
			continue
		}
		params = append(params, "%"+in.Name+": "+t)
	}
	for i, line := range lines {
		at := strings.Index(line, " = ")
		count := 1
		if _, n, ok := strings.Cut(line[:at], ":"); ok {
			count, _ = strconv.Atoi(n)
		}
		colon := strings.LastIndex(line, " : ")
		of := v.lay(line[colon+3:], v.results)
		name := fmt.Sprintf("%%r%d", i)
		body = append(body, "  "+strings.Replace(line[:at], "%r", name, 1)+line[at:colon]+" : "+of)
		for k := range count {
			results = append(results, name)
			if count > 1 {
				results[len(results)-1] += fmt.Sprintf("#%d", k)
			}
		}
		types = append(types, of)
	}
	return fmt.Sprintf("world 1\n\nfunc @f(%s) -> (%s) {\n%s\n  return %s\n}\n", strings.Join(params, ", "), strings.Join(types, ", "), strings.Join(append(head, body...), "\n"), strings.Join(results, ", "))
}

// legal are the lines of the op table that are in order as v says.
func (v variant) legal(t *testing.T) (lines []string, ops map[ir.Op]bool) {
	ops = map[ir.Op]bool{}
	for _, op := range ir.Ops() {
		switch op.Class() {
		case ir.ClassMemory, ir.ClassCompute, ir.ClassView:
		default:
			continue
		}
		for _, line := range append([]string{op.Info().Example}, spellings...) {
			if !strings.Contains(line, " = "+op.Name()+" ") && !strings.HasSuffix(line, "= "+op.Name()) || unserved[op] != "" {
				continue
			}
			if strings.HasPrefix(op.Name(), "attention") && !strings.Contains("f64 f32 f16 bf16", v.dt) {
				continue // the log-sum-exp is a float
			}
			m, err := ir.Parse("ops.ir", v.function([]string{line}))
			if err == nil {
				err = m.Verify()
			}
			if err == nil {
				_, err = interpret(t, m.Funcs()[0])
			}
			if err != nil { // the element type or the layout is not accepted
				if v == (variant{"dense", "f32", false, false}) {
					t.Errorf("%v\n%s", err, v.function([]string{line}))
				}
				continue
			}
			lines, ops[op] = append(lines, line), true
		}
	}
	return lines, ops
}

func interpret(t *testing.T, f *ir.Func) ([][]interp.Tensor, error) {
	in, err := interp.RandomInputs(f, 11, interp.RandomOptions{})
	if err != nil {
		return nil, err
	}
	return interp.Run(t.Context(), f, in, interp.Options{})
}

// Every operation of the op table runs, for every element type, on inputs of several
// layouts, and gives the interpreter's numbers: the fake driver runs what has a generated
// kernel and what a library takes, and nothing else.
func TestOperations(t *testing.T) {
	var mu sync.Mutex
	ran, asked, begun := map[ir.Op]bool{}, 0, 0
	t.Cleanup(func() { // behind the subtests, which run side by side
		if begun < asked {
			return // -test.run chose some
		}
		for _, op := range ir.Ops() {
			if c := op.Class(); c != ir.ClassMemory && c != ir.ClassCompute && c != ir.ClassView {
				continue
			}
			if why, ok := unserved[op]; ok == ran[op] && op != ir.OpInvalid {
				t.Errorf("%s: ran is %v; not served: %q", op, ran[op], why)
			}
		}
	})
	for _, dt := range dtype.All() {
		if dt.IsFloat8() && dt != dtype.F8E4M3FN { // which differ by numbers in internal/prelude/types.cuh
			continue
		}
		for _, v := range []variant{{"dense", dt.String(), false, false}, {"dense", dt.String(), true, false}, {"transposed", dt.String(), false, false}, {"gaps", dt.String(), false, false}, {"transposed", dt.String(), false, true}, {"gaps", dt.String(), false, true}} {
			if testing.Short() && (v.layout != "dense" || dt != dtype.F32 && dt != dtype.I32) {
				continue
			}
			asked++
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				lines, ops := v.legal(t)
				mu.Lock()
				begun++
				for op := range ops {
					ran[op] = true
				}
				mu.Unlock()
				operations(t, v, lines)
			})
		}
	}
}

// operations runs the lines as one function.
func operations(t *testing.T, v variant, lines []string) {
	m, err := ir.Parse("ops.ir", v.function(lines))
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, v.function(lines))
	}
	f := m.Funcs()[0]
	in, err := interp.RandomInputs(f, 11, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(t.Context(), f, in, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	drv, devs, o := target(t, 1)
	got, err := runner(drv, devs, o, lower.Options{Kernels: true}, eager, 1)(t.Context(), f, in)
	if err != nil {
		t.Fatal(err)
	}
	ret := f.Return()
	for i, w := range want[0] {
		if e, most := farOff(got[0][i], w); !(e <= most) {
			n := ret.Arg(i).Def()
			t.Errorf("%%%s = %s, result %d: %g of its largest element off, at most %g is allowed", n.Name(), n.Op(), ret.Arg(i).Index(), e, most)
		}
	}
}

// farOff is the largest difference of an element from what is wanted, as a share of the
// largest, and what is allowed: a few roundings of the type, and what sums lose.
func farOff(got, want interp.Tensor) (worst, most float64) {
	most = map[dtype.DType]float64{dtype.BF16: 1.0 / 64, dtype.F16: 1.0 / 512, dtype.F32: 2e-5, dtype.F64: 1e-13}[want.DType]
	if !want.DType.IsFloat() || !*onGPU {
		if !interp.Equal(got, want) {
			return math.Inf(1), most
		}
		return 0, most
	}
	a, b := got.Float64s(), want.Float64s()
	largest := 0.0
	for i, y := range b {
		x := a[i]
		if !math.IsInf(y, 0) && y == y {
			largest = max(largest, math.Abs(y))
		}
		if x == y || x != x && y != y {
			continue
		}
		worst = max(worst, math.Abs(x-y))
		if x != x || y != y {
			return math.NaN(), most
		}
	}
	if worst == 0 {
		return 0, most
	}
	return worst / largest, most
}
