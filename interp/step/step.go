// Package step runs traced training steps: a forward graph and the backward graph
// that its outputs feed. It knows how the two are connected, where the
// recorded inputs and results of a step are, and how close to them a run must
// come. What executes the functions is the caller's choice: the reference
// interpreter, a lowered program on threads or processes, or emitted code.
//
// A step called NAME is the files NAME.fw.graph.json[.gz] and
// NAME.bw.graph.json[.gz]; its recordings are, for every rank R,
// NAME.fw.rankR.in.safetensors (forward inputs by node name) and
// NAME.{fw,bw}.rankR.out.safetensors (results outK by position in the traced output).
package step

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// Pair is a training step.
type Pair struct {
	Name     string
	Forward  *ir.Func // its first output, but for new values of inputs that are donated to them, is the loss
	Backward *ir.Func // its outputs are the gradients of the parameters; nil if the step has none

	first int // of the forward outputs as traced, that backward takes; 0 where the functions say it
}

// Load reads the graphs of step name from dir. A step without a backward graph is
// one of inference. It fails if a file is malformed or the two do not fit.
func Load(dir, name string) (*Pair, error) {
	fw, err := readGraph(dir, name+".fw")
	if err != nil {
		return nil, err
	}
	bw, err := readGraph(dir, name+".bw")
	if errors.Is(err, fs.ErrNotExist) {
		return New(name, fw, nil)
	}
	if err != nil {
		return nil, err
	}
	return traced(name, fw, bw)
}

// traced pairs functions as they were imported: then each backward input has the name of
// the forward output that feeds it, or its annotation names it.
func traced(name string, fw, bw *ir.Func) (*Pair, error) {
	p, err := New(name, fw, bw)
	if err != nil {
		return nil, err
	}
	ws, err := p.wires()
	if err != nil {
		return nil, err
	}
	outs := interp.OutputSlots(fw)
	for _, w := range ws {
		if w.src != tangent && w.slot.Value.Def().Meta().Has(fx.MetaFrom) && !names(w.slot, outs[w.src].Value) {
			return nil, fmt.Errorf("step %s: backward input %%%s comes from %s, but the forward output at its place is %s: are both of one trace?",
				name, w.slot.Name, w.slot.Value.Def().Meta().Str(fx.MetaFrom, ""), tracedName(outs[w.src].Value.Def()))
		}
	}
	return p, nil
}

// New pairs two functions after it has checked that the forward outputs fit the
// backward inputs. bw may be nil.
func New(name string, fw, bw *ir.Func) (*Pair, error) {
	return (&Pair{Name: name, Forward: fw, Backward: bw}).checked()
}

// Compiled is the pair of what passes have made of p's functions: they keep inputs and outputs, but not
// the names by which p's fit.
func (p *Pair) Compiled(fw, bw *ir.Func) (*Pair, error) {
	return (&Pair{Name: p.Name, Forward: fw, Backward: bw, first: p.first}).checked()
}

func (p *Pair) checked() (*Pair, error) {
	if p.Backward == nil {
		return p, nil
	}
	if a, b := p.Forward.Module().World, p.Backward.Module().World; a != b {
		return nil, fmt.Errorf("step %s: forward runs on %d ranks, backward on %d", p.Name, a, b)
	}
	var err error
	_, p.first, err = p.connect()
	return p, err
}

func readGraph(dir, name string) (*ir.Func, error) {
	path := filepath.Join(dir, name+".graph.json")
	f, err := readFile(path + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return readFile(path)
	}
	return f, err
}

func readFile(path string) (*ir.Func, error) {
	file, err := fx.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := file.Import()
	if err != nil {
		return nil, err
	}
	return r.Func, nil
}

// Loss is the number of the loss among forward's output tensors: in front of it stand the new values of inputs
// that the step updates, such as running statistics.
func (p *Pair) Loss() int {
	k := 0
	for donated := p.Forward.Donations(); slices.ContainsFunc(donated, func(d ir.Donation) bool { return d.Result == k }); {
		k++
	}
	return k
}

