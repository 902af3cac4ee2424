package fx_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir/fx"
)

var recordings = flag.String("recordings", "testdata/operators.jsonl", "what tools/torch/operators.py has recorded")

// recorded is a call of PyTorch's, see tools/torch/operators.py.
type recorded struct {
	Target, Args, Kwargs string
	View                 bool
	In, Out              []recordedTensor
	Items                []int // places of Out in the result tuple, where that holds more than tensors
	open                 bool  // the first dimension is a symbol, of all tensors that have as many elements there
}

type recordedTensor struct {
	DType  string            `json:"dtype"`
	Shape  []int64           `json:"shape"`
	Stride []int64           `json:"stride"`
	Data   []json.RawMessage `json:"data"`
}

// tensor has the elements in row-major order.
func (r recordedTensor) tensor(t *testing.T) interp.Tensor {
	t.Helper()
	if part := map[string]string{"complex64": "float32", "complex128": "float64"}[r.DType]; part != "" { // pairs
		r.DType, r.Shape = part, append(slices.Clone(r.Shape), 2)
	}
	dt, ok := dtype.Parse(map[string]string{"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16",
		"float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool"}[r.DType])
	if !ok {
		t.Fatalf("element type %s", r.DType)
	}
	x, err := interp.NewTensor(dt, r.Shape...)
	if err != nil {
		t.Fatal(err)
	}
	size := dt.Size()
	for i, raw := range r.Data {
		text, base := string(raw), 10
		if dt.IsFloat() {
			text, base = strings.Trim(text, `"`), 16
		}
		bits, err := strconv.ParseUint(text, base, 64)
		if err != nil {
			v, err := strconv.ParseInt(text, base, 64)
			if err != nil {
				t.Fatal(err)
			}
			bits = uint64(v)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], bits)
		copy(x.Data[i*size:], b[:size])
	}
	return x
}

