package spmd

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

var mutants = flag.Int("mutants", 100, "random programs of TestMutants")

// mutate changes something about a program of pieces: a wrong hop, a shifted window, a missing mask,
// another neighbour, another edge.
func mutate(r *rand.Rand, f *ir.Func) bool {
	order := f.Order()
	n := order[r.IntN(len(order))]
	if n.Op() == ir.OpInput || n.Op() == ir.OpReturn {
		return false
	}
	a := n.Attrs()
	if r.IntN(4) == 0 && len(n.Args()) > 0 { // another value
		i := r.IntN(len(n.Args()))
		var l []*ir.Value
		for _, o := range order[:n.At()] {
			for _, v := range o.Results() {
				if v != n.Arg(i) && v.Type().Equal(n.Arg(i).Type()) {
					l = append(l, v)
				}
			}
		}
		if len(l) == 0 {
			return false
		}
		f.SetArg(n, i, l[r.IntN(len(l))])
		return true
	}
	if n.Op() == ir.OpWhere && r.IntN(2) == 0 && n.Arg(1).Type().Equal(n.Result(0).Type()) {
		f.ReplaceUses(n.Result(0), n.Arg(1))
		return true
	}
	if r.IntN(3) == 0 {
		return fold(r, f, n)
	}
	if len(a) == 0 {
		return false
	}
	by := int64(1 - 2*r.IntN(2))
	at := a[r.IntN(len(a))]
	switch v := at.Val; v.Kind() {
	case attr.KindInt:
		if n.Op() == ir.OpSlice && at.Key != "dim" && r.IntN(2) == 0 {
			f.SetAttrs(n, a.With("start", attr.Int(a.Int("start", 0)+by)).With("end", attr.Int(a.Int("end", shapeOf(n.Arg(0))[a.Int("dim", 0)])+by)))
			return true
		}
		f.SetAttrs(n, a.With(at.Key, attr.Int(a.Int(at.Key, 0)+by)))
	case attr.KindInts:
		l := slices.Clone(a.Ints(at.Key))
		if len(l) == 0 {
			return false
		}
		switch k := r.IntN(len(l)); r.IntN(3) {
		case 0:
			l[k] += by
		case 1:
			if at.Key == "pairs" { // one rank gets nothing
				l = slices.Delete(l, k&^1, k&^1+2)
			} else {
				l[k] += by
			}
		default:
			o := r.IntN(len(l))
			l[k], l[o] = l[o], l[k]
		}
		f.SetAttrs(n, a.With(at.Key, attr.Ints(l...)))
	case attr.KindFloat:
		f.SetAttrs(n, a.With(at.Key, attr.Float(a.Float(at.Key, 0)+float64(by))))
	default:
		return false
	}
	return true
}

// fold changes what a node folds by, or the number that a fold begins with.
func fold(r *rand.Rand, f *ir.Func, n *ir.Node) bool {
	a := n.Attrs()
	for _, l := range [][]ir.Op{{ir.OpAdd, ir.OpMul, ir.OpMaximum, ir.OpMinimum}, {ir.OpGe, ir.OpGt, ir.OpLe, ir.OpLt}} {
		if slices.Contains(l, n.Op()) && r.IntN(2) == 0 {
			f.SetOp(n, l[r.IntN(len(l))])
			return true
		}
	}
	if a.Has("reduce") {
		f.SetAttrs(n, a.With("reduce", attr.String([]string{"sum", "product", "max", "min"}[r.IntN(4)])))
		return true
	}
	for _, key := range []string{"scalar", "value"} {
		if !a.Has(key) {
			continue
		}
		lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
		if dt := n.Result(0).Type().DType(); !dt.IsFloat() {
			lo, hi = dt.Range()
		}
		numbers := []attr.Value{attr.Float(-a.Float(key, 0)), attr.Float(a.Float(key, 0) / 2), attr.Float(math.Inf(1)), attr.Float(math.Inf(-1))}
		for _, x := range []int64{lo, hi, lo + 1, hi - 1, 0, 1, -1} {
			numbers = append(numbers, attr.Int(x))
		}
		f.SetAttrs(n, a.With(key, numbers[r.IntN(len(numbers))]))
		return true
	}
	return false
}