// World is the number of ranks.
func (p *Pair) World() int { return p.Forward.Module().World }

// wire feeds one backward input tensor: from forward output tensor src, or with
// ones where src is tangent.
type wire struct {
	slot interp.Slot
	src  int
}

const tangent = -1

// names reports whether a backward input says that it is of a forward output.
func names(in interp.Slot, out *ir.Value) bool {
	n, name := in.Value.Def(), tracedName(out.Def())
	return n.Meta().Str(fx.MetaFrom, "") == name || tracedName(n) == name
}

// wires connects the backward function to the forward function by index, see
// fx.FirstSaved.
func (p *Pair) wires() ([]wire, error) {
	ws, _, err := p.connect()
	return ws, err
}

// RandomInputs is interp.RandomInputs of forward: integers stay in reach of what reads them in
// either half.
func (p *Pair) RandomInputs(seed uint64, o interp.RandomOptions) ([][]interp.Tensor, error) {
	if p.Backward != nil {
		var err error
		if o.Feeds, err = p.Sources(); err != nil {
			return nil, err
		}
		o.Next = p.Backward
	}
	return interp.RandomInputs(p.Forward, seed, o)
}

// connect also gives the index of the first output that backward takes.
func (p *Pair) connect() (ws []wire, first int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("step %s: %w", p.Name, err)
		}
	}()
	outs := interp.OutputSlots(p.Forward)
	traced, err := tracedOutputs(p.Forward)
	if err != nil {
		return nil, 0, err
	}
	var saved []int // of ws, what is not a tangent
	for _, s := range interp.InputSlots(p.Backward) {
		if s.Async {
			return nil, 0, fmt.Errorf("backward input %%%s is in flight; no forward output feeds it", s.Name)
		}
		if s.Value.Def().Role() != ir.RoleTangent {
			saved = append(saved, len(ws))
		}
		ws = append(ws, wire{s, tangent})
	}
	fits := func(k, output int) error {
		s := ws[saved[k]].slot
		if output >= len(traced) || traced[output] < 0 {
			return fmt.Errorf("backward input %%%s has no forward output %d", s.Name, output)
		}
		o := outs[traced[output]]
		if !o.Type.SameTensor(s.Type) {
			return fmt.Errorf("backward input %%%s is %s, forward output %d is %%%s of type %s: are both of one trace?", s.Name, s.Type, output, o.Name, o.Type)
		}
		return nil
	}
	if first = p.first; first == 0 {
		first, err = fx.FirstSaved(len(traced), len(saved), fits, func(k, output int) bool { return names(ws[saved[k]].slot, outs[traced[output]].Value) })
	} else {
		for k := 0; err == nil && k < len(saved); k++ {
			err = fits(k, first+k)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	for k, w := range saved {
		ws[w].src = traced[first+k]
	}
	return ws, first, nil
}

// tracedName is the name of a node in the graph file.
func tracedName(n *ir.Node) string { return n.Meta().Str(fx.MetaName, n.Name()) }

// tracedOutputs maps the traced outputs to the function's output tensors; -1
// stands for None.
func tracedOutputs(f *ir.Func) ([]int, error) {
	ret := f.Return()
	if ret == nil {
		return nil, fmt.Errorf("function @%s has no return", f.Name)
	}
	first := make([]int, len(ret.Args())) // output tensor of each operand
	at := 0
	for i, v := range ret.Args() {
		first[i] = at
		at += max(1, len(v.Type().Elems()))
	}
	if !ret.Meta().Has(fx.MetaOutputs) {
		return first, nil
	}
	places := ret.Meta().Ints(fx.MetaOutputs)
	out := make([]int, len(places))
	for k, p := range places {
		switch {
		case p < 0:
			out[k] = -1
		case p >= int64(len(first)):
			return nil, fmt.Errorf("traced output %d of @%s is operand %d of a return of %d", k, f.Name, p, len(first))
		default:
			out[k] = first[p]
		}
	}
	return out, nil
}

// TracedOutputs maps the outputs of a function as they were traced to its output
// tensors, as interp.OutputSlots lists them; -1 stands for an output that is no
// tensor. A function that was not traced has its own outputs.
func TracedOutputs(f *ir.Func) ([]int, error) { return tracedOutputs(f) }

// Tangent is what Sources says of an input that no forward output feeds.
const Tangent = tangent

// Sources says where the backward function's inputs, as interp.InputSlots lists
// them, come from: the number of the forward output tensor, or Tangent.
func (p *Pair) Sources() ([]int, error) {
	ws, err := p.wires()
	if err != nil {
		return nil, err
	}
	out := make([]int, len(ws))
	for i, w := range ws {
		out[i] = w.src
	}
	return out, nil
}

// BackwardInputs makes one rank's backward inputs of its forward outputs, with
// tangents of one. Tensors are shared, not copied.
func (p *Pair) BackwardInputs(outs []interp.Tensor) ([]interp.Tensor, error) {
	ws, err := p.wires()
	if err != nil {
		return nil, err
	}
	in := make([]interp.Tensor, len(ws))
	for i, w := range ws {
		if w.src != tangent {
			if w.src >= len(outs) {
				return nil, fmt.Errorf("step: %d forward outputs, backward input %%%s needs output %d", len(outs), w.slot.Name, w.src)
			}
			in[i] = outs[w.src]
			continue
		}
		shape, ok := w.slot.Type.Shape().Static()
		if !ok {
			return nil, fmt.Errorf("step: tangent %%%s has a symbolic shape", w.slot.Name)
		}
		if in[i], err = interp.Fill(w.slot.Type.DType(), 1, shape...); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// Runner executes a function: inputs and results by rank, as interp.InputSlots
// and interp.OutputSlots list them.
type Runner func(ctx context.Context, f *ir.Func, inputs [][]interp.Tensor) ([][]interp.Tensor, error)

// Interpret is the Runner of the reference interpreter.
func Interpret(o interp.Options) Runner {
	var sizes []map[string]int64 // that functions have read
	return func(ctx context.Context, f *ir.Func, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
		o := o
		for len(sizes) < f.Module().World {
			sizes = append(sizes, map[string]int64{})
		}
		o.Symbols, o.Sizes = known(f, o.Symbols, sizes), sizes
		return interp.Run(ctx, f, inputs, o)
	}
}

// known are the sizes that the caller gives, and those that f has from what ran before.
func known(f *ir.Func, given, sizes []map[string]int64) []map[string]int64 {
	if given == nil {
		given = make([]map[string]int64, len(sizes))
	}
	out := make([]map[string]int64, len(given))
	for r := range given {
		out[r] = map[string]int64{}
		maps.Copy(out[r], given[r])
		if r >= len(sizes) {
			continue // Run says what is wrong
		}
		for _, s := range f.Module().Symbols() {
			v, ok := sizes[r][s.Name]
			if ok && !slices.ContainsFunc(f.SizeReads(), func(n *ir.Node) bool { return slices.Contains(n.Attrs().Strs(ir.SymbolsKey), s.Name) }) {
				out[r][s.Name] = v
			}
		}
	}
	return out
}

// Run executes the step: forward on the given inputs, then backward on what it
// saved. bw is nil for a step without a backward function.
func (p *Pair) Run(ctx context.Context, run Runner, inputs [][]interp.Tensor) (fw, bw [][]interp.Tensor, err error) {
	if fw, err = run(ctx, p.Forward, inputs); err != nil {
		return nil, nil, fmt.Errorf("step %s forward: %w", p.Name, err)
	}
	if p.Backward == nil {
		return fw, nil, nil
	}
	in := make([][]interp.Tensor, len(fw))
	for r := range fw {
		if in[r], err = p.BackwardInputs(fw[r]); err != nil {
			return nil, nil, err
		}
	}
	if bw, err = run(ctx, p.Backward, in); err != nil {
		return nil, nil, fmt.Errorf("step %s backward: %w", p.Name, err)
	}
	return fw, bw, nil
}
