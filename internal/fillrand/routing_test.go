package fillrand

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/internal/dtype"
)

var routings = []Routing{
	{Experts: 4, Width: 64, Tokens: 32, Rows: 256},
	{Experts: 8, Width: 4096, Tokens: 2048, Rows: 32000},
	{Experts: 3, Width: 48, Tokens: 21, Rows: 40},
	{Experts: 8, Takes: 2, Width: 128, Tokens: 64, Rows: 200},
	{Experts: 8, Takes: 6, Width: 64, Tokens: 64, Rows: 100},
	{Experts: 3, Takes: 1, Width: 24, Tokens: 30, Rows: 40},
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
	const most = 10000
	var lines, names, want []string
	for _, q := range routings {
		for i, c := range []struct {
			part  Part
			shape []int64
		}{
			{Part{"table", 0, 5}, []int64{min(16, q.Rows-5), q.Width}},
			{Part{"router", 0, 1}, []int64{2, q.Width}},
			{Part{"bias", 0, 0}, []int64{q.Experts}},
			{Part{"ids", 0, 0}, []int64{1, q.Tokens}},
			{Part{"norm", 0, q.Width / 2}, []int64{q.Width / 2}},
			{Part{"out", 0, q.Width / 4}, []int64{q.Width / 4, 20}},
			{Part{"out", 1, 0}, []int64{2, q.Width, 3}},
			{Part{"out", 2, 8}, []int64{2, 3, q.Width - 8}},
		} {
			data := made(t, &q, c.part, i, 2, c.shape...)
			var words []string
			switch c.part.Role {
			case roleIDs:
				for ; len(data) > 0; data = data[8:] {
					words = append(words, fmt.Sprint(binary.LittleEndian.Uint64(data)))
				}
			default:
				for ; len(data) > 0 && len(words) < most; data = data[2:] {
					words = append(words, fmt.Sprintf("%04x", binary.LittleEndian.Uint16(data)))
				}
			}
			dims := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(c.shape)), ","), "[]")
			lines = append(lines, fmt.Sprintln(c.part.Role, c.part.Axis, c.part.First, q.Experts, q.Takes, q.Width, q.Tokens, q.Rows, 1, i, 2, dims, len(words)))
			names, want = append(names, fmt.Sprintf("%+v %+v", q, c)), append(want, strings.Join(words, " "))
		}
	}
	cmd := exec.Command(python, "../../bench/routing.py")
	cmd.Stdin = strings.NewReader(strings.Join(lines, ""))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("Python has %d lines, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := strings.Fields(got[i]), strings.Fields(want[i])
		for e := range min(len(g), len(w)) {
			if g[e] != w[e] {
				t.Errorf("%s: element %d: Python has %s, Go %s", names[i], e, g[e], w[e])
				break
			}
		}
		if len(g) != len(w) {
			t.Errorf("%s: Python has %d elements, Go %d", names[i], len(g), len(w))
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
		if d := gocmp.Diff(c.want, got); d != "" {
			t.Errorf("%s, rank %d: want -, got +\n%s", c.graph, c.rank, d)
		}
		if got != nil && got.Check() != nil {
			t.Errorf("%s: %v", c.graph, got.Check())
		}
	}
}

// routed gives the logits of a rank's tokens: what the table and the router make of them. Norms,
// which all tokens have the same, are left out.
func routed(t *testing.T, q *Routing, rank int) [][]float64 {
	t.Helper()
	floats := func(data []byte) []float64 {
		out := make([]float64, len(data)/2)
		for i := range out {
			out[i] = float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(data[2*i:])))
		}
		return out
	}
	table := floats(made(t, q, Part{Role: "table"}, 0, 0, q.Rows, q.Width))
	router := floats(made(t, q, Part{Role: "router"}, 7, 0, q.Experts, q.Width))
	ids := made(t, q, Part{Role: "ids"}, 23, rank, 1, q.Tokens)
	all, squares := make([][]float64, q.Tokens), map[float64]bool{}
	for i := range all {
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
		all[i] = logits
	}
	if len(squares) != 1 {
		t.Errorf("rank %d: tokens have %d norms", rank, len(squares))
	}
	return all
}

// Every expert is chosen by as many tokens as by any other, the keys by which it orders
// them are apart, and all others are far below.
func TestRoutingDecides(t *testing.T) {
	q := &Routing{Experts: 8, Width: 512, Tokens: 2048, Rows: 4500}
	for rank := range 2 {
		chances := make([][]float64, q.Experts) // the logarithms of their odds
		for _, logits := range routed(t, q, rank) {
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

// Where tokens take experts, the logits of those that a token takes are 2 apart and the others far
// below, and every expert is taken about as often as any other.
func TestRoutingByTokens(t *testing.T) {
	for _, takes := range []int64{1, 2, 5} {
		q := &Routing{Experts: 8, Takes: takes, Width: 512, Tokens: 2048, Rows: 4500}
		load := make([]int64, q.Experts)
		for i, logits := range routed(t, q, 1) {
			order := make([]int, q.Experts)
			for e := range order {
				order[e] = e
			}
			slices.SortFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
			for r, e := range order[:takes] {
				load[e]++
				if gap := logits[e] - logits[order[r+1]]; gap < 1.99 {
					t.Fatalf("takes %d, token %d: expert %d is only %g above the next", takes, i, e, gap)
				}
			}
		}
		for e, n := range load {
			if mean := takes * q.Tokens / q.Experts; n < mean*9/10 || n > mean*11/10 {
				t.Errorf("takes %d: expert %d is taken %d times, want about %d", takes, e, n, mean)
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
