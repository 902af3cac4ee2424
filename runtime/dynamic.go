package runtime

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
)

// Sizes that tensors hold, in steps that are captured. The host knows none of them when it
// collects the calls and does not wait for them in replays: a call has its sizes at their bounds,
// for which memory is laid out, and says what they are (DynamicSizes), and the device reads them when
// the call runs. What it cannot do so, the host does in replays, as it chooses branches (hosted.go).

// SizeReader is a Capturer whose steps take sizes from the device's memory.
type SizeReader interface {
	// ReadSizes checks, behind the calls of the stream so far, the sizes that they have read, and
	// breaks the world with the error that the check gives.
	ReadSizes(s Stream, c *SizeCheck) error
	// HostReads says why the host has to know a size of the step that is being collected. It
	// is then a *ControlFlowError of EndCapture, on all ranks.
	HostReads(why error)
}

// SizeRead is a symbol whose value a tensor holds.
type SizeRead struct {
	Symbol   string
	Min, Max int64
	At       Tensor // i64 without dimensions, in the rank's arena
}

// SizeCheck is what sizes that have been read must be: none outside of its Min and Max, and none of
// Needs, sums over them and the sizes that the caller gave, below 0.
type SizeCheck struct {
	DynamicSizes
	Needs []dim.Dim
	Error func(values map[string]int64) error // nil if the values are right
}

// DynamicSizes are the sizes that a call names: those that the caller gave, and those that tensors hold
// when the call runs, of which the call itself has the bounds.
type DynamicSizes struct {
	Known map[string]int64
	Reads []SizeRead

	Outs, Ins           []program.Tensor
	Sizes               []dim.Dim   // of a kernel
	InSplits, OutSplits [][]dim.Dim // of an all_to_all
	code                *Code       // of a kernel, for any sizes
}

// Value is the value of a symbol, given those that tensors hold.
func (l *DynamicSizes) Value(read map[string]int64) func(string) (int64, bool) {
	return func(name string) (int64, bool) {
		if v, ok := l.Known[name]; ok {
			return v, true
		}
		v, ok := read[name]
		return v, ok
	}
}

// Read reads the sizes from a memory that the host sees.
func (l *DynamicSizes) Read(arena func(lo, hi int64) []byte) map[string]int64 {
	out := map[string]int64{}
	for _, r := range l.Reads {
		out[r.Symbol] = dtype.LoadInt(I64, arena(r.At.Off, r.At.Off+8))
	}
	return out
}

func evaluated(dims []dim.Dim, value func(string) (int64, bool)) ([]int64, error) {
	out := make([]int64, len(dims))
	for i, d := range dims {
		n, ok := d.Eval(value)
		if !ok || n < 0 {
			return nil, fmt.Errorf("size %v is %d", d, n)
		}
		out[i] = n
	}
	return out, nil
}

