package fx_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir/fx"
)

// recorded is a call of PyTorch's, see tools/torch/operators.py.
type recorded struct {
	Target, Args, Kwargs string
	In, Out              []recordedTensor
	Items                []int // places of Out in the result tuple, where that holds more than tensors
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
	dt, ok := dtype.Parse(map[string]string{"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16",
		"int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool"}[r.DType])
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
		return tensor{"shape": x.Shape, "stride": x.Stride, "dtype": x.DType}
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
	if r.Target == "aten.unbind.int" {
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
	text, err := json.Marshal(map[string]any{"name": "call", "world": 2, "groups": map[string]any{"g": [][]int{{0, 1}}}, "nodes": nodes})
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
	file, err := os.Open("testdata/operators.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	targets := map[string]int{}
	for n := 1; lines.Scan(); n++ {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		targets[r.Target]++
		if msg := r.differs(t); msg != "" {
			t.Errorf("line %d: %s%s %s of %v: %s", n, r.Target, r.Args, r.Kwargs, r.types(), msg)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operators", len(targets))
}

func (r recorded) types() []string {
	var out []string
	for _, x := range r.In {
		out = append(out, fmt.Sprintf("%s%v", x.DType, x.Shape))
	}
	return out
}

func (r recorded) differs(t *testing.T) string {
	f, err := fx.Read("call.json", strings.NewReader(r.document()))
	if err != nil {
		return err.Error()
	}
	res, err := f.Import()
	if err != nil {
		return err.Error()
	}
	if len(res.Warnings) > 0 {
		return res.Warnings[0].String()
	}
	var in []interp.Tensor
	for _, x := range r.In {
		in = append(in, x.tensor(t))
	}
	got, err := interp.Run(t.Context(), res.Func, [][]interp.Tensor{in, in}, interp.Options{})
	if err != nil {
		return err.Error()
	}
	for k, x := range r.Out {
		want := x.tensor(t)
		d, err := interp.Compare(got[0][k], want)
		if err != nil {
			return err.Error()
		}
		largest := 0.0
		for _, v := range want.Float64s() {
			if v-v == 0 {
				largest = max(largest, v, -v)
			}
		}
		if d.Exact || want.DType.IsFloat() && d.MaxAbs <= ulps*largest*map[dtype.DType]float64{dtype.F64: 0x1p-52, dtype.F32: 0x1p-23, dtype.F16: 0x1p-10, dtype.BF16: 0x1p-7}[want.DType] {
			continue
		}
		return fmt.Sprintf("result %d: %v: %v, want %v", k, d, got[0][k], want)
	}
	return ""
}
