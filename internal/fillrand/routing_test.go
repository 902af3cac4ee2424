package fillrand

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/internal/dtype"
)

var routings = []Routing{
	{Experts: 4, Width: 64, Tokens: 32, Rows: 256},
	{Experts: 8, Width: 4096, Tokens: 2048, Rows: 32000},
	{Experts: 3, Width: 48, Tokens: 21, Rows: 40},
}

// made is an input of a rank as bfloat16, or as integers.
func made(t *testing.T, q *Routing, p Part, index, rank int, shape ...int64) []byte {
	t.Helper()
	d := dtype.BF16
	if p.Role == roleIDs {
		d = dtype.I64
	}
	n := int64(d.Size())
	for _, s := range shape {
		n *= s
	}
	data := make([]byte, n)
	if err := q.Fill(p, New(1, index, rank, len(shape)), data, d, shape); err != nil {
		t.Fatal(err)
	}
	return data
}

// The Python that the peer's script uses makes the same inputs, element by element.
func TestRoutingPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const most = 20000
	for _, q := range routings {
		for i, c := range []struct {
			part  Part
			shape []int64
		}{
			{Part{"table", 0, 5}, []int64{min(16, q.Rows-5), q.Width}},
			{Part{"router", 0, 1}, []int64{2, q.Width}},
			{Part{"ids", 0, 0}, []int64{1, q.Tokens}},
			{Part{"norm", 0, q.Width / 2}, []int64{q.Width / 2}},
			{Part{"out", 0, q.Width / 4}, []int64{q.Width / 4, 20}},
			{Part{"out", 1, 0}, []int64{2, q.Width, 3}},
			{Part{"out", 2, 8}, []int64{2, 3, q.Width - 8}},
		} {
			data := made(t, &q, c.part, i, 2, c.shape...)
			size := 2
			if c.part.Role == roleIDs {
				size = 8
			}
			n := min(len(data)/size, most)
			dims := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(c.shape)), ","), "[]")
			args := []string{"../../bench/routing.py", c.part.Role}
			for _, v := range []int64{int64(c.part.Axis), c.part.First, q.Experts, q.Width, q.Tokens, q.Rows, 1, int64(i), 2} {
				args = append(args, fmt.Sprint(v))
			}
			out, err := exec.Command(python, append(args, dims, fmt.Sprint(n))...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var want strings.Builder
			for e := range n {
				if size == 8 {
					fmt.Fprintln(&want, binary.LittleEndian.Uint64(data[8*e:]))
				} else {
					fmt.Fprintf(&want, "%04x\n", binary.LittleEndian.Uint16(data[2*e:]))
				}
			}
			got, expected := strings.Split(string(out), "\n"), strings.Split(want.String(), "\n")
			if !slices.Equal(got, expected) {
				for e := range min(len(got), len(expected)) {
					if got[e] != expected[e] {
						t.Fatalf("%+v %+v: element %d: Python has %s, Go %s", q, c, e, got[e], expected[e])
					}
				}
				t.Fatalf("%+v %+v: Python has %d lines, Go %d", q, c, len(got), len(expected))
			}
		}
	}
}

// The Python finds what has a part in routing in the traced graphs that have routers, and
// nothing in others.
func TestRoutingFound(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	of := func(q Routing, first, row, expert int64, layers int) *Routing {
		q.Inputs = map[int]Part{0: {"table", 0, first}, 10*layers + 3: {"ids", 0, 0}, 10*layers + 5: {"unit", 0, 0}, 10*layers + 6: {"unit", 0, 0}}
		for l := range layers {
			q.Inputs[10*l+5] = Part{"out", 0, row}
			q.Inputs[10*l+6] = Part{"norm", 0, row}
			q.Inputs[10*l+7] = Part{"router", 0, expert}
			q.Inputs[10*l+10] = Part{"out", 1, 0}
		}
		return &q
	}
	for _, c := range []struct {
		graph string
		rank  int
		want  *Routing
	}{
		{"tiny_moe2.fw", 1, of(routings[0], 128, 32, 2, 2)},
		{"tiny_moe2.bw", 1, nil},
		{"mixtral_l2_ep4_fsdp4.fw", 0, of(routings[1], 0, 0, 0, 2)},
		{"mixtral_l2_ep4_fsdp4.fw", 3, of(routings[1], 24000, 3072, 6, 2)},
		{"mixtral_ep8_fsdp8.fw", 7, of(Routing{Experts: 8, Width: 4096, Tokens: 4096, Rows: 32000}, 28000, 3584, 7, 32)},
		{"tiny_fsdp2.fw", 0, nil},
		{"llama8b_l4_tpsp4.fw", 2, nil},
	} {
		out, err := exec.Command(python, "../../bench/routing.py", "graph", fmt.Sprint(c.rank), "../../testdata/graphs/"+c.graph+".graph.json.gz").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.graph, err, out)
		}
		var got *Routing
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v\n%s", c.graph, err, out)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s, rank %d: want -, got +\n%s", c.graph, c.rank, d)
		}
		if got != nil && got.Check() != nil {
			t.Errorf("%s: %v", c.graph, got.Check())
		}
	}
}

