package gomlx

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/gobackend"
)

var graphs = flag.Int("graphs", 150, "how many drawn computations TestDifferential compares")

// Computations drawn at random give the numbers of GoMLX's Go backend: on one rank, by generated
// kernels, and partitioned over a mesh. What differs is reduced to the few operations that make it so.
func TestDifferential(t *testing.T) {
	for _, config := range []string{"", "device=fake", "mesh=data:2/model:2", "mesh=fsdp:4"} {
		t.Run("concert:"+config, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, config)
			theirs, err := gobackend.New("ops_sequential")
			h.check(err)
			defer theirs.Finalize()
			compared := 0
			for seed := range uint64(*graphs) {
				n := 2 + int(seed%10)
				p := drawn{nodes: draw(seed, theirs.Builder("drawn").Main(), n)}
				want, err := p.all().run(theirs)
				if err != nil { // it takes some operations only to refuse them when they run
					t.Logf("seed %d: %.200v", seed, err)
					continue
				}
				compared++
				p.choose(seed)
				if off := p.off(h.b, want); off != "" {
					p.reduce(h.b, want)
					t.Errorf("seed %d: %s\n%s", seed, p.off(h.b, want), p.text(want))
				}
			}
			if t.Logf("%d of %d computations are GoMLX's", compared, *graphs); compared < *graphs*3/4 {
				t.Errorf("GoMLX's Go backend runs %d of %d", compared, *graphs)
			}
		})
	}
}

// drawn is a drawn computation whose results are some nodes; some nodes are given.
type drawn struct {
	nodes []node
	outs  []int
	given map[int]any
}

// all has all nodes as results.
func (p drawn) all() drawn {
	p.outs = nil
	for k := range p.nodes {
		p.outs = append(p.outs, k)
	}
	return p
}

// choose makes the last node a result, and some others.
func (p *drawn) choose(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 8))
	for k := range p.nodes {
		if k == len(p.nodes)-1 || r.IntN(4) == 0 {
			p.outs = append(p.outs, k)
		}
	}
}

// needed reports which nodes the results are made of.
func (p *drawn) needed() []bool {
	need := make([]bool, len(p.nodes))
	for _, k := range p.outs {
		need[k] = true
	}
	for k := len(p.nodes) - 1; k >= 0; k-- {
		if _, ok := p.given[k]; need[k] && !ok {
			for _, i := range p.nodes[k].ins {
				need[i] = true
			}
		}
	}
	return need
}

// run gives the results.
func (p drawn) run(b compute.Backend) (flats []any, err error) {
	defer recovered(&err)
	builder := b.Builder("drawn")
	f := builder.Main()
	at, need := make([]compute.Value, len(p.nodes)), p.needed()
	var in []compute.Buffer
	for k, n := range p.nodes {
		flat, ok := p.given[k]
		switch {
		case !need[k]:
		case ok || n.build == nil:
			if !ok {
				flat = n.flat
			}
			if at[k], err = f.Parameter(n.input(k), n.shape, nil); err != nil {
				return nil, err
			}
			u, err := b.BufferFromFlatData(0, flat, n.shape)
			if err != nil {
				return nil, err
			}
			in = append(in, u)
		default:
			ins := make([]compute.Value, len(n.ins))
			for i, j := range n.ins {
				ins[i] = at[j]
			}
			if at[k], err = n.build(f, ins); err != nil {
				return nil, fmt.Errorf("%s: %w", n.name, err)
			}
		}
	}
	outs := make([]compute.Value, len(p.outs))
	for i, k := range p.outs {
		outs[i] = at[k]
	}
	if err := f.Return(outs, nil); err != nil {
		return nil, err
	}
	x, err := builder.Compile()
	if err != nil {
		return nil, err
	}
	defer x.Finalize()
	bufs, err := x.Execute(in, nil, 0)
	if err != nil {
		return nil, err
	}
	for i, u := range bufs {
		s := p.nodes[p.outs[i]].shape
		if got, err := u.Shape(); err != nil || !got.Equal(s) {
			return nil, fmt.Errorf("result %d has shape %s, not %s: %v", i, got, s, err)
		}
		flat := dtypes.MakeAnySlice(s.DType, s.Size())
		if err := u.ToFlatData(flat); err != nil {
			return nil, err
		}
		flats = append(flats, flat)
	}
	return flats, nil
}

// recovered makes an error of a panic.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

// off says how the results are not those that are wanted of all nodes.
func (p *drawn) off(b compute.Backend, want []any) string {
	got, err := p.run(b)
	return p.differs(got, err, want)
}

