package cudagen_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// farCases are operations on few elements that lie further apart than 32-bit offsets reach, as in a
// slice of a large tensor: where a type says far its outermost stride is that of such a slice. Types
// of results that are not inferred say it, too.
var farCases = []struct {
	name, head string
	ins, outs  []string // types
	body       string   // with a type of outs for each $
	sizes      map[string]int64
}{
	{name: "topk of few", ins: []string{"f32[64,48:far,1]"}, outs: []string{"f32[64,3]", "i64[64,3]"}, body: "%r:2 = topk %a {dim=1, k=3} : $, $\n  return %r#0, %r#1"},
	{name: "topk of what is far", ins: []string{"f32[48,4:far,1]"}, outs: []string{"f32[20,4:far,1]", "i64[20,4]"}, body: "%r:2 = topk %a {dim=0, k=20} : $, $\n  return %r#0, %r#1"},
	{name: "topk by ranks of what is far", ins: []string{"i32[160,4:far,1]"}, outs: []string{"i32[20,4:far,1]", "i64[20,4]"}, body: "%r:2 = topk %a {dim=0, k=20} : $, $\n  return %r#0, %r#1"},
	{name: "topk of long lines of what is far", ins: []string{"f32[4100,4:far,1]"}, outs: []string{"f32[20,4:far,1]", "i64[20,4]"}, body: "%r:2 = topk %a {dim=0, k=20} : $, $\n  return %r#0, %r#1"},
	{name: "topk by ranks", ins: []string{"i32[64,160:far,1]"}, outs: []string{"i32[64,3:far,1]", "i64[64,3]"}, body: "%r:2 = topk %a {dim=1, k=3} : $, $\n  return %r#0, %r#1"},
	{name: "topk of long lines", ins: []string{"f32[64,4100:far,1]"}, outs: []string{"f32[64,3]", "i64[64,3]"}, body: "%r:2 = topk %a {dim=1, k=3} : $, $\n  return %r#0, %r#1"},
	{name: "scatter by lines", ins: []string{"f32[64,48:far,1]", "i64[64,40:far,1]", "f32[64,40:far,1]"}, outs: []string{"f32[64,48]"}, body: "%r = scatter %a, %b, %c {dim=1} : $\n  return %r"},
	{name: "scatter by lines of what is far", ins: []string{"f32[48,4:far,1]", "i64[40,4:far,1]", "f32[40,4:far,1]"}, outs: []string{"f32[48,4:far,1]"}, body: "%r = scatter %a, %b, %c {dim=0} : $\n  return %r"},
	{name: "scatter of few", ins: []string{"f32[48,4:far,1]", "i64[20,4:far,1]", "f32[20,4:far,1]"}, outs: []string{"f32[48,4:far,1]"}, body: "%r = scatter %a, %b, %c {dim=0, reduce=\"add\"} : $\n  return %r"},
	{name: "scatter of one", ins: []string{"f32[64,48:far,1]", "i64[64,1:far,1]", "f32[64,1:far,1]"}, outs: []string{"f32[64,48]"}, body: "%r = scatter %a, %b, %c {dim=1} : $\n  return %r"},
	{name: "update by nothing", ins: []string{"f32[64,48:far,1]", "f32[0,48]", "i64[0]"}, outs: []string{"f32[64,48]"}, body: "%r = index_put %a, %b, %c {dims=[0]} : $\n  return %r"},
	{name: "update of rows", ins: []string{"f32[64,48:far,1]", "f32[100,48:far,1]", "i64[100]"}, outs: []string{"f32[64,48]"}, body: "%r = index_put %a, %b, %c {accumulate=true, dims=[0]} : $\n  return %r"},
	{name: "update of pairs", ins: []string{"f32[64,48:far,1]", "f32[30,30:far,1]", "i64[30,1]", "i64[30]"}, outs: []string{"f32[64,48]"}, body: "%r = index_put %a, %b, %c, %d {accumulate=true, dims=[0, 1]} : $\n  return %r"},
	{name: "update of rows of an unknown number", head: "sym s0 hint 40 max 64\nsym s1 hint 100 max 128\n", ins: []string{"f32[s0,48:far,1]", "f32[s1,48:far,1]", "i64[s1]"}, outs: []string{"f32[s0,48]"},
		body: "%r = index_add %a, %c, %b {dim=0} : $\n  return %r", sizes: map[string]int64{"s0": 63, "s1": 90}},
	{name: "windows of what is far", ins: []string{"f32[64,3:far,1]"}, outs: []string{"i64[1,3]"}, body: "%r = reduce_window %a {reduce=\"argmax\", window=[64, 1]} : $\n  return %r"},
	{name: "windows far apart", ins: []string{"f32[8]"}, outs: []string{"f32[8]"}, body: "%r = reduce_window %a {base_dilation=[1073741824], reduce=\"sum\", strides=[1073741824], window=[1]} : $\n  return %r"},
	{name: "places far apart", ins: []string{"f32[8]"}, outs: []string{"f32[8]"}, body: "%r = reduce_window %a {padding=[1073741824, 1073741824], reduce=\"sum\", window=[3], window_dilation=[1073741824]} : $\n  return %r"},
	{name: "convolution with taps far apart", ins: []string{"f32[2,3,8]", "f32[2,3,3]"}, outs: []string{"f32[2,2,8]"}, body: "%r = convolution %a, %b {padding=[1073741824, 1073741824], window_dilation=[1073741824]} : $\n  return %r"},
	{name: "convolution by tiles with taps far apart", ins: []string{"f32[2,3,8]", "f32[20,3,3]"}, outs: []string{"f32[2,20,8]"}, body: "%r = convolution %a, %b {padding=[1073741824, 1073741824], window_dilation=[1073741824]} : $\n  return %r"},
	{name: "windows", ins: []string{"f32[64,9:far,1]", "i64[64,9:far,1]"}, outs: []string{"f32[66,5]"}, body: "%r = reduce_window %a, %b {padding=[1, 1, 0, 0], reduce=\"sum\", strides=[1, 2], window=[1, 1]} : $\n  return %r"},
	{name: "convolution", ins: []string{"f32[64,3,5:far,5,1]", "f32[2,3,3]"}, outs: []string{"f32[64,2,3]"}, body: "%r = convolution %a, %b : $\n  return %r"},
	{name: "convolution by tiles", ins: []string{"f32[64,3,5:far,5,1]", "f32[20,3,3]"}, outs: []string{"f32[64,20,3:far,3,1]"}, body: "%r = convolution %a, %b : $\n  return %r"},
	{name: "convolution by tiles of filters that are apart", ins: []string{"f32[2,64,5]", "f32[20,64,3:3,far,1]"}, outs: []string{"f32[2,20,3]"}, body: "%r = convolution %a, %b : $\n  return %r"},
	{name: "convolution with taps that are apart", ins: []string{"f32[1,2,70]", "f32[3,2,64:2,1,far]"}, outs: []string{"f32[1,3,7]"}, body: "%r = convolution %a, %b : $\n  return %r"},
	{name: "convolution of parts of a batch", ins: []string{"f32[64,3,5:far,5,1]", "f32[128,3,3]"}, outs: []string{"f32[1,128,3]"}, body: "%r = convolution %a, %b {batch_groups=64} : $\n  return %r"},
	{name: "convolution by tiles of parts of a batch", ins: []string{"f32[64,3,5:far,5,1]", "f32[1024,3,3]"}, outs: []string{"f32[1,1024,3]"}, body: "%r = convolution %a, %b {batch_groups=64} : $\n  return %r"},
	{name: "running sums of what is far", ins: []string{"f32[80,3:far,1]"}, outs: []string{"f32[80,3:far,1]"}, body: "%r = cumsum %a {dim=0} : $\n  return %r"},
	{name: "running sums", ins: []string{"f32[64,80:far,1]"}, outs: []string{"f32[64,80]"}, body: "%r = cumsum %a {dim=1} : $\n  return %r"},
	{name: "sums of rows", ins: []string{"f32[64,80:far,1]"}, outs: []string{"f32[64]"}, body: "%r = sum %a {dims=[1]} : $\n  return %r"},
	{name: "sums of columns", ins: []string{"f32[64,80:far,1]"}, outs: []string{"f32[80]"}, body: "%r = sum %a {dims=[0]} : $\n  return %r"},
	{name: "elementwise", ins: []string{"f32[64,80:far,1]"}, outs: []string{"f32[64,80:far,1]"}, body: "%r = neg %a : $\n  return %r"},
	{name: "gather", ins: []string{"f32[64,80:far,1]", "i64[64,3]"}, outs: []string{"f32[64,3]"}, body: "%r = gather %a, %b {dim=1} : $\n  return %r"},
	{name: "constant", ins: []string{"f32[2]"}, outs: []string{"f32[2:farther]"}, body: "%r = constant {data=\"AACAPwAAAEA=\"} : $\n  return %r"},
	{name: "groups", ins: []string{"f32[64,8:far,1]", "f32[3,8,5:far,5,1]", "i32[3]"}, outs: []string{"f32[64,5]"}, body: "%r = grouped_matmul %a, %b, %c : $\n  return %r"},
}

