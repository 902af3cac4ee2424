package mesh

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

var mutants = flag.Int("mutants", 500, "mutants of programs of ranks")

// piecesOf are the pieces of a tensor that the ranks have, by the shape of one and the axes
// along each dimension. What lies behind the end is garbage; inside says what does not.
func piecesOf(m placement.Mesh, whole interp.Tensor, local []int64, at placement.Placement) (out []interp.Tensor, inside [][]bool, err error) {
	size := int64(whole.DType.Size())
	if at == nil { // the only axis that fits
		at = make(placement.Placement, len(local))
		for d := range local {
			for _, a := range m.Axes {
				if local[d] != whole.Shape[d] && local[d]*a.Size == whole.Shape[d] {
					at[d] = []string{a.Name}
				}
			}
		}
	}
	world := int64(1)
	for _, a := range m.Axes {
		world *= a.Size
	}
	for r := range world {
		coord, rest := map[string]int64{}, r
		for _, a := range slices.Backward(m.Axes) {
			coord[a.Name], rest = rest%a.Size, rest/a.Size
		}
		t, err := interp.NewTensor(whole.DType, local...)
		if err != nil {
			return nil, nil, err
		}
		in := make([]bool, t.NumElems())
		for i := range t.NumElems() {
			from, stride, rest, ok := int64(0), int64(1), i, true
			for d := len(local) - 1; d >= 0; d-- {
				piece := int64(0)
				for _, name := range at[d] {
					k := slices.IndexFunc(m.Axes, func(a placement.Axis) bool { return a.Name == name })
					piece = piece*m.Axes[k].Size + coord[name]
				}
				pos := piece*local[d] + rest%local[d]
				ok = ok && pos < whole.Shape[d]
				from += pos * stride
				stride *= whole.Shape[d]
				rest /= local[d]
			}
			if in[i] = ok; ok {
				copy(t.Data[i*size:(i+1)*size], whole.Data[from*size:])
			} else {
				for b := range size {
					t.Data[i*size+b] = byte(17 * (i + r))
				}
			}
		}
		out, inside = append(out, t), append(inside, in)
	}
	return out, inside, nil
}

