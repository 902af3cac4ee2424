package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
)

// Inputs follow what fingerprints say of routing, those of each rank what its own say;
// what is recorded from them says it again.
func TestRoutedInputs(t *testing.T) {
	f := parsed(t, strings.NewReplacer("8,16", "32,64", "16,8", "64,32", "8,8", "32,32").Replace(overlapped))
	j := &Job{Config: Config{Random: "hash", Seed: 5, Same: "none"}, pair: &step.Pair{Name: "mlp", Forward: f}}
	q := fillrand.Routing{Experts: 4, Width: 64, Tokens: 16, Rows: 128}
	for r := range 4 {
		q := q
		q.Inputs = map[int]fillrand.Part{0: {Role: "table", First: int64(32 * r)}}
		j.prints = append(j.prints, &fingerprint.Set{Routing: map[string]*fillrand.Routing{"mlp.fw": &q}})
	}
	for r := range 4 {
		in, err := j.inputsOf(r)
		if err != nil {
			t.Fatal(err)
		}
		for k, got := range in {
			want, err := interp.NewTensor(dtype.BF16, got.Shape...)
			if err != nil {
				t.Fatal(err)
			}
			s := fillrand.New(5, k, r, 2)
			if k == 0 {
				err = q.Fill(fillrand.Part{Role: "table", First: int64(32 * r)}, s, want.Data, dtype.BF16, want.Shape)
			} else {
				err = s.Fill(want.Data, dtype.BF16)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Data, want.Data) {
				t.Errorf("rank %d: input %d is not what it should be", r, k)
			}
		}
	}
}

// Integers must be equal, inputs handed on too, and the loss is closer than the rest, the more so the more
// it is the mean of. What
// PyTorch's own runs are apart in may be further off, whatever is not chosen or handed on.
func TestPrintLimits(t *testing.T) {
	f := parsed(t, `world 2

func @limits(%x: bf16[8,8], %i: i64[8]) -> (f32[], bf16[8,8], i64[8], bf16[64], bf16[8,8], bool[8,8]) {
	%s = convert %x : f32[8,8]
	%l = mean %s {dims=[0, 1]} : f32[]
	%v = view %x : bf16[64]
	%y = mul %x, %x : bf16[8,8]
	%b = le %y {scalar=0} : bool[8,8]
	return %l, %y, %i, %v, %x, %b
}
`)
	share := math.Sqrt(roundingLimit)
	for _, c := range []struct {
		own               float64
		forward, backward []float64
	}{
		{0, []float64{8 * lossLimit, roundingLimit, 0, inputLimit, inputLimit, share}, []float64{roundingLimit, roundingLimit, 0, roundingLimit, roundingLimit, share}},
		{0.3, []float64{0.9, 0.9, 0, inputLimit, inputLimit, 0.9}, []float64{0.9, 0.9, 0, 0.9, 0.9, 0.9}},
		{1e30, []float64{3, 3, 0, inputLimit, inputLimit, 3}, []float64{3, 3, 0, 3, 3, 3}}, // a run with NaN
	} {
		for half, limits := range [][]float64{c.forward, c.backward} {
			for k, s := range interp.OutputSlots(f) {
				n, _ := s.Type.Shape().Static()
				elems := int64(64)
				if len(n) == 0 {
					elems = 1
				}
				if got := printLimit(s, half > 0, elems, c.own); math.Abs(got-limits[k]) > 1e-15 {
					t.Errorf("half %d output %d, PyTorch's own %g: %g, want %g", half, k, c.own, got, limits[k])
				}
			}
		}
	}
}