// farModule is a case with tensors that reach far, or the same without gaps.
func farModule(t *testing.T, at int, far bool) *ir.Func {
	t.Helper()
	c := farCases[at]
	typ := func(s string) string {
		if far {
			return strings.NewReplacer("farther", fmt.Sprint(int64(3)<<30), "far", fmt.Sprint(int64(3)<<26)).Replace(s)
		}
		if shape, _, strided := strings.Cut(s, ":"); strided {
			return shape + "]"
		}
		return s
	}
	var ins, outs []string
	for i, s := range c.ins {
		ins = append(ins, fmt.Sprintf("%%%c: %s", 'a'+i, typ(s)))
	}
	body := c.body
	for _, s := range c.outs {
		outs = append(outs, typ(s))
		body = strings.Replace(body, "$", typ(s), 1)
	}
	m, err := ir.Parse(c.name, fmt.Sprintf("world 1\n%s\nfunc @f(%s) -> (%s) {\n  %s\n}\n", c.head, strings.Join(ins, ", "), strings.Join(outs, ", "), body))
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return m.Funcs()[0]
}

// farMemory reads and writes tensors with gaps, in memory that is there where it is touched.
const farMemory = `
#include <sys/mman.h>
static char* far_memory(long long bytes) {
  void* p = mmap(0, bytes + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) exit(3);
  return (char*)p;
}
static void far_copy(char* far_at, char* dense, int size, int rank, const long long* shape, const long long* strides, bool back) {
  long long n = 1;
  for (int d = 0; d < rank; ++d) n *= shape[d];
  for (long long e = 0; e < n; ++e) {
    long long rest = e, off = 0;
    for (int d = rank - 1; d >= 0; --d) off += rest % shape[d] * strides[d], rest /= shape[d];
    memcpy(back ? dense + e * size : far_at + off * size, back ? far_at + off * size : dense + e * size, size);
  }
}
`

