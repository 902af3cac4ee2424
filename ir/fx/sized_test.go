package fx_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	rt "github.com/seed-ee968945/concert/runtime"
)

// sizedCall is a call whose sizes are expressions: a line of testdata/sized.txt such as
//
//	aten.mul.Tensor (x0, {n+1}) | f32[n,4] -> f32[n,4] | n=3 n=1
//
// The operands and results follow the arguments; f32[n,4:1,8] has strides; i64<n>[m] are numbers
// from 0 to below n, i64<iota>[n] the first numbers. In braces stands a size among the arguments;
// {n:n-1} is a quotient, a float.
// The last part gives values to the symbols, once for each run.
type sizedCall struct {
	target, args string
	view         bool
	in, out      []sizedTensor
	values       []map[string]int64
}

type sizedTensor struct {
	dt             string
	below          string
	shape, strides ir.Shape
}

var (
	sizedLine = regexp.MustCompile(`^(view )?(\S+) (\(.*\))( \{'.*\})? \| (.*) -> (.*) \| (.*)$`)
	sizedType = regexp.MustCompile(`^(\w+?)(?:<([^>]*)>)?\[([^\]:]*)(?::([^\]]*))?\]$`)
	sizedArg  = regexp.MustCompile(`\{([a-z0-9+*/():-]+)\}`)
	longNames = map[string]string{"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "i64": "int64", "i32": "int32", "i8": "int8", "u8": "uint8", "bool": "bool"}
)

func parseSized(t *testing.T, line string) (c sizedCall, kwargs string) {
	m := sizedLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("not a call: %s", line)
	}
	dims := func(text string) (s ir.Shape) {
		for _, part := range strings.Split(text, ",") {
			if part == "" {
				continue
			}
			d, err := ir.ParseDim(part)
			if err != nil {
				t.Fatal(line, err)
			}
			s = append(s, d)
		}
		return s
	}
	tensors := func(text string) (out []sizedTensor) {
		for _, f := range strings.Fields(text) {
			p := sizedType.FindStringSubmatch(f)
			if p == nil {
				t.Fatalf("not a tensor: %s", f)
			}
			x := sizedTensor{p[1], p[2], dims(p[3]), dims(p[4])}
			if p[4] == "" {
				x.strides = make(ir.Shape, len(x.shape))
				row := ir.D(1)
				for d := len(x.shape) - 1; d >= 0; d-- {
					x.strides[d], row = row, row.Mul(x.shape[d])
				}
			}
			out = append(out, x)
		}
		return out
	}
	c = sizedCall{target: m[2], args: m[3], view: m[1] != "", in: tensors(m[5]), out: tensors(m[6])}
	for _, f := range strings.Fields(m[7]) {
		at := map[string]int64{}
		for _, e := range strings.Split(f, ",") {
			name, n, _ := strings.Cut(e, "=")
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			at[name] = v
		}
		c.values = append(c.values, at)
	}
	return c, strings.TrimSpace(m[4])
}

func evaluated(s ir.Shape, at map[string]int64) []int64 {
	out := []int64{}
	for _, d := range s {
		n, ok := d.Eval(func(name string) (int64, bool) { n, ok := at[name]; return n, ok })
		if !ok {
			panic(d.String())
		}
		out = append(out, n)
	}
	return out
}

// sizedGraph is the traced graph of a call, with sizes that are numbers or, without values, open.
type sizedGraph struct {
	at    map[string]int64
	nodes []object
	names []string // that the call reads
}

type object = map[string]any

func (g *sizedGraph) node(name, kind, target string, inputs []string, args, kwargs string, out ...object) object {
	n := object{"name": name, "kind": kind, "target": target, "inputs": append([]string{}, inputs...), "args": args, "kwargs": kwargs, "out": append([]object{}, out...), "ms": 0.0}
	g.nodes = append(g.nodes, n)
	return n
}