// Tokens go to the experts that their rows of the table name, in every layer and on every rank:
// what routing.py finds in models whose tokens take experts is all that has a part in it.
func TestRoutersDecide(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const dir = "../testdata/models"
	for _, name := range []string{"qwen3_moe", "gpt_oss", "mixtral"} {
		pair, err := step.Load(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		j := &Job{Config: Config{Random: "hash", Seed: 5, Same: "data", Data: filepath.Join(dir, name+".data.safetensors")}, pair: pair}
		if err := j.readData(); err != nil {
			t.Fatal(err)
		}
		for r := range pair.World() {
			out, err := exec.Command(python, "routing.py", "graph", fmt.Sprint(r), filepath.Join(dir, name+".fw.graph.json.gz")).Output()
			if err != nil {
				t.Fatal(err)
			}
			var q *fillrand.Routing
			if err := json.Unmarshal(out, &q); err != nil || q == nil || q.Takes != 2 {
				t.Fatalf("%s: routing.py says %s: %v", name, out, err)
			}
			j.prints = append(j.prints, &fingerprint.Set{Routing: map[string]*fillrand.Routing{name + ".fw": q}})
		}
		in, err := j.allInputs()
		if err != nil {
			t.Fatal(err)
		}
		for _, ts := range in { // labels are rows of the table, too
			for _, t := range ts {
				if !t.DType.IsInt() {
					continue
				}
				for i, v := range t.Int64s() {
					dtype.StoreInt(t.DType, t.Data[i*t.DType.Size():], v%j.prints[0].Routing[name+".fw"].Rows)
				}
			}
		}
		outs, err := step.Interpret(interp.Options{})(t.Context(), pair.Forward, in)
		if err != nil {
			t.Fatal(err)
		}
		for r := range in {
			q := j.prints[r].Routing[name+".fw"]
			want := slices.Concat(taken(q, in[r])...)
			layers := 0
			for _, o := range outs[r] {
				if o.DType != dtype.I64 || !slices.Equal(o.Shape, []int64{q.Tokens, q.Takes}) {
					continue
				}
				if layers++; !slices.Equal(o.Int64s(), want) {
					t.Errorf("%s, rank %d: tokens take %v, want %v", name, r, o.Int64s(), want)
				}
			}
			if layers != 2 {
				t.Errorf("%s, rank %d: %d layers save their experts, want 2", name, r, layers)
			}
		}
	}
}

// taken gives the experts that each token takes, as Routing says it.
func taken(q *fillrand.Routing, in []interp.Tensor) [][]int64 {
	var out [][]int64
	for k, p := range q.Inputs {
		if p.Role != "ids" {
			continue
		}
		for _, id := range in[k].Int64s() {
			slot := id % q.Tokens
			j, first := slot/q.Experts, slot%q.Experts
			out = append(out, []int64{first, (first + 1 + j%(q.Experts-1)) % q.Experts})
		}
	}
	return out
}

// How far PyTorch's own runs are apart is that of the worst rank.
func TestOwnOfTheWorstRank(t *testing.T) {
	key := fingerprint.Key{Func: "mlp.fw", Output: 1}
	j := &Job{}
	for _, own := range []float64{1e-4, 3e-4, 2e-4} {
		j.prints = append(j.prints, &fingerprint.Set{Prints: map[fingerprint.Key]fingerprint.Print{key: {Own: own}}})
	}
	if got := j.own(key); got != 3e-4 {
		t.Errorf("%g, want 3e-4", got)
	}
}

// What is beyond its limit agrees where it is as close to what float64 gives as what is expected is, on the
// rank in question; what is far from both does not.
func TestAsFarFromFloat64(t *testing.T) {
	f := parsed(t, "world 1\n\nfunc @far(%x: f32[4]) -> (f32[4]) {\n\t%y = add %x, %x : f32[4]\n\treturn %y\n}\n")
	key := fingerprint.Key{Func: "mlp.fw", Output: 0}
	prints := func(v float64) map[fingerprint.Key]fingerprint.Print {
		x, err := interp.Fill(dtype.F32, v, 4)
		if err != nil {
			t.Fatal(err)
		}
		p, err := fingerprint.Of(x)
		if err != nil {
			t.Fatal(err)
		}
		return map[fingerprint.Key]fingerprint.Print{key: p}
	}
	for _, c := range []struct {
		name             string
		got, want, exact float64
		ok, asExact      bool
	}{
		{"on the other side", 0.95, 1.05, 1, true, true},
		{"exact", 1, 1.05, 1, true, true},
		{"nearly twice as far", 1.099, 1.05, 1, true, true},
		{"three times as far", 1.15, 1.05, 1, false, false},
		{"far from both", 1.5, 1, 1, false, false},
		{"within the limit", 1.01, 1, 1, true, false},
		{"float64 overflows", 1.5, 1, math.Inf(1), false, false},
		{"not a number", math.NaN(), 1.05, 1, false, false},
	} {
		j := &Job{pair: &step.Pair{Name: "mlp", Forward: f}}
		j.prints = []*fingerprint.Set{{Prints: prints(c.want), Exact: prints(c.exact)}}
		all, err := j.comparedPrints([]*fingerprint.Set{{Prints: prints(c.got)}})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 1 || all[0].OK() != c.ok || all[0].Bound.Exact != c.asExact {
			t.Errorf("%s: %+v, want ok %v, by float64 %v", c.name, all, c.ok, c.asExact)
		}
	}
}