func shaped(ts []Tensor, of []program.Tensor, value func(string) (int64, bool)) ([]Tensor, error) {
	ts = slices.Clone(ts)
	for i := range ts {
		var err error
		if ts[i].Shape, err = evaluated(of[i].Shape, value); err == nil && of[i].Strides != nil {
			ts[i].Strides, err = evaluated(of[i].Strides, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return ts, nil
}

// At is the launch with its sizes at the values that tensors hold. The error names a size that has
// none, or one below 0.
func (k *Kernel) At(read map[string]int64) (*Kernel, error) {
	l, at := k.Dynamic, *k
	value := l.Value(read)
	var err error
	if at.Outs, err = shaped(k.Outs, l.Outs, value); err != nil {
		return nil, err
	}
	if at.Ins, err = shaped(k.Ins, l.Ins, value); err != nil {
		return nil, err
	}
	if at.Sizes, err = evaluated(l.Sizes, value); err != nil {
		return nil, err
	}
	if at.Dynamic = nil; l.code != nil {
		at.Code, err = l.code.at(at.Sizes)
	}
	return &at, err
}

// names reports whether an instruction names a symbol whose value a tensor holds.
func (x *Exec) names(in *program.Instr) bool {
	if _, ok := x.r.dev.(SizeReader); !ok {
		return false
	}
	return len(x.unread) > 0 && slices.ContainsFunc(in.SymbolsNamed(), func(s string) bool { return x.sizeRead(s) != nil })
}

func (x *Exec) sizeRead(symbol string) *SizeRead {
	for i := range x.unread {
		for k := range x.unread[i].reads {
			if r := &x.unread[i].reads[k]; r.Symbol == symbol {
				return r
			}
		}
	}
	return nil
}

// late makes an instruction of a captured step whose sizes the device reads.
func (x *Exec) late(p *program.Program, in *program.Instr) {
	name := opName("%" + in.Node)
	stream := p.Streams[in.Stream].Name
	l := &DynamicSizes{Known: x.syms}
	for _, s := range in.SymbolsNamed() {
		if r := x.sizeRead(s); r != nil {
			l.Reads = append(l.Reads, *r)
		}
	}
	tensors := func(ts []program.Tensor) (out []Tensor) {
		for i := range ts {
			t := Tensor{Off: p.Buffers[ts[i].Buffer].Offset + ts[i].Offset, DType: ts[i].DType, Shape: x.most(ts[i].Shape)}
			if ts[i].Strides != nil {
				t.Strides = x.most(ts[i].Strides)
			}
			out = append(out, t)
		}
		return out
	}
	outs, ins := tensors(in.Outs), tensors(in.Ins)
	l.Outs, l.Ins = in.Outs, in.Ins
	var err error
	if l.Sizes, err = in.Sizes(); err != nil {
		x.fail(name, err)
		return
	}
	switch {
	case in.Kind == program.Collective:
		x.exchange(p, in, stream, l, outs, ins)
	case in.Kind == program.Launch && (in.Op == "shard" || in.Op == "rand" || in.Op == "call"):
		x.hostReads(fmt.Errorf("%s of a size that a tensor holds", in.Op))
	default:
		k := &Kernel{Op: in.Op, Attrs: in.Attrs, Label: in.Node, Outs: outs, Ins: ins, Dynamic: l}
		if in.Kind == program.Copy {
			k.Op, k.Attrs = "clone", nil
		}
		k.Sizes = x.most(l.Sizes)
		x.launch(stream, k, nil)
	}
}

// exchange is late of a collective.
func (x *Exec) exchange(p *program.Program, in *program.Instr, stream string, l *DynamicSizes, outs, ins []Tensor) {
	send, receive, err := in.Splits()
	if err != nil {
		x.fail(opName("%"+in.Node), err)
		return
	}
	if in.Op != AllToAll.String() || send == nil {
		x.hostReads(fmt.Errorf("%s of a size that a tensor holds", in.Op))
		return
	}
	c := &Collective{Op: AllToAll, Group: p.Groups[in.Group].Name, Label: in.Node, Outs: outs, Ins: ins, Dynamic: l}
	l.InSplits, l.OutSplits = send, receive
	for k := range send {
		c.InSplits, c.OutSplits = append(c.InSplits, x.most(send[k])), append(c.OutSplits, x.most(receive[k]))
	}
	x.start(stream, c, nil)
}

// most is the bounds of sizes in a captured step.
func (x *Exec) most(dims []dim.Dim) []int64 {
	out := make([]int64, len(dims))
	for i, d := range dims {
		r, _ := d.Bounds(x.bounds) // the program has been checked
		out[i] = r.Max
	}
	return out
}

// bounds is the range of a symbol in a captured step.
func (x *Exec) bounds(name string) (dim.Range, bool) {
	if v, ok := x.syms[name]; ok {
		return dim.Range{Min: v, Max: v}, true
	}
	r := x.sizeRead(name)
	if r == nil {
		return dim.Range{}, false
	}
	return dim.Range{Min: r.Min, Max: r.Max}, true
}

// hostReads leaves a size of a captured step to the host.
func (x *Exec) hostReads(why error) {
	x.byHost = true
	x.r.dev.(SizeReader).HostReads(why)
}

// readLate makes the device check sizes that a call of a captured step has read.
func (x *Exec) readLate(s Stream, p *sizesRead) {
	dev, ok := x.r.dev.(SizeReader)
	if !ok || x.err != nil {
		return
	}
	c := &SizeCheck{DynamicSizes: DynamicSizes{Known: x.syms}}
	names := slices.Clone(p.names)
	for _, n := range x.m.Needs {
		d, err := dim.Parse(n.Size)
		if err != nil {
			x.fail(opName("need "+n.Size), err)
			return
		}
		of := d.Symbols(nil)
		_, known := d.Bounds(x.bounds)
		if known && slices.ContainsFunc(of, func(s string) bool { return slices.Contains(p.names, s) }) {
			c.Needs = append(c.Needs, d)
			names = append(names, of...)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if r := x.sizeRead(name); r != nil {
			c.Reads = append(c.Reads, *r)
			if r.Min > 0 { // the device's kernel knows upper bounds alone
				c.Needs = append(c.Needs, dim.Sym(name).Sub(dim.New(r.Min)))
			}
		}
	}
	m, rank, syms, node := x.m, x.r.env.Rank, x.syms, p.node
	c.Error = func(values map[string]int64) error {
		for _, r := range c.Reads {
			if v := values[r.Symbol]; v < r.Min || v > r.Max {
				return &CallError{Rank: rank, Op: "%" + node, Err: &SymbolError{Rank: rank, Module: m.Name, Symbol: r.Symbol, Value: v, Min: r.Min, Max: r.Max, Node: node}}
			}
		}
		known := maps.Clone(syms)
		maps.Copy(known, values)
		if err := m.needs(rank, known); err != nil {
			return &CallError{Rank: rank, Op: "%" + node, Err: err}
		}
		return nil
	}
	x.done(dev.ReadSizes(s, c))
}