func (g *sizedGraph) sizes(s ir.Shape) any {
	if g.at != nil {
		return evaluated(s, g.at)
	}
	out := []any{}
	for _, d := range s {
		if n, ok := d.Const(); ok {
			out = append(out, n)
		} else {
			out = append(out, d.String())
		}
	}
	return out
}

func (g *sizedGraph) describe(x sizedTensor) object {
	return object{"shape": g.sizes(x.shape), "stride": g.sizes(x.strides), "dtype": longNames[x.dt]}
}

// number is the value of a size or the name of a node that is it.
func (g *sizedGraph) number(text string) (name string, value int64) {
	d, err := ir.ParseDim(text)
	if err != nil {
		panic(err)
	}
	if g.at != nil {
		return "", evaluated(ir.Shape{d}, g.at)[0]
	}
	name = fmt.Sprintf("z%d", len(g.nodes))
	g.node(name, "size", "z", nil, "()", "")["size"] = d.String()
	return name, 0
}

// argument is what stands for a text in braces.
func (g *sizedGraph) argument(e string) string {
	over, under, float := strings.Cut(e[1:len(e)-1], ":")
	name, n := g.number(over)
	switch {
	case float:
		below, m := g.number(under)
		if g.at != nil {
			return strconv.FormatFloat(float64(n)/float64(m), 'g', -1, 64)
		}
		both := []string{name, below}
		name = fmt.Sprintf("z%d", len(g.nodes))
		g.node(name, "size", "<built-in function truediv>", both, "("+strings.Join(both, ", ")+")", "")
	case g.at != nil:
		return strconv.FormatInt(n, 10)
	}
	g.names = append(g.names, name)
	return name
}