// farCall writes a block that runs the kernel k, of tensors that reach far, on the inputs of a trial.
func farCall(b *strings.Builder, tr *trial, k *cudagen.Kernel, f *ir.Func, sizes map[string]int64) {
	b.WriteString("  {\n")
	tensor := func(name string, v *ir.Value, shape []int64) int64 {
		strides, reach := stridesAt(v.Type(), sizes), int64(1)
		text := func(l []int64) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(l), " ", "LL, "), "[]") }
		for d, n := range shape {
			reach += max(n-1, 0) * strides[d]
		}
		size := int64(v.Type().DType().Size())
		fmt.Fprintf(b, "    char* %s = far_memory(%dLL);\n    const long long %s_shape[] = {%s}, %s_strides[] = {%s};\n", name, reach*size, name, text(append(shape, 0)), name, text(append(strides, 0)))
		return size
	}
	shapes := func(v *ir.Value) []int64 {
		out := make([]int64, v.Type().Rank())
		for d, n := range v.Type().Shape() {
			out[d], _ = n.Eval(func(name string) (int64, bool) { n, ok := sizes[name]; return n, ok })
		}
		return out
	}
	var args []string
	for i, n := range f.Inputs() {
		v := n.Result(0)
		size := tensor(fmt.Sprint("in", i), v, shapes(v))
		fmt.Fprintf(b, "    far_copy(in%d, read_buffer(%d), %d, %d, in%d_shape, in%d_strides, false);\n", i, len(tr.ins[i].data), size, v.Type().Rank(), i, i)
	}
	for _, v := range k.Ins {
		args = append(args, fmt.Sprintf("(const %s*)in%d", ctype(v), v.Def().At()))
	}
	for i, v := range k.Outs {
		tensor(fmt.Sprint("o", i), v, shapes(v))
		args = append(args, fmt.Sprintf("(%s*)o%d", ctype(v), i))
	}
	for _, n := range tr.args {
		args = append(args, fmt.Sprint(n))
	}
	fmt.Fprintf(b, "    RUN(%s, %d, %d, %d, %s);\n", k.Name, tr.blocks(), k.Block, k.Lanes, strings.Join(args, ", "))
	for i, v := range k.Outs {
		n := tr.want[i].bytes
		fmt.Fprintf(b, "    char* d%d = make(%d);\n    far_copy(o%d, d%d, %d, %d, o%d_shape, o%d_strides, true);\n    write_buffer(d%d, %d);\n", i, n, i, i, v.Type().DType().Size(), v.Type().Rank(), i, i, i, n)
	}
	b.WriteString("  }\n")
}