// differs says how results are not those that are wanted of all nodes.
func (p *drawn) differs(got []any, err error, want []any) string {
	if err != nil {
		return fmt.Sprint("fails: ", err)
	}
	may := p.may(want)
	for i, k := range p.outs {
		if p.nodes[k].sure && !p.nodes[k].shape.DType.IsFloat() {
			if !bytes.Equal(dtypes.UnsafeByteSliceFromAny(got[i]), dtypes.UnsafeByteSliceFromAny(want[k])) {
				return fmt.Sprintf("v%d is %v, want %v", k, got[i], want[k])
			}
			continue
		}
		g, w := numbers(got[i]), numbers(want[k])
		for j := range g {
			if !(math.Abs(g[j]-w[j]) <= may[k]) && g[j] != w[j] && !(math.IsNaN(g[j]) && math.IsNaN(w[j])) && !(may[k] > 0 && bordering(g[j], w[j], p.nodes[k].shape.DType)) {
				return fmt.Sprintf("v%d[%d] is %v, want %v; %v, want %v up to %.2g", k, j, g[j], w[j], got[i], want[k], may[k])
			}
		}
	}
	return ""
}

// bordering reports whether one number is infinite and the other nearly so.
func bordering(a, b float64, dt dtypes.DType) bool {
	return dt == dtypes.Float16 && math.Abs(a) > 6e4 && math.Abs(b) > 6e4 && a*b > 0
}

// may is how far off a node may be.
func (p *drawn) may(want []any) []float64 {
	may, most := make([]float64, len(p.nodes)), make([]float64, len(p.nodes))
	for k, n := range p.nodes {
		for _, x := range numbers(want[k]) {
			if !math.IsInf(x, 0) && !math.IsNaN(x) {
				most[k] = max(most[k], math.Abs(x))
			}
		}
		if n.build == nil || !n.shape.DType.IsFloat() || p.given[k] != nil {
			continue
		}
		count, in, off := 1.0, 1.0, 0.0 // elements that come together, how large, how far off
		for _, i := range n.ins {
			off, in = max(off, may[i]), in*max(1, most[i])
			count = max(count, float64(p.nodes[i].shape.Size()))
		}
		eps := epsilon[n.shape.DType]
		for _, i := range n.ins {
			eps = max(eps, epsilon[p.nodes[i].shape.DType])
		}
		switch n.steep {
		case exact:
			may[k] = off
		case smooth, sharp:
			may[k] = 2*off + eps*most[k]
		case steep:
			may[k] = (2*off + eps) * max(1, most[k])
		case sums, times:
			may[k] = count * (off*in + eps*in)
		}
	}
	return may
}

var epsilon = map[dtypes.DType]float64{dtypes.Float64: 1e-14, dtypes.Float32: 1e-5, dtypes.Float16: 4e-3, dtypes.BFloat16: 3e-2}

// reduce leaves the first node that differs and what that takes.
func (p *drawn) reduce(b compute.Backend, want []any) {
	for _, k := range p.all().outs {
		one := drawn{nodes: p.nodes, outs: []int{k}}
		if one.off(b, want) != "" {
			p.outs = one.outs
			break
		}
	}
	p.given = map[int]any{}
	for k, n := range p.nodes {
		if need := p.needed(); n.build == nil || !need[k] || k == p.outs[len(p.outs)-1] {
			continue
		}
		if p.given[k] = want[k]; p.off(b, want) == "" {
			delete(p.given, k)
		}
	}
}

// text is what the results are made of.
func (p *drawn) text(want []any) string {
	var b strings.Builder
	need := p.needed()
	for k, n := range p.nodes {
		if !need[k] {
			continue
		}
		if fmt.Fprintf(&b, "\tv%d %s = ", k, n.shape); n.build == nil || p.given[k] != nil {
			fmt.Fprintf(&b, "%s %v\n", n.input(k), want[k])
			continue
		}
		b.WriteString(n.name)
		for _, i := range n.ins {
			fmt.Fprint(&b, " v", i)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// typed is numbers as a slice of a type.
func typed(dt dtypes.DType, xs []float64) any {
	out := dtypes.MakeAnySlice(dt, len(xs))
	for i, x := range xs {
		switch v := reflect.ValueOf(out).Index(i); {
		case dt == dtypes.Float16:
			v.Set(reflect.ValueOf(float16.FromFloat32(float32(x))))
		case dt == dtypes.BFloat16:
			v.Set(reflect.ValueOf(bfloat16.FromFloat32(float32(x))))
		case dt == dtypes.Bool:
			v.SetBool(x != 0)
		case v.CanFloat():
			v.SetFloat(x)
		case v.CanUint():
			v.SetUint(uint64(x))
		default:
			v.SetInt(int64(x))
		}
	}
	return out
}

// numbers is a slice of any type as numbers.
func numbers(flat any) []float64 {
	v := reflect.ValueOf(flat)
	out := make([]float64, v.Len())
	for i := range out {
		switch e := v.Index(i); {
		case e.Type() == reflect.TypeFor[float16.Float16]():
			out[i] = float64(e.Interface().(float16.Float16).Float32())
		case e.Type() == reflect.TypeFor[bfloat16.BFloat16]():
			out[i] = float64(e.Interface().(bfloat16.BFloat16).Float32())
		case e.Kind() == reflect.Bool:
			if e.Bool() {
				out[i] = 1
			}
		case e.CanFloat():
			out[i] = e.Float()
		case e.CanUint():
			out[i] = float64(e.Uint())
		default:
			out[i] = float64(e.Int())
		}
	}
	return out
}