func (c sizedCall) document(kwargs string, at map[string]int64) string {
	g := &sizedGraph{at: at}
	for k, x := range c.in {
		name := fmt.Sprintf("x%d", k)
		g.node(name, "input", "x", nil, "()", "", g.describe(x))["role"] = "data"
		if strings.Contains(c.args, name) {
			g.names = append(g.names, name)
		}
	}
	args, kwargs := sizedArg.ReplaceAllStringFunc(c.args, g.argument), sizedArg.ReplaceAllStringFunc(kwargs, g.argument)
	var outs []object
	for _, x := range c.out {
		outs = append(outs, g.describe(x))
	}
	kind := "memory"
	if c.view {
		kind = "view"
	}
	g.node("y", kind, c.target, g.names, args, kwargs, outs...)
	results := []string{"y"}
	if len(outs) > 1 {
		results = nil
		for k := range outs {
			name := fmt.Sprintf("y%d", k)
			g.node(name, "view", "<built-in function getitem>", []string{"y"}, fmt.Sprintf("(y, %d)", k), "", outs[k])
			results = append(results, name)
		}
	}
	g.node("output", "output", "output", results, "(("+strings.Join(results, ", ")+",),)", "")
	f := object{"name": "call", "world": 1, "groups": object{}, "nodes": g.nodes}
	if at == nil {
		symbols := object{}
		for name, n := range c.values[0] {
			least := n
			for _, other := range c.values {
				least = min(least, other[name])
			}
			symbols[name] = object{"hint": n, "min": least, "max": 16}
		}
		f["symbols"] = symbols
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// fill gives a tensor numbers of few digits, or those that it is said to have.
func (x sizedTensor) fill(t *testing.T, rng *rand.Rand, at map[string]int64) interp.Tensor {
	below := int64(7)
	if x.below != "" && x.below != "iota" {
		d, err := ir.ParseDim(x.below)
		if err != nil {
			t.Fatal(err)
		}
		below = max(evaluated(ir.Shape{d}, at)[0], 1)
	}
	dt, _ := dtype.Parse(x.dt)
	y, err := interp.NewTensor(dtype.F64, evaluated(x.shape, at)...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int(y.NumElems()) {
		v := float64(i)
		switch {
		case x.below == "iota":
		case dt == dtype.Bool:
			v = float64(rng.IntN(2))
		case dt.IsFloat():
			v = float64(rng.IntN(33)-16) / 8
		default:
			v = float64(rng.Int64N(below))
		}
		binary.LittleEndian.PutUint64(y.Data[8*i:], math.Float64bits(v))
	}
	if y, err = y.Convert(dt); err != nil {
		t.Fatal(err)
	}
	return y
}

// TestSized imports operators with open sizes and with sizes that are numbers, which PyTorch's recordings hold, and compares
// what the interpreter gives at several sizes, and what the host gives.
func TestSized(t *testing.T) {
	data, err := os.ReadFile("testdata/sized.txt")
	if err != nil {
		t.Fatal(err)
	}
	imported := func(text string) (*fx.Result, string) {
		f, err := fx.Read("call.json", strings.NewReader(text))
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
	host := hostrun.Goroutines(rt.Config{})
	for n, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		c, kwargs := parseSized(t, line)
		open, msg := imported(c.document(kwargs, nil))
		if msg != "" {
			t.Errorf("line %d: %s: open sizes: %s", n+1, c.target, msg)
			continue
		}
		for _, at := range c.values {
			fixed, msg := imported(c.document(kwargs, at))
			if msg != "" {
				t.Errorf("line %d: %s: %v: %s", n+1, c.target, at, msg)
				continue
			}
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			var in []interp.Tensor
			for _, x := range c.in {
				in = append(in, x.fill(t, rng, at))
			}
			inputs := [][]interp.Tensor{in}
			want, err := interp.Run(t.Context(), fixed.Func, inputs, interp.Options{})
			if err != nil {
				t.Errorf("line %d: %s: %v: %v", n+1, c.target, at, err)
				continue
			}
			for device, run := range map[string]func() ([][]interp.Tensor, error){
				"interpreter": func() ([][]interp.Tensor, error) { return interp.Run(t.Context(), open.Func, inputs, interp.Options{}) },
				"host":        func() ([][]interp.Tensor, error) { return host(t.Context(), open.Func, inputs) },
			} {
				got, err := run()
				if err != nil {
					t.Errorf("line %d: %s: %v on the %s: %v", n+1, c.target, at, device, err)
					continue
				}
				for k := range want[0] {
					d, err := interp.Compare(got[0][k], want[0][k])
					if err != nil || !d.Exact && !(want[0][k].DType.IsFloat() && d.MaxAbs <= 1e-5) {
						t.Errorf("line %d: %s: %v: result %d on the %s: %v %v: %v, want %v", n+1, c.target, at, k, device, d, err, got[0][k], want[0][k])
					}
				}
			}
		}
	}
}

// TestOperatorsOpen runs what PyTorch recorded with a first dimension that is a symbol. What
// cannot be imported so is no operation, or a call of another shape where another size of the call
// happens to be as large; testdata/sized_not.txt lists the operators none of whose calls can.
func TestOperatorsOpen(t *testing.T) {
	text, err := os.ReadFile("testdata/sized_not.txt")
	if err != nil {
		t.Fatal(err)
	}
	not, done := map[string]bool{}, map[string]bool{}
	for _, target := range strings.Fields(string(text)) {
		not[target] = true
	}
	tried := map[string]string{}
	eachRecorded(t, func(n int, r recorded) {
		if len(r.In) == 0 || len(r.In[0].Shape) == 0 || r.In[0].Shape[0] < 2 {
			return
		}
		r.open = true
		if _, msg := r.imported(); msg != "" {
			tried[r.Target] = msg
			return
		}
		done[r.Target] = true
		if msg := r.differs(t); msg != "" {
			t.Errorf("line %d: %s%s %s of %v: %s", n, r.Target, r.Args, r.Kwargs, r.types(), msg)
		}
	})
	for target, msg := range tried {
		if !done[target] && !not[target] {
			t.Errorf("%s: %s", target, msg)
		}
	}
	for target := range not {
		if done[target] || tried[target] == "" {
			t.Errorf("%s is in testdata/sized_not.txt and can be imported", target)
		}
	}
	t.Logf("%d operators", len(done))
}
