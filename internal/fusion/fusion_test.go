package fusion_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
)

// parse returns function f of symbols a and b.
func parse(t *testing.T, text string) *ir.Func {
	t.Helper()
	lines := strings.NewReplacer(" { %", " {\n%", "; ", "\n", " }", "\n}").Replace(text)
	m, err := ir.Parse("test", "world 2\ngroup @g = [[0, 1]]\nsym a hint 3 max 37\nsym b hint 3 max 37\nfunc @f"+lines+"\n")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := m.Verify(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m.Func("f")
}

// inside are the nodes between the inputs and the return.
func inside(f *ir.Func) []*ir.Node {
	order := f.Order()
	return order[len(f.Inputs()) : len(order)-1]
}

// The last node of each function is what the rules are asked about.
func TestNode(t *testing.T) {
	for _, c := range []struct {
		name, text string
		gone       []bool // nil: it folds nothing
		apart      bool   // rows
		updates    bool   // rows
		sizedRows  bool   // and their number is open
		sized      bool
	}{
		{name: "sum", text: `(%x: f32[4,6]) -> (f32[4]) { %y = sum %x {dims=[1]} : f32[4]; return %y }`, gone: []bool{false, true}},
		{name: "sum of all", text: `(%x: f32[4,6]) -> (f32[]) { %y = sum %x : f32[]; return %y }`, gone: []bool{true, true}},
		{name: "argmax", text: `(%x: f32[4,6]) -> (i64[4]) { %y = argmax %x {dim=1} : i64[4]; return %y }`, gone: []bool{false, true}},
		{name: "softmax", text: `(%x: f32[4,6]) -> (f32[4,6]) { %y = softmax %x {dim=0} : f32[4,6]; return %y }`, gone: []bool{true, false}},
		{name: "cumsum", text: `(%x: f32[a,6]) -> (f32[a,6]) { %y = cumsum %x {dim=1} : f32[a,6]; return %y }`, gone: []bool{false, true}, sized: true},
		{name: "no fold", text: `(%x: f32[a,6]) -> (f32[a,6]) { %y = exp %x : f32[a,6]; return %y }`, apart: true, sized: true},
		{name: "rows", text: `(%x: f32[a,6]) -> (f32[a]) { %y = sum %x {dims=[1]} : f32[a]; return %y }`, gone: []bool{false, true}, apart: true, sized: true},
		{name: "columns", text: `(%x: f32[a,6]) -> (f32[6]) { %y = sum %x {dims=[0]} : f32[6]; return %y }`, gone: []bool{true, false}, sized: true},
		{name: "cat of columns", text: `(%x: f32[a,6]) -> (f32[a,12]) { %y = cat %x, %x {dim=1} : f32[a,12]; return %y }`, apart: true, sized: true},
		{name: "cat of rows", text: `(%x: f32[a,6]) -> (f32[a+a,6]) { %y = cat %x, %x {dim=0} : f32[a+a,6]; return %y }`, sized: true},
		{name: "rows of a table", text: `(%x: f32[9,6], %i: i64[a]) -> (f32[a,6]) { %y = index %x, %i {dims=[0]} : f32[a,6]; return %y }`, apart: true, sized: true},
		{name: "rows of rows", text: `(%x: f32[b,6], %i: i64[a]) -> (f32[a,6]) { %y = index %x, %i {dims=[0]} : f32[a,6]; return %y }`, sized: true},
		{name: "matmul", text: `(%x: f32[a,6], %y: f32[6,6]) -> (f32[a,6]) { %z = matmul %x, %y : f32[a,6]; return %z }`, sized: true},
		{name: "index_add", text: `(%x: f32[9,6], %i: i64[a], %v: f32[a,6]) -> (f32[9,6]) { %y = index_add %x, %i, %v {dim=0} : f32[9,6]; return %y }`, updates: true, sizedRows: true, sized: true},
		{name: "index_add of known size", text: `(%x: f32[9,6], %i: i64[4], %v: f32[4,6]) -> (f32[9,6]) { %y = index_add %x, %i, %v {dim=0} : f32[9,6]; return %y }`, updates: true},
		{name: "index_add of columns", text: `(%x: f32[9,6], %i: i64[a], %v: f32[9,a]) -> (f32[9,6]) { %y = index_add %x, %i, %v {dim=1} : f32[9,6]; return %y }`, sized: true},
		{name: "index_put", text: `(%x: f32[9,6], %v: f32[a,6], %i: i64[a]) -> (f32[9,6]) { %y = index_put %x, %v, %i {dims=[0]} : f32[9,6]; return %y }`, updates: true, sizedRows: true, sized: true},
		{name: "index_put of a table of positions", text: `(%x: f32[9,6], %v: f32[a,2,6], %i: i64[a,2]) -> (f32[9,6]) { %y = index_put %x, %v, %i {dims=[0]} : f32[9,6]; return %y }`, updates: true, sized: true},
		{name: "index_put of elements", text: `(%x: f32[9,6], %v: f32[a], %i: i64[a], %j: i64[a]) -> (f32[9,6]) { %y = index_put %x, %v, %i, %j {dims=[0,1]} : f32[9,6]; return %y }`, sized: true},
		{name: "positions apart", text: `(%x: f32[9,6], %v: f32[4,6], %w: i64[4,2]) -> (f32[9,6]) { %s = slice %w {dim=1, start=0, end=1} : i64[4,1:2,1]; %i = squeeze %s {dims=[1]} : i64[4:2]; %y = index_put %x, %v, %i {dims=[0]} : f32[9,6]; return %y }`},
	} {
		nodes := inside(parse(t, c.text))
		n := nodes[len(nodes)-1]
		gone, folds := fusion.ReducedDims(n)
		if folds != (c.gone != nil) || !slices.Equal(gone, c.gone) {
			t.Errorf("%s: folds %v %v, want %v", c.name, gone, folds, c.gone)
		}
		if got := fusion.RowsIndependent(n); got != c.apart {
			t.Errorf("%s: rows apart: %v", c.name, got)
		}
		if index, got := fusion.UpdatesRows(n); got != c.updates || got && index.Type().DType() != ir.I64 {
			t.Errorf("%s: updates rows: %v at %v", c.name, got, index)
		}
		if _, got := fusion.UpdatesSizedRows(n); got != c.sizedRows {
			t.Errorf("%s: updates rows of open number: %v", c.name, got)
		}
		if got := fusion.UsesDynamicSize(n); got != c.sized {
			t.Errorf("%s: sized: %v", c.name, got)
		}
	}
}

// A regionCase is a region, and part of the reason why it is not one row, vector or update; empty where it is.
type regionCase struct {
	name, text          string
	row, vector, update string
}

var regionCases = []regionCase{
	{
		name:   "vector",
		text:   `(%x: f32[a,b], %s: f32[]) -> (f32[a,b]) { %y = exp %x : f32[a,b]; %z = mul %y, %s : f32[a,b]; return %z }`,
		update: "neither of rows nor elementwise",
	},
	{
		name:   "rows of two sizes",
		text:   `(%x: f32[a,b,8:24*b,24,1], %y: f32[a,b,8]) -> (f32[a*b,8]) { %s = sum %x {dims=[2], keepdim=true} : f32[a,b,1]; %z = mul %y, %s : f32[a,b,8]; %w = view %z : f32[a*b,8]; %v = exp %w : f32[a*b,8]; return %v }`,
		vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name: "a size between two that count rows",
		text: `(%x: f32[a,4,b]) -> (f32[a,4,b]) { %y = softmax %x {dim=1} : f32[a,4,b]; %z = neg %y : f32[a,4,b]; return %z }`,
		row:  "depend on other rows", vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name: "rows that are transposed",
		text: `(%x: f32[a,b,8:8,8*a,1]) -> (f32[a,b,8]) { %y = exp %x : f32[a,b,8]; %z = neg %y : f32[a,b,8]; return %z }`,
		row:  "only the number of rows", vector: "not of the shape", update: "neither of rows nor elementwise",
	},
	{
		name: "rows counted by other dimensions",
		text: `(%x: f32[1,a,8], %y: f32[a,8]) -> (f32[1,a,8]) { %z = add %x, %y : f32[1,a,8]; %w = neg %z : f32[1,a,8]; return %w }`,
		row:  "by other dimensions", vector: "not of the shape", update: "neither of rows nor elementwise",
	},
	{
		name: "a vector along a known size that counts rows",
		text: `(%x: f32[a,4,b], %y: f32[1,4,1]) -> (f32[a,4,b]) { %z = add %x, %y : f32[a,4,b]; %w = neg %z : f32[a,4,b]; return %w }`,
		row:  "other elements for some rows", vector: "not of the shape", update: "neither of rows nor elementwise",
	},
	{
		name:   "a vector along rows",
		text:   `(%x: f32[a,4,b,8], %y: f32[1,1,8]) -> (f32[a,4,b,8]) { %z = add %x, %y : f32[a,4,b,8]; %w = neg %z : f32[a,4,b,8]; return %w }`,
		vector: "not of the shape", update: "neither of rows nor elementwise",
	},
	{
		name: "a table of which rows see a part",
		text: `(%x: f32[9,4,9], %i: i64[a,4,b]) -> (f32[a,4,b]) { %y = gather %x, %i {dim=0} : f32[a,4,b]; %z = neg %y : f32[a,4,b]; return %z }`,
		row:  "other elements for some rows", vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name:   "a table of which positions choose",
		text:   `(%x: f32[9,8], %i: i64[a,2,b]) -> (f32[a,2,b,8]) { %y = embedding %x, %i : f32[a,2,b,8]; %z = neg %y : f32[a,2,b,8]; return %z }`,
		vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name:   "through a view",
		text:   `(%x: f32[a,8]) -> (f32[a*8]) { %y = exp %x : f32[a,8]; %w = view %y : f32[a*8]; %v = add %w, %w : f32[a*8]; return %v }`,
		row:    "only the number of rows",
		update: "neither of rows nor elementwise",
	},
	{
		name:   "row",
		text:   `(%x: f32[a,8]) -> (f32[a,8]) { %s = sum %x {dims=[1], keepdim=true} : f32[a,1]; %y = mul %x, %s : f32[a,8]; return %y }`,
		vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name:   "row and column",
		text:   `(%x: f32[a,8]) -> (f32[a,8], f32[8]) { %s = sum %x {dims=[0]} : f32[8]; %y = exp %x : f32[a,8]; return %y, %s }`,
		row:    "depend on other rows",
		vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name:   "a result without rows",
		text:   `(%x: f32[a,8], %w: f32[8]) -> (f32[a,8], f32[8]) { %v = exp %w : f32[8]; %y = mul %x, %v : f32[a,8]; return %y, %v }`,
		row:    "no rows of unknown number",
		vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name:   "two sizes",
		text:   `(%x: f32[a,8], %z: f32[b,8]) -> (f32[a,8], f32[b,8]) { %y = exp %x : f32[a,8]; %w = exp %z : f32[b,8]; return %y, %w }`,
		row:    "one for all",
		vector: "not elementwise", update: "neither of rows nor elementwise",
	},
	{
		name:   "known sizes",
		text:   `(%x: f32[4]) -> (f32[4]) { %y = exp %x : f32[4]; return %y }`,
		row:    "no rows of unknown number",
		update: "neither of rows nor elementwise",
	},
	{
		name:   "update",
		text:   `(%i: i64[a], %v: bf16[a,6]) -> (bf16[9,6]) { %z = full {value=0.0} : f32[9,6]; %w = convert %v : f32[a,6]; %s = index_add %z, %i, %w {dim=0} : f32[9,6]; %y = convert %s : bf16[9,6]; return %y }`,
		row:    "depend on other rows",
		vector: "not elementwise",
	},
	{
		name:   "an update whose values others read",
		text:   `(%x: f32[9,6], %i: i64[a], %v: f32[a,6]) -> (f32[9,6], f32[a,6]) { %w = neg %v : f32[a,6]; %s = index_add %x, %i, %w {dim=0} : f32[9,6]; return %s, %w }`,
		row:    "depend on other rows",
		vector: "not elementwise", update: "others than an update of rows read it",
	},
	{
		name:   "an update whose positions are computed",
		text:   `(%x: f32[9,6], %i: i64[a], %v: f32[a,6]) -> (f32[9,6]) { %j = neg %i : i64[a]; %s = index_add %x, %j, %v {dim=0} : f32[9,6]; return %s }`,
		row:    "depend on other rows",
		vector: "not elementwise", update: "computed in the same region",
	},
	{
		name:   "an update that is broadcast",
		text:   `(%x: f32[1,6], %i: i64[a], %v: f32[a,6], %w: f32[9,6]) -> (f32[9,6]) { %s = index_add %x, %i, %v {dim=0} : f32[1,6]; %y = mul %s, %w : f32[9,6]; return %y }`,
		row:    "depend on other rows",
		vector: "not elementwise", update: "another shape",
	},
	{
		name:   "an update that is summed",
		text:   `(%x: f32[9,6], %i: i64[a], %v: f32[a,6]) -> (f32[9]) { %s = index_add %x, %i, %v {dim=0} : f32[9,6]; %y = sum %s {dims=[1]} : f32[9]; return %y }`,
		row:    "depend on other rows",
		vector: "not elementwise", update: "not elementwise, beside",
	},
}

func (c regionCase) run(t *testing.T) {
	nodes := inside(parse(t, c.text))
	_, row := fusion.RowSize(nodes)
	_, vector := fusion.VectorSize(nodes)
	root, update := fusion.SoleUpdate(nodes)
	for _, r := range []struct {
		rule string
		got  *fusion.Refusal
		want string
	}{{"row", row, c.row}, {"vector", vector, c.vector}, {"update", update, c.update}} {
		switch {
		case r.got == nil && r.want != "":
			t.Errorf("one %s, want %q", r.rule, r.want)
		case r.got != nil && (r.want == "" || !strings.Contains(r.got.Error(), r.want) || !slices.Contains(nodes, r.got.Node)):
			t.Errorf("no %s: %v, want %q", r.rule, r.got, r.want)
		}
	}
	if update == nil && root.Op() != ir.OpIndexAdd {
		t.Errorf("the update is %s", root.Op().Name())
	}
}

// All nodes of each function are a region. A rule that refuses says why.
func TestRegion(t *testing.T) {
	for _, c := range regionCases {
		t.Run(c.name, c.run)
	}
}

func TestMembership(t *testing.T) {
	f := parse(t, `(%x: f32[4,6]) -> (f32[24], f32[24]) { %y = exp %x : f32[4,6]; %v = view %y : f32[24]; %z = neg %v : f32[24]; %w = view %x : f32[24]; %u = add %z, %w : f32[24]; %o = exp %v : f32[24]; return %u, %o }`)
	at := func(name string) *ir.Node {
		for _, n := range f.Order() {
			if n.Name() == name {
				return n
			}
		}
		t.Fatalf("no %s", name)
		return nil
	}
	for _, c := range []struct{ region, given, escapes, writes string }{
		{"y v z w u", "x w", "y v u", "y u"}, // o reads v, which is y
		{"y v z w u o", "x w", "u o", "u o"},
		{"v z w u", "x v w", "v u", "u"}, // y is computed before, z is read inside only
	} {
		var nodes []*ir.Node
		for _, name := range strings.Fields(c.region) {
			nodes = append(nodes, at(name))
		}
		r := fusion.Of(nodes)
		for _, name := range strings.Fields("x y v z w u o") {
			n := at(name)
			has := func(list string) bool { return slices.Contains(strings.Fields(list), name) }
			if r.Has(n) != has(c.region) {
				t.Errorf("{%s}: has %s: %v", c.region, name, r.Has(n))
			}
			if got := r.Given(n.Result(0)); got != (has(c.given) || !has(c.region)) {
				t.Errorf("{%s}: %s is given: %v", c.region, name, got)
			}
			if !r.Has(n) {
				continue
			}
			if got := r.Escapes(n.Result(0)); got != has(c.escapes) {
				t.Errorf("{%s}: %s escapes: %v", c.region, name, got)
			}
			if got := r.Writes(n); got != has(c.writes) {
				t.Errorf("{%s}: writes %s: %v", c.region, name, got)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	f := parse(t, `(%x: f32[4,6], %y: f32[6,6]) -> (f32[4,6]) { %s = all_reduce.sum %x on @g : async f32[4,6]; %w = wait_tensor %s : f32[4,6]; %z = matmul %w, %y : f32[4,6]; %v = exp %z : f32[4,6]; return %v }`)
	for _, n := range inside(f) {
		no := fusion.Check(n, 1)
		if ok := n.Op() == ir.OpExp; ok != (no == nil) {
			t.Errorf("%%%s = %s: %v", n.Name(), n.Op().Name(), no)
		}
	}
}

// A view inside a region that shows nothing keeps it from being one kernel.
func TestEmptyView(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{`(%x: f32[4,6]) -> (f32[2,6]) { %y = exp %x : f32[4,6]; %s:2 = split %y {dim=0, sizes=[2, 2]} : f32[2,6], f32[2,6]; %z = neg %s#1 : f32[2,6]; return %z }`, true},
		{`(%x: f32[4,6]) -> (f32[4,6]) { %y = exp %x : f32[4,6]; %s:2 = split %y {dim=0, sizes=[0, 4]} : f32[0,6], f32[4,6]; %z = neg %s#1 : f32[4,6]; return %z }`, false},
	} {
		if got := fusion.SingleKernel(inside(parse(t, c.text))); got != c.want {
			t.Errorf("%v, want %v: %s", got, c.want, c.text)
		}
	}
}

// A kernel computes a value at each index at which it is asked for, which a chain of shifted
// sums doubles at every step; equal ways count once.
func TestComputedAnew(t *testing.T) {
	for _, c := range []struct {
		levels int
		start  int // of the second slice of two
		want   bool
	}{{5, 1, true}, {11, 1, false}, {40, 1, false}, {40, 0, true}} {
		text, n, last := "(%x0: f32[100]) -> (f32[", 100, "%x0"
		body := ""
		for k := range c.levels {
			n--
			next := fmt.Sprintf("%%x%d", k+1)
			body += fmt.Sprintf("%%a%d = slice %s {dim=0, end=%d, start=0} : f32[%d]; %%b%d = slice %s {dim=0, end=%d, start=%d} : f32[%d]; ", k, last, n, n, k, last, n+c.start, c.start, n)
			body += fmt.Sprintf("%s = add %%a%d, %%b%d : f32[%d]; ", next, k, k, n)
			last = next
		}
		text += fmt.Sprintf("%d]) { %sreturn %s }", n, body, last)
		if got := fusion.SingleKernel(inside(parse(t, text))); got != c.want {
			t.Errorf("%d sums of slices from 0 and %d: one kernel: %v", c.levels, c.start, got)
		}
	}
}