// Every expert is chosen by as many tokens as by any other, the keys by which it orders
// them are apart, and all others are far below.
func TestRoutingDecides(t *testing.T) {
	q := &Routing{Experts: 8, Width: 512, Tokens: 2048, Rows: 4500}
	floats := func(data []byte) []float64 {
		out := make([]float64, len(data)/2)
		for i := range out {
			out[i] = float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(data[2*i:])))
		}
		return out
	}
	table := floats(made(t, q, Part{Role: "table"}, 0, 0, q.Rows, q.Width))
	router := floats(made(t, q, Part{Role: "router"}, 7, 0, q.Experts, q.Width))
	for rank := range 2 {
		ids := made(t, q, Part{Role: "ids"}, 23, rank, 1, q.Tokens)
		chances := make([][]float64, q.Experts) // the logarithms of their odds
		squares := map[float64]bool{}
		for i := range q.Tokens {
			row := table[int64(binary.LittleEndian.Uint64(ids[8*i:]))*q.Width:][:q.Width]
			logits, square := make([]float64, q.Experts), 0.0
			for e := range logits {
				for c, w := range router[int64(e)*q.Width:][:q.Width] {
					logits[e] += w * row[c]
				}
			}
			for c, x := range row {
				if !q.ofRouter(int64(c)) {
					square += x * x
				}
			}
			squares[math.Round(square*1e6)] = true
			for e := range logits {
				others := 0.0
				for f := range logits {
					if f != e {
						others += math.Exp(logits[f])
					}
				}
				chances[e] = append(chances[e], logits[e]-math.Log(others))
			}
		}
		if len(squares) != 1 {
			t.Errorf("rank %d: tokens have %d norms", rank, len(squares))
		}
		for e, all := range chances {
			slices.Sort(all)
			slices.Reverse(all)
			take := q.Tokens * 2 / q.Experts
			for i, x := range all[:take] {
				next := all[i+1]
				if scale := max(math.Abs(x), math.Abs(next)); x-next < 0.02*scale {
					t.Fatalf("rank %d expert %d: tokens %d and %d are %g apart at %g", rank, e, i, i+1, x-next, x)
				}
			}
			if gap := all[take-1] - all[take]; gap < 7 {
				t.Errorf("rank %d expert %d: the last token taken is only %g above the next", rank, e, gap)
			}
		}
	}
}

// What is not described well, or does not fit, is refused.
func TestRoutingRefuses(t *testing.T) {
	for _, text := range []string{
		`{"experts":2,"width":64,"tokens":32,"rows":256}`,
		`{"experts":4,"width":60,"tokens":32,"rows":256}`,
		`{"experts":4,"width":64,"tokens":33,"rows":256}`,
		`{"experts":4,"width":64,"tokens":32,"rows":31}`,
		`{"experts":4,"width":64,"tokens":4096,"rows":31000}`,
		`{"experts":0,"width":0,"tokens":0,"rows":0}`,
		`{"experts":4,"width":64,"tokens":32,"rows":256,"inputs":{"3":{"role":"what"}}}`,
		`{"experts":4,"width":64,"tokens":32,"rows":256,"inputs":{"3":{"role":"out","first":-1}}}`,
	} {
		var q Routing
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			t.Fatal(err)
		}
		if q.Check() == nil {
			t.Errorf("%s is taken", text)
		}
	}
	q := &routings[0]
	for _, c := range []struct {
		part  Part
		d     dtype.DType
		shape []int64
		bytes int
	}{
		{Part{Role: "table"}, dtype.BF16, []int64{4, 65}, 520},
		{Part{Role: "table"}, dtype.I64, []int64{4, 64}, 2048},
		{Part{Role: "table"}, dtype.BF16, []int64{4, 64}, 510},
		{Part{Role: "ids"}, dtype.I64, []int64{31}, 248},
		{Part{Role: "ids"}, dtype.BF16, []int64{32}, 64},
		{Part{Role: "out", Axis: 2}, dtype.BF16, []int64{4, 4}, 32},
		{Part{Role: "out", First: 61}, dtype.BF16, []int64{4, 4}, 32},
		{Part{Role: "norm"}, dtype.BF16, nil, 2},
	} {
		if q.Fill(c.part, New(1, 0, 0, 2), make([]byte, c.bytes), c.d, c.shape) == nil {
			t.Errorf("%+v is filled", c)
		}
	}
}