// number is what proofs are about: a real one, of which nothing is left times zero.
const number = 0x41

// real reports whether all that ranks have are real numbers.
func real(ranks [][]interp.Tensor) bool {
	for _, l := range ranks {
		for _, t := range l {
			if slices.ContainsFunc(t.Float64s(), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
				return false
			}
		}
	}
	return true
}

// What is proved of a changed program computes what it should all the same.
func TestMutants(t *testing.T) {
	tried, proved := 0, 0
	for s := *seed; s < *seed+uint64(*mutants); s++ {
		m, err := program(s)
		if err != nil {
			t.Fatalf("seed %d: %v", s, err)
		}
		whole := m.Clone()
		device := whole.Funcs()[0]
		if !sharding.Annotated(device) {
			continue
		}
		p, err := try(m, s, s%2 == 1)
		if err != nil {
			t.Fatalf("seed %d: %v", s, err)
		}
		o, err := mesh.Annotated(device, p.to)
		if err != nil {
			continue
		}
		if _, err := mesh.Check(device, p.to, o); err != nil {
			continue
		}
		n, k := survivors(t, p, device, o, s, 8)
		tried, proved = tried+n, proved+k
	}
	t.Logf("%d mutants, %d of them proved and equal", tried, proved)
	if tried == 0 {
		t.Errorf("want some")
	}
}

// Integers that differ in their last digits are not one number.
func TestLongNumbers(t *testing.T) {
	for _, value := range []string{"-9223372036854775807", "100000000000001"} {
		text := `world 2

func @f(%x: i64[4]) -> (i64[4], i64[4]) {
  %f = full {value=VALUE} : i64[4]
  %y = maximum %x, %f : i64[4]
  %z = add %x {scalar=VALUE} : i64[4]
  return %y, %z
}`
		of := func(value string) *ir.Func {
			m, err := ir.Parse("f.ir", strings.ReplaceAll(text, "VALUE", value))
			if err != nil {
				t.Fatal(err)
			}
			return m.Funcs()[0]
		}
		o := mesh.Options{Mesh: placement.Mesh{Axes: []placement.Axis{{Name: "x", Size: 2}}}}
		if _, err := mesh.Check(of(value), of(value), o); err != nil {
			t.Error(err)
		}
		next := value[:len(value)-1] + "8"
		if _, err := mesh.Check(of(value), of(next), o); err == nil || strings.Count(err.Error(), "result") < 2 {
			t.Errorf("%s for %s: %v", next, value, err)
		}
	}
}

// What integer types make of numbers tells these apart: one that is not whole or too large is
// converted its own way, no infinity is the least integer, and sums of constants have all digits.
func TestIntegerNumbers(t *testing.T) {
	constant := func(x, of string) string { return "%y = full {value=" + x + "} : " + of }
	summed := func(last string) string {
		return "%z = full {value=9999999999} : i64[1000]\n  %w = full {value=" + last + "} : i64[1]\n  %c = cat %x, %z, %w {dim=0} : i64[1006]\n  %s = sum %c {dims=[0]} : i64[]\n  %y = expand %s : i64[5]"
	}
	for _, c := range [][3]string{
		{"i64[5]", constant("1.0e+300", "i64[5]"), constant("-1.0e+300", "i64[5]")},
		{"i64[5]", constant("1.0e+19", "i64[5]"), constant("-9223372036854775808", "i64[5]")},
		{"i8[5]", "%y = add %x {scalar=100000000000} : i8[5]", "%y = add %x {scalar=100000000000.5} : i8[5]"},
		{"i64[5]", "%y = add %x {scalar=0} : i64[5]", "%y = add %x {scalar=0.0} : i64[5]"},
		{"i64[5]", summed("9999999999"), summed("9999999998")},
		{"i8[5]", "%y = amax %x {dims=[0], keepdim=true} : i8[1]", "%z = full {value=-inf} : i8[2]\n  %c = cat %x, %z {dim=0} : i8[7]\n  %y = amax %c {dims=[0], keepdim=true} : i8[1]"},
	} {
		var fs [2]*ir.Func
		for i := range fs {
			out := c[1][strings.LastIndex(c[1], ": ")+2:]
			m, err := ir.Parse("f.ir", "world 2\n\nfunc @f(%x: "+c[0]+") -> ("+out+") {\n  "+c[1+i]+"\n  return %y\n}")
			if err != nil {
				t.Fatal(err)
			}
			fs[i] = m.Funcs()[0]
		}
		o := mesh.Options{Mesh: placement.Mesh{Axes: []placement.Axis{{Name: "x", Size: 2}}}}
		if _, err := mesh.Check(fs[0], fs[0], o); err != nil {
			t.Errorf("%s: %v", c[1], err)
		}
		if _, err := mesh.Check(fs[0], fs[1], o); err == nil {
			t.Errorf("%s is proved to be %s", c[2], c[1])
		}
	}
}