// document is the traced graph of the call alone.
func (r recorded) document() string {
	type tensor = map[string]any
	describe := func(x recordedTensor) tensor {
		shape := []any{}
		for d, n := range x.Shape {
			if shape = append(shape, n); r.open && d == 0 && n == r.In[0].Shape[0] {
				shape[0] = "n"
			}
		}
		return tensor{"shape": shape, "stride": x.Stride, "dtype": x.DType}
	}
	var nodes []map[string]any
	node := func(name, kind, target string, inputs []string, args, kwargs string, out []tensor) {
		nodes = append(nodes, map[string]any{"name": name, "kind": kind, "target": target, "inputs": inputs, "args": args, "kwargs": kwargs, "out": out, "ms": 0.0})
	}
	names := []string{}
	for k, x := range r.In {
		name := fmt.Sprintf("x%d", k)
		node(name, "input", name, []string{}, "()", "", []tensor{describe(x)})
		nodes[k]["role"] = "data"
		names = append(names, name)
	}
	var outs []tensor
	for _, x := range r.Out {
		outs = append(outs, describe(x))
	}
	kind := "memory"
	if r.View {
		kind = "view"
	}
	node("y", kind, r.Target, names, r.Args, r.Kwargs, outs)
	results := []string{"y"}
	if len(outs) > 1 || r.Items != nil {
		results = nil
		for k := range outs {
			name := fmt.Sprintf("y%d", k)
			item := k
			if r.Items != nil {
				item = r.Items[k]
			}
			node(name, "view", "<built-in function getitem>", []string{"y"}, fmt.Sprintf("(y, %d)", item), "", outs[k:k+1])
			results = append(results, name)
		}
	}
	node("output", "output", "output", results, "(("+strings.Join(results, ", ")+",),)", "", []tensor{})
	f := map[string]any{"name": "call", "world": 2, "groups": map[string]any{"g": [][]int{{0, 1}}}, "nodes": nodes}
	if r.open {
		f["symbols"] = map[string]any{"n": map[string]any{"hint": r.In[0].Shape[0], "min": 1, "max": 2 * r.In[0].Shape[0]}}
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// ulps is how far a function may be off, in units of the last place of its largest element:
// PyTorch's own functions of the CPU are that far from the exact ones.
const ulps = 4

// TestOperators runs what PyTorch recorded: every operator in its element types. Integers,
// truth values and what only moves or selects have the same bits.
func TestOperators(t *testing.T) {
	targets := map[string]int{}
	eachRecorded(t, func(n int, r recorded) {
		targets[r.Target]++
		if msg := r.differs(t); msg != "" {
			t.Errorf("line %d: %s%s %s of %v: %s", n, r.Target, r.Args, r.Kwargs, r.types(), msg)
		}
	})
	t.Logf("%d operators", len(targets))
}

func eachRecorded(t *testing.T, do func(line int, r recorded)) {
	t.Helper()
	file, err := os.Open(*recordings)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		do(n, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func (r recorded) types() []string {
	var out []string
	for _, x := range r.In {
		out = append(out, fmt.Sprintf("%s%v", x.DType, x.Shape))
	}
	return out
}

// imported is the call as a module.
func (r recorded) imported() (*fx.Result, string) {
	f, err := fx.Read("call.json", strings.NewReader(r.document()))
	if err != nil {
		return nil, err.Error()
	}
	res, err := f.Import()
	if err != nil {
		return nil, err.Error()
	}
	if len(res.Warnings) > 0 {
		return nil, res.Warnings[0].String()
	}
	return res, ""
}

// run imports the call and gives its results.
func (r recorded) run(t *testing.T) ([]interp.Tensor, string) {
	res, msg := r.imported()
	if msg != "" {
		return nil, msg
	}
	var in []interp.Tensor
	for _, x := range r.In {
		in = append(in, x.tensor(t))
	}
	got, err := interp.Run(t.Context(), res.Func, [][]interp.Tensor{in, in}, interp.Options{})
	if err != nil {
		return nil, err.Error()
	}
	return got[0], ""
}

func (r recorded) differs(t *testing.T) string {
	got, msg := r.run(t)
	if msg != "" {
		return msg
	}
	if r.Target == attentionBackward {
		return r.gradientsDiffer(t, got)
	}
	for k, x := range r.Out {
		if k > 0 && (strings.HasPrefix(r.Target, "aten._embedding_bag.") || strings.HasPrefix(r.Target, "aten._ctc_loss.")) {
			break // what is left for their backward differs by device, or is not written where it is not read
		}
		want := x.tensor(t)
		d, err := interp.Compare(got[k], want)
		if err != nil {
			return err.Error()
		}
		largest := 0.0
		for _, v := range want.Float64s() {
			if v-v == 0 {
				largest = max(largest, v, -v)
			}
		}
		if strings.HasPrefix(r.Target, "aten._ctc_loss_backward.") { // of logarithms, whose ulps are relative errors
			largest *= r.largestLog(t)
		}
		if strings.HasPrefix(r.Target, "aten.linalg_pinv.") { // by the condition number
			largest *= max(1, norm(r.In[0].tensor(t))*norm(want))
		}
		if r.Target == "aten._linalg_eigh.default" && k == 1 {
			largest *= r.alignVectors(t, got[1], want)
			if d, err = interp.Compare(got[1], want); err != nil {
				return err.Error()
			}
		}
		if d.Exact || want.DType.IsFloat() && d.MaxAbs <= ulps*largest*map[dtype.DType]float64{dtype.F64: 0x1p-52, dtype.F32: 0x1p-23, dtype.F16: 0x1p-10, dtype.BF16: 0x1p-7}[want.DType] {
			continue
		}
		return fmt.Sprintf("result %d: %v: %v, want %v", k, d, got[k], want)
	}
	return ""
}

// norm is the root of the sum of all squares.
func norm(x interp.Tensor) float64 {
	sum := 0.0
	for _, v := range x.Float64s() {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// largestLog is the largest magnitude of log-probabilities of paths, which are those of the losses.
func (r recorded) largestLog(t *testing.T) float64 {
	largest := 1.0
	for _, v := range r.In[len(r.In)-2].tensor(t).Float64s() {
		if !math.IsInf(v, 0) {
			largest = max(largest, v)
		}
	}
	return largest
}

// alignVectors gives eigenvectors the signs that are wanted, and returns how many times the ulps of
// their matrices they may be off: the largest eigenvalue by the least distance of two.
func (r recorded) alignVectors(t *testing.T, got, want interp.Tensor) float64 {
	n := int(want.Shape[len(want.Shape)-1])
	if n < 2 {
		n = 1
	}
	values := r.Out[0].tensor(t).Float64s()
	size, gap := 0.0, math.Inf(1)
	for i, v := range values {
		size = max(size, v, -v)
		if i%n > 0 {
			gap = min(gap, v-values[i-1])
		}
	}
	g, w, bytes := got.Float64s(), want.Float64s(), want.DType.Size()
	for at := range w {
		if row := at / n % n; row > 0 {
			continue
		}
		dot := 0.0
		for i := range n {
			dot += g[at+i*n] * w[at+i*n]
		}
		for i := 0; dot < 0 && i < n; i++ {
			got.Data[(at+i*n+1)*bytes-1] ^= 0x80
		}
	}
	return max(1, size/gap)
}

// TestDraws holds what operators draw against what makes it random numbers of their kind.
func TestDraws(t *testing.T) {
	const n = 4096
	x := recordedTensor{DType: "float32", Shape: []int64{n}, Stride: []int64{1}}
	for range n {
		x.Data = append(x.Data, json.RawMessage(`"40000000"`)) // 2
	}
	draw := func(target, args, kwargs string, in []recordedTensor, outs ...string) []interp.Tensor {
		r := recorded{Target: target, Args: args, Kwargs: kwargs, In: in}
		for _, dt := range outs {
			r.Out = append(r.Out, recordedTensor{DType: dt, Shape: []int64{n}, Stride: []int64{1}})
		}
		got, msg := r.run(t)
		if msg != "" {
			t.Fatalf("%s: %s", target, msg)
		}
		return got
	}
	moments := func(v []float64) (mean, variance float64) {
		for _, a := range v {
			mean += a / n
		}
		for _, a := range v {
			variance += (a - mean) * (a - mean) / n
		}
		return mean, variance
	}
	for _, c := range []struct {
		target, args   string
		mean, variance float64
	}{
		{"aten.rand.default", "([4096],)", 0.5, 1.0 / 12}, {"aten.randn.default", "([4096],)", 0, 1}, {"aten.randint.low", "(-2, 5, [4096])", 1, 4},
		{"aten.bernoulli.p", "(x0, 0.25)", 0.25, 3.0 / 16}, {"aten.exponential.default", "(x0, 2.0)", 0.5, 0.25}, {"aten.uniform.default", "(x0, -1.0, 5.0)", 2, 3},
		{"prims.normal.default", "([4096], 3.0, 0.5)", 3, 0.25},
	} {
		var in []recordedTensor
		if strings.Contains(c.args, "x0") {
			in = append(in, x)
		}
		mean, variance := moments(draw(c.target, c.args, "", in, "float32")[0].Float64s())
		if bound := 6 / math.Sqrt(n); math.Abs(mean-c.mean) > bound || math.Abs(variance-c.variance) > 2*bound {
			t.Errorf("%s: mean %v and variance %v", c.target, mean, variance)
		}
	}
	order := draw("aten.randperm.default", "(4096,)", "", nil, "int64")[0].Float64s()
	slices.Sort(order)
	for i, v := range order {
		if v != float64(i) {
			t.Fatalf("randperm: %v in the place of %d", v, i)
		}
	}
	weights := recordedTensor{DType: "float32", Shape: []int64{4}, Stride: []int64{1}}
	for _, bits := range []string{"00000000", "3f800000", "3f800000", "40000000"} { // 0 1 1 2
		weights.Data = append(weights.Data, json.RawMessage(`"`+bits+`"`))
	}
	places := draw("aten.multinomial.default", "(x0, 4096, True)", "", []recordedTensor{weights}, "int64")[0].Float64s()
	if mean, variance := moments(places); slices.Min(places) != 1 || math.Abs(mean-2.25) > 6/math.Sqrt(n) || math.Abs(variance-0.6875) > 12/math.Sqrt(n) {
		t.Errorf("multinomial: mean %v and variance %v from %v on", mean, variance, slices.Min(places))
	}
	once := recorded{Target: "aten.multinomial.default", Args: "(x0, 3)", In: []recordedTensor{weights}, Out: []recordedTensor{{DType: "int64", Shape: []int64{3}, Stride: []int64{1}}}}
	three, msg := once.run(t)
	if msg != "" {
		t.Fatal(msg)
	}
	if v := three[0].Float64s(); slices.Min(v) != 1 || v[0]+v[1]+v[2] != 6 || v[0]*v[1]*v[2] != 6 {
		t.Errorf("multinomial without replacement: %v", v)
	}
	out := draw("aten.native_dropout.default", "(x0, 0.75, True)", "", []recordedTensor{x}, "float32", "bool")
	kept := 0.0
	for i, v := range out[0].Float64s() {
		m := out[1].Float64s()[i]
		if kept += m / n; v != 8*m {
			t.Fatalf("native_dropout: 2 becomes %v under a mask of %v", v, m)
		}
	}
	if math.Abs(kept-0.25) > 6/math.Sqrt(n) {
		t.Errorf("native_dropout keeps %v", kept)
	}
}

// Means of integers are of sums that wrap in their type.
func TestNarrowMean(t *testing.T) {
	bytes := func(v ...string) recordedTensor {
		x := recordedTensor{DType: "int8", Shape: []int64{int64(len(v))}, Stride: []int64{1}}
		for _, s := range v {
			x.Data = append(x.Data, json.RawMessage(s))
		}
		return x
	}
	at := bytes("0", "0")
	at.DType = "int64"
	r := recorded{Target: "aten.scatter_reduce.two", Args: "(x0, 0, x1, x2, 'mean')", In: []recordedTensor{bytes("0"), at, bytes("100", "100")}, Out: []recordedTensor{bytes("-19")}}
	if msg := r.differs(t); msg != "" {
		t.Error(msg)
	}
}

// Views that reach beyond the end of a storage are refused, however far.
func TestStridedBeyond(t *testing.T) {
	for _, args := range []string{"[2], [1], 9223372036854775807", "[2], [4611686018427387904], 0", "[2], [4], 1"} {
		r := recorded{Target: "aten.as_strided_scatter.default", Args: "(x0, x1, " + args + ")",
			In: []recordedTensor{{DType: "bool", Shape: []int64{4}, Stride: []int64{1}}, {DType: "bool", Shape: []int64{2}, Stride: []int64{1}}}, Out: []recordedTensor{{DType: "bool", Shape: []int64{4}, Stride: []int64{1}}}}
		if _, msg := r.run(t); !strings.Contains(msg, "of a storage of 4") {
			t.Errorf("%s: %q", args, msg)
		}
	}
}

// What assignments to slices become: a tensor's number, and zeros, in the layout of the place.
func TestFilled(t *testing.T) {
	of := func(shape []int64, bits ...string) recordedTensor {
		x := recordedTensor{DType: "float32", Shape: shape, Stride: []int64{3, 1}[2-len(shape):]}
		for _, b := range bits {
			x.Data = append(x.Data, json.RawMessage(`"`+b+`"`))
		}
		return x
	}
	const one, two = "3f800000", "40000000"
	x, n := of([]int64{2, 3}, one, two, one, two, one, two), of([]int64{}, two)
	for _, r := range []recorded{
		{Target: "aten.fill.Tensor", Args: "(x0, x1)", In: []recordedTensor{x, n}, Out: []recordedTensor{of([]int64{2, 3}, two, two, two, two, two, two)}},
		{Target: "aten.zero.default", Args: "(x0,)", In: []recordedTensor{x}, Out: []recordedTensor{of([]int64{2, 3}, "00000000", "00000000", "00000000", "00000000", "00000000", "00000000")}},
	} {
		if msg := r.differs(t); msg != "" {
			t.Errorf("%s: %s", r.Target, msg)
		}
	}
}

// A causal mask that ends at the last key is concert's with as many queries only.
func TestCausalLengths(t *testing.T) {
	for _, keys := range []int64{2, 3} {
		of := func(n int64) recordedTensor {
			x := recordedTensor{DType: "float32", Shape: []int64{1, 1, n, 4}, Stride: []int64{4 * n, 4 * n, 4, 1}}
			for range 4 * n {
				x.Data = append(x.Data, json.RawMessage(`"3f800000"`))
			}
			return x
		}
		r := recorded{Target: "aten._scaled_dot_product_flash_attention.default", Args: "(x0, x1, x2, 0.0, True)", In: []recordedTensor{of(2), of(keys), of(keys)},
			Out: []recordedTensor{of(2), {DType: "float32", Shape: []int64{1, 1, 2}, Stride: []int64{2, 2, 1}}}}
		if _, msg := r.run(t); (msg == "") != (keys == 2) {
			t.Errorf("%d keys: %q", keys, msg)
		}
	}
}

// What is wrong with matrices is said of each: the factors themselves differ from PyTorch's then.
func TestCholeskyFails(t *testing.T) {
	x := recordedTensor{DType: "float32", Shape: []int64{3, 2, 2}, Stride: []int64{4, 2, 1}}
	for _, bits := range []string{"3f800000", "0", "0", "3f800000", "3f800000", "0", "0", "bf800000", "0", "0", "0", "3f800000"} { // 1 and 1, 1 and -1, 0 and 1
		x.Data = append(x.Data, json.RawMessage(`"`+bits+`"`))
	}
	got, msg := recorded{Target: "aten.linalg_cholesky_ex.default", Args: "(x0,)", In: []recordedTensor{x},
		Out: []recordedTensor{x, {DType: "int32", Shape: []int64{3}, Stride: []int64{1}}}}.run(t)
	if msg != "" {
		t.Fatal(msg)
	}
	if v := got[1].Float64s(); !slices.Equal(v, []float64{0, 2, 1}) {
		t.Errorf("first places that are not positive: %v, want 0 2 1", v)
	}
}

// What has no operations in the IR is opaque, and the warning says why.
func TestOpaque(t *testing.T) {
	z, x := recordedTensor{DType: "complex64", Shape: []int64{2, 2}, Stride: []int64{2, 1}}, recordedTensor{DType: "float32", Shape: []int64{2, 2}, Stride: []int64{2, 1}}
	far, wide := recordedTensor{DType: "complex64", Shape: []int64{4099}, Stride: []int64{1}}, recordedTensor{DType: "float32", Shape: []int64{257, 257}, Stride: []int64{257, 1}}
	both := recordedTensor{DType: "complex64", Shape: []int64{4, 2}, Stride: []int64{2, 1}}
	for _, c := range []struct {
		recorded
		want string
	}{
		{recorded{Target: "aten.cat.default", Args: "([x0, x1],)", In: []recordedTensor{z, x}, Out: []recordedTensor{both}}, "real numbers among complex ones"},
		{recorded{Target: "aten.copy.default", Args: "(x0, x1)", In: []recordedTensor{x, z}, Out: []recordedTensor{x}}, "arguments"},
		{recorded{Target: "aten._foreach_sqrt.default", Args: "([x0],)", In: []recordedTensor{z}, Out: []recordedTensor{z}}, "for complex numbers"},
		{recorded{Target: "aten._fft_c2c.default", Args: "(x0, [0], 0, True)", In: []recordedTensor{far}, Out: []recordedTensor{far}}, "4099 points"},
		{recorded{Target: "aten._fft_c2c.default", Args: "(x0, [1, -1], 0, True)", In: []recordedTensor{z}, Out: []recordedTensor{z}}, "arguments"},
		{recorded{Target: "aten.linalg_qr.default", Args: "(x0,)", In: []recordedTensor{wide}, Out: []recordedTensor{wide, wide}}, "257 columns, at most"},
	} {
		if _, msg := c.run(t); !strings.Contains(msg, c.want) {
			t.Errorf("%s: %q, want a warning with %q", c.Target, msg, c.want)
		}
	}
}