// Elements whose offsets do not fit 32 bits are those that an operation is given.
func TestFarElements(t *testing.T) {
	var trials []*trial
	var calls strings.Builder
	text := shim + cudagen.Prelude() + harness + farMemory
	for i, c := range farCases {
		tr, err := newTrial("near", farModule(t, i, false), 0, uint64(i), c.sizes)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		f := farModule(t, i, true)
		st, err := ir.ComputeStorages(f)
		if err != nil {
			t.Fatal(err)
		}
		order := f.Order()
		k, err := cudagen.Generate(fmt.Sprint("far", i), st, order[len(f.Inputs()):len(order)-1])
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		far := *tr
		far.name, far.k = c.name, k
		trials = append(trials, &far)
		text += "\n" + k.Body
		farCall(&calls, &far, k, f, c.sizes)
	}
	text += "\nint main(int argc, char** argv) {\n  if (argc != 3 || !(in = fopen(argv[1], \"rb\")) || !(out = fopen(argv[2], \"wb\"))) return 2;\n" + calls.String() + "  return fclose(out);\n}\n"
	compare(t, trials, runText(t, text, trials, "-DEXACT_MATH"), true)
}

// Sums of products of integers wrap, as defined: the sanitizer would stop one that overflows.
func TestGroupedIntegersWrap(t *testing.T) {
	m, err := ir.Parse("wrap", "world 1\nfunc @f(%a: i64[4,8], %b: i64[1,8,3], %e: i32[1]) -> (i64[4,3]) {\n  %r = grouped_matmul %a, %b, %e : i64[4,3]\n  return %r\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := newTrial("wrap", m.Funcs()[0], 0, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(b []byte, n uint64) {
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], n)
		}
	}
	fill(tr.ins[0].data, math.MaxInt64)
	fill(tr.ins[1].data, math.MaxInt64)
	binary.LittleEndian.PutUint32(tr.ins[2].data, 4)
	fill(tr.want[0].t.Data, 8) // whose square is 1
	compare(t, []*trial{tr}, runOnHost(t, []*trial{tr}, "-DEXACT_MATH"), true)
}