// agrees runs both programs and reports whether the ranks have what they should.
func agrees(t *testing.T, device, ranks *ir.Func, o Options, seed uint64) bool {
	t.Helper()
	in, err := interp.RandomInputs(device, seed, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for r := range in { // ranks that run the program of one device have all of every input
		in[r] = in[0]
	}
	out, err := interp.Run(context.Background(), device, in, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cut := func(to *ir.Value, at placement.Placement, x interp.Tensor) ([]interp.Tensor, [][]bool) {
		local, _ := to.Type().Shape().Static()
		l, inside, err := piecesOf(o.Mesh, x, local, at)
		if err != nil {
			t.Fatal(err)
		}
		return l, inside
	}
	local := make([][]interp.Tensor, ranks.Module().World)
	for i, x := range in[0] {
		l, _ := cut(ranks.Inputs()[i].Result(0), at(o.Inputs, i), x)
		for r, p := range l {
			local[r] = append(local[r], p)
		}
	}
	has, err := interp.Run(context.Background(), ranks, local, interp.Options{})
	if err != nil {
		return false
	}
	for i := range out[0] {
		for r := range has {
			l, inside := cut(ranks.Return().Arg(i), at(o.Results, i), out[min(r, len(out)-1)][i])
			want := l[r]
			got, size := has[r][i].Clone(), want.DType.Size()
			for k, in := range inside[r] {
				if !in {
					clear(got.Data[k*size : (k+1)*size])
					clear(want.Data[k*size : (k+1)*size])
				}
			}
			d, err := interp.Compare(got, want)
			if err != nil || !(d.Rel < 1e-7) && !d.Exact {
				return false
			}
		}
	}
	return true
}

// addGroups adds groups to be wrong.
func addGroups(r *rand.Rand, m *ir.Module) {
	for m.World > 1 && len(m.Groups()) < 4 {
		n := m.World / 2
		var pairs [][]int
		perm := r.Perm(m.World)
		for i := range n {
			pairs = append(pairs, []int{perm[2*i], perm[2*i+1]})
		}
		m.AddGroup(fmt.Sprintf("wrong%d", len(m.Groups())), pairs)
		all := make([]int, m.World)
		for i := range all {
			all[i] = m.World - 1 - i
		}
		m.AddGroup(fmt.Sprintf("wrong%d", len(m.Groups())), [][]int{all})
	}
}

// reduceAgain reduces what a wait gives once more.
func reduceAgain(f *ir.Func, n *ir.Node) {
	c := n.Arg(0).Def()
	again := f.InsertAfter(n, ir.NodeSpec{Op: c.Op(), Name: c.Name() + "_again", Group: c.Group(), Attrs: c.Attrs(), Args: []*ir.Value{n.Result(0)}, Results: []ir.Type{c.Result(0).Type()}})
	w := f.InsertAfter(again, ir.NodeSpec{Op: ir.OpWaitTensor, Name: n.Name() + "_again", Args: []*ir.Value{again.Result(0)}, Results: []ir.Type{n.Result(0).Type()}})
	for _, u := range slices.Clone(n.Result(0).Uses()) {
		if u.Node != again {
			f.SetArg(u.Node, u.Index, w.Result(0))
		}
	}
}

// otherRows makes a program take rows of others, other rows or those that are masked, or moves an edge.
func otherRows(r *rand.Rand, f *ir.Func, n *ir.Node) {
	a, by := n.Attrs(), int64(1-2*r.IntN(2))
	switch n.Op() {
	case ir.OpWhere:
		f.ReplaceUses(n.Result(0), n.Arg(1))
	case ir.OpIota:
		if r.IntN(2) == 0 {
			f.SetAttrs(n, a.With("start", attr.Int(a.Int("start", 0)+by)))
		} else {
			f.SetAttrs(n, a.With("step", attr.Int(a.Int("step", 1)+by)))
		}
	case ir.OpCollectivePermute:
		l := slices.Clone(a.Ints("pairs"))
		if k := r.IntN(len(l)); r.IntN(2) == 0 {
			l = slices.Delete(l, k&^1, k&^1+2)
		} else {
			for i := k & 1; i < len(l); i += 2 {
				l[i] = (l[i] + by + int64(n.Group().Size())) % int64(n.Group().Size())
			}
		}
		f.SetAttrs(n, a.With("pairs", attr.Ints(l...)))
	default:
		l := slices.Clone(a.Ints("padding"))
		k := r.IntN(len(l)) &^ 1
		l[k], l[k+1] = l[k]+by, l[k+1]-by
		f.SetAttrs(n, a.With("padding", attr.Ints(l...)))
	}
}

func otherNumber(f *ir.Func, n *ir.Node) {
	for _, key := range []string{"scalar", "value"} {
		if n.Attrs().Has(key) {
			f.SetAttrs(n, n.Attrs().With(key, attr.Float(n.Attrs().Float(key, 0)*2+0.5)))
		}
	}
}

// pickNode is one of the nodes that are fit for something, nil if there is none.
func pickNode(r *rand.Rand, f *ir.Func, ok func(n *ir.Node) bool) *ir.Node {
	var l []*ir.Node
	for _, n := range f.Order() {
		if ok(n) {
			l = append(l, n)
		}
	}
	if len(l) == 0 {
		return nil
	}
	return l[r.IntN(len(l))]
}

// mutate changes something about the program of the ranks, and says what; empty if there is
// nothing of the kind that it drew.
func mutate(r *rand.Rand, f *ir.Func) string {
	m := f.Module()
	addGroups(r, m)
	pick := func(ok func(n *ir.Node) bool) *ir.Node { return pickNode(r, f, ok) }
	shift := func(n *ir.Node, key string, by int64) {
		f.SetAttrs(n, n.Attrs().With(key, attr.Int(n.Attrs().Int(key, 0)+by)))
	}
	var n *ir.Node
	switch kind := r.IntN(9); kind {
	case 0: // wrong group
		if n = pick(func(n *ir.Node) bool { return n.Group() != nil }); n != nil {
			f.SetGroup(n, m.Groups()[r.IntN(len(m.Groups()))])
		}
	case 1: // wrong reduction
		if n = pick(func(n *ir.Node) bool { return n.Reduction() != "" }); n != nil {
			f.SetAttrs(n, n.Attrs().With("reduce", attr.String([]string{"sum", "avg", "max", "min"}[r.IntN(4)])))
		}
	case 2, 3: // missing or double reduction
		n = pick(func(n *ir.Node) bool { return n.Op() == ir.OpWaitTensor && n.Arg(0).Def().Op() == ir.OpAllReduce })
		if n != nil && kind == 2 {
			f.ReplaceUses(n.Result(0), n.Arg(0).Def().Arg(0))
		} else if n != nil {
			reduceAgain(f, n)
		}
	case 4: // shifted slice or dimension
		if n = pick(func(n *ir.Node) bool {
			return n.Op() == ir.OpSlice || n.Op() == ir.OpSelect || n.Attrs().Has("dim") || n.Op() == ir.OpAllGather || n.Op() == ir.OpReduceScatter
		}); n != nil {
			by := int64(1 - 2*r.IntN(2))
			switch {
			case n.Op() == ir.OpSlice && n.Attrs().Has("end") && r.IntN(2) == 0:
				shift(n, "start", by)
				shift(n, "end", by)
			case n.Op() == ir.OpSelect:
				shift(n, "index", by)
			default:
				shift(n, "dim", by)
			}
		}
	case 5: // stale value
		n = pick(func(n *ir.Node) bool { return len(n.Args()) > 0 && n.Op() != ir.OpWaitTensor })
		i := r.IntN(len(n.Args()))
		var l []*ir.Value
		for _, o := range f.Order()[:n.At()] {
			for _, v := range o.Results() {
				if v.Type().Equal(n.Arg(i).Type()) && v != n.Arg(i) {
					l = append(l, v)
				}
			}
		}
		if len(l) == 0 {
			return ""
		}
		f.SetArg(n, i, l[r.IntN(len(l))])
	case 6, 7: // wrong rows of neighbours
		n = pick(func(n *ir.Node) bool {
			return n.Op() == ir.OpCollectivePermute || n.Op() == ir.OpIota || n.Op() == ir.OpWhere || n.Attrs().Has("padding")
		})
		if n != nil {
			otherRows(r, f, n)
		}
	default: // wrong number
		if n = pick(func(n *ir.Node) bool { return n.Attrs().Has("scalar") || n.Attrs().Has("value") }); n != nil {
			otherNumber(f, n)

		}
	}
	if n == nil {
		return ""
	}
	return n.String()
}

// TestMutants changes programs of ranks and holds what is proved all the same against a run:
// none that is proved may give other results.
func TestMutants(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	type program struct {
		name          string
		device, ranks *ir.Func
		o             Options
	}
	var programs []program
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.Files { // so that rounding cannot be taken for another result
			a.Files[i].Data = bytes.ReplaceAll(a.Files[i].Data, []byte("f32"), []byte("f64"))
		}
		device, ranks, o := pair(t, a)
		if _, err := Check(device, ranks, o); err != nil {
			continue
		}
		if !agrees(t, device, ranks, o, 1) {
			t.Fatalf("%s is proved, and gives other results", file)
		}
		programs = append(programs, program{filepath.Base(file), device, ranks, o})
	}
	device, ranks, o := steps(t, llama.Step{Layers: 1, Hidden: 8, FFN: 16, Heads: 4, Keys: 2, Head: 4, Vocab: 8, Batch: 2, Seq: 4, Data: 2, Model: 2, DType: ir.F64})
	programs = append(programs, program{"llama", device, ranks, o})
	r := rand.New(rand.NewPCG(7, 11))
	changed, accepted, equal := 0, 0, 0
	for i := 0; changed < *mutants && i < 100**mutants; i++ {
		p := programs[r.IntN(len(programs))]
		m := p.ranks.Module().Clone()
		f := m.Funcs()[0]
		before := string(f.AppendText(nil))
		what := mutate(r, f)
		if what == "" || m.Verify() != nil || string(f.AppendText(nil)) == before {
			continue
		}
		_, err := Check(p.device, f, p.o)
		same := agrees(t, p.device, f, p.o, uint64(i)) && agrees(t, p.device, f, p.o, uint64(i)+1)
		switch {
		case !same && err == nil:
			t.Errorf("%s: a mutant that gives other results is proved: %s", p.name, what)
			changed++
		case !same:
			changed++
		case err == nil:
			accepted++
		default:
			equal++
		}
	}
	if changed < *mutants {
		t.Errorf("%d mutants that change results: want %d", changed, *mutants)
	}
	t.Logf("%d mutants give other results; of those that do not, %d are proved and %d are not", changed, accepted, equal)
}
