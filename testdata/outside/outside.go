// Package outside is a compiler that uses concert from a separate module: it converts its
// graph and takes back the schedule, the buckets and the offsets, with its own pass and
// kernels.
package outside

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Op is a node of this compiler's graph, with what concert decided about it.
type Op struct {
	Name, Kind string // input, weight, gather, reduce or scale
	Ms         float64
	Args       []*Op

	Issue  int   // place in the schedule
	Bucket int   // how many collectives it is communicated with, itself included
	Offset int64 // of the result in the arena
	value  *ir.Value
}

const world, rows, cols = 4, 8, 64

// Step is a graph of layers whose weights are gathered and whose results are reduced.
// Every layer is computed twice.
func Step(layers int) []*Op {
	x := &Op{Name: "x", Kind: "input"}
	ops := []*Op{x}
	add := func(kind string, ms float64, i int, args ...*Op) *Op {
		ops = append(ops, &Op{Name: fmt.Sprintf("%s/%d-%d", kind, i, len(ops)), Kind: kind, Ms: ms, Args: args})
		return ops[len(ops)-1]
	}
	for i := range layers {
		w := add("gather", 0.02, i, add("weight", 0, i))
		x = add("scale", 0.002, i, add("scale", 0.005, i, x, w), add("scale", 0.005, i, x, w))
		add("reduce", 0.02, i, x)
	}
	return ops
}

// Build is the graph in concert's terms: calls, and collectives over one group.
func Build(ops []*Op) (*ir.Module, error) {
	b := ir.NewBuilder(world)
	all := b.Group("hosts/all", [][]int{{0, 1, 2, 3}})
	f := b.Func("step")
	whole, shard := ir.Tensor(ir.F32, rows, cols), ir.Tensor(ir.F32, rows/world, cols)
	var outs []*ir.Value
	for _, o := range ops {
		fb := f.Named(o.Name).Origin(o).Cost(o.Ms)
		var args []*ir.Value
		for _, a := range o.Args {
			args = append(args, a.value)
		}
		switch o.Kind {
		case "input":
			o.value = fb.Input(o.Name, whole)
		case "weight":
			o.value = fb.Parameter(o.Name, shard)
		case "gather":
			o.value = f.Wait1(fb.AllGather(all, 0, args...))
		case "reduce":
			o.value = f.Wait1(fb.ReduceScatter(ir.Sum, all, 0, args...))
			outs = append(outs, o.value)
		default:
			o.value = fb.CallWith("my.scale", nil, ir.A("class", "compute", "factor", 0.5), args, whole)[0]
		}
	}
	f.Return(outs...)
	return b.Finish()
}

// TakeBack writes what concert decided into the graph.
func TakeBack(ops []*Op, f *compile.Function) error {
	s, err := f.Schedule()
	if err != nil {
		return err
	}
	for i, it := range s.Items {
		for _, o := range it.Origins {
			o.(*Op).Issue, o.(*Op).Bucket = i, len(it.Members)
		}
	}
	for _, o := range ops {
		if f.ValueOf(o.value) != nil { // else a pass has found another that computes the same
			at, err := f.Place(o.value)
			if err != nil {
				return err
			}
			o.Offset = at[0].Offset
		}
	}
	return nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Table is concert's passes and this compiler's.
func Table() *passes.Table {
	return must(standard.Table().Extend([]passes.Pass{{Name: "share-calls", Doc: "Computes calls of one target on the same operands once.",
		Stats: []passes.Stat{{Name: "shared", Doc: "calls that another replaces"}}, Run: shareCalls}},
		[]passes.Constraint{{Before: "share-calls", After: "overlap", Why: "a call that is gone needs no place in the schedule"}},
		[]passes.NamedPipeline{{Name: "mine", Doc: "share-calls before all else", Text: "share-calls,default"}}))
}

func shareCalls(ctx *passes.Context, f *ir.Func) error {
	seen := map[string]*ir.Node{} // look-up only
	for _, n := range f.Order() {
		if n.Op() != ir.OpCall || !n.Pure() || len(n.Results()) != 1 {
			continue
		}
		key := fmt.Sprint(n.Attrs(), n.Args(), n.Result(0).Type())
		if first := seen[key]; first == nil {
			seen[key] = n
		} else if ctx.Enable(n.Name()) {
			f.ReplaceUses(n.Result(0), first.Result(0))
			f.Remove(n)
			ctx.Count("shared", 1)
		}
	}
	return nil
}

// scale is a*factor + b in memory that Go sees.
func scale(c *rt.FuncCall) error {
	number := func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	for i := 0; i < len(c.Outs[0].Data); i += 4 {
		v := number(c.Ins[0].Data[i:])*float32(c.Attrs.Float("factor", 1)) + number(c.Ins[1].Data[i:])
		binary.LittleEndian.PutUint32(c.Outs[0].Data[i:], math.Float32bits(v))
	}
	return nil
}