// survivors changes a program of pieces many times, each time once, and runs what is proved all the
// same: it computes what it should.
func survivors(t *testing.T, p *trial, device *ir.Func, o mesh.Options, seed uint64, times int) (tried, proved int) {
	r := rand.New(rand.NewPCG(seed, 5))
	before := p.to.Module().String()
	for range times {
		c := p.to.Module().Clone()
		f := c.Funcs()[0]
		if !mutate(r, f) || c.Verify() != nil || c.String() == before {
			continue
		}
		tried++
		if _, err := mesh.Check(device, f, o); err != nil {
			continue
		}
		got, err := p.runs(f, number)
		if err != nil { // a place that is none, in what nobody reads
			continue
		}
		if !real(p.want) || !real(got) { // of which proofs say nothing
			continue
		}
		proved++
		if err := p.compare(got, 1e-4); err != nil {
			t.Fatalf("seed %d: a mutant is proved that computes something else: %v\n%s\n%s\n%s", seed, err, device.Module(), before, c)
		}
	}
	return tried, proved
}

// A step of a convolutional net whose images are cut into rows takes halos, and is proved.
func TestConvNet(t *testing.T) {
	text, err := os.ReadFile("testdata/convnet.ir")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ir.Parse("convnet.ir", string(text))
	if err != nil {
		t.Fatal(err)
	}
	device := m.Clone().Funcs()[0]
	p, err := cheapest(m.Funcs()[0], true, false)
	if err != nil {
		t.Fatal(err)
	}
	p.to = m.AddFunc("ranks")
	if err := p.run(); err != nil {
		t.Fatal(err)
	}
	if p.moved > 16<<20 {
		t.Errorf("%d bytes arrive on each rank", p.moved)
	}
	o, err := mesh.Annotated(device, p.to)
	if err == nil {
		_, err = mesh.Check(device, p.to, o)
	}
	if err != nil {
		t.Error(err)
	}
}

// Sums of rows and of their neighbours, of such sums, and so on, are read in twice as many ways with
// each step; proofs of them end.
func TestNeighbours(t *testing.T) {
	var b strings.Builder
	b.WriteString("world 4\n\nfunc @f(%v0: f32[8,8] !{sharding=[\"<mesh<['x'=2, 'y'=2]>, [{'x'}, {'y'}]>\"]}) -> (f32[8,8]) {\n")
	const steps = 32
	for i := range steps {
		rest, first := [2]string{"7,8", "8,7:8,1"}[i%2], [2]string{"1,8", "8,1:8,1"}[i%2]
		fmt.Fprintf(&b, "  %%a%d = slice %%v%d {dim=%d, end=8, start=1} : f32[%s]\n", i, i, i%2, rest)
		fmt.Fprintf(&b, "  %%b%d = slice %%v%d {dim=%d, end=1, start=0} : f32[%s]\n", i, i, i%2, first)
		fmt.Fprintf(&b, "  %%c%d = cat %%a%d, %%b%d {dim=%d} : f32[8,8]\n  %%v%d = add %%c%d, %%v%d : f32[8,8]\n", i, i, i, i%2, i+1, i, i)
	}
	fmt.Fprintf(&b, "  return %%v%d\n}\n", steps)
	m, err := ir.Parse("neighbours.ir", b.String())
	if err != nil {
		t.Fatal(err)
	}
	device := m.Clone().Funcs()[0]
	p, err := try(m, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	o, err := mesh.Annotated(device, p.to)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() {
		_, _ = mesh.Check(device, p.to, o) // whether it proves it is not asked
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("no end in a minute")
	}
}
