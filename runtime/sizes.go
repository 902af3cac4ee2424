package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
)

// Sizes that tensors hold (program/sizes.go). The host waits for the launch that reads them
// where it first needs one, and checks them: no value reaches a call that is not in its bounds.
// In a captured step the device does (dynamic.go).
// Where a step is planned nothing runs, and what needs such a size is left out.

// sizesRead are the symbols of a launch that has been enqueued and whose values have not been
// asked for yet.
type sizesRead struct {
	names  []string
	sizes  Tensor // in the rank's arena
	reads  []SizeRead
	node   string
	stream Stream
	end    Event // of the launch, or of something behind it
	ended  bool  // with a replay
}

// reads notes that a launch reads sizes.
func (x *Exec) reads(s Stream, k *Kernel) {
	var names []string
	node := k.Label
	switch {
	case x.err != nil:
	case k.Op == program.OpReadSize:
		names = k.Attrs.Strs(program.SymbolsKey)
	case k.Code != nil && len(k.Code.Body) == 1 && k.Code.Body[0].Op == program.OpReadSize:
		names, node = k.Code.Body[0].Attrs.Strs(program.SymbolsKey), k.Code.Body[0].Node
	}
	if len(names) == 0 {
		return
	}
	if len(k.Outs) != 1 || len(k.Outs[0].Shape) != 1 || k.Outs[0].Shape[0] != int64(len(names)) || k.Outs[0].DType != I64 {
		x.fail(k, fmt.Errorf("gives %v for the symbols %v", k.Outs, names))
		return
	}
	i := slices.IndexFunc(x.l.streams, func(n *namedStream) bool { return n.Stream == s })
	p := sizesRead{names: names, sizes: k.Outs[0], node: node, stream: s, end: x.l.streams[i].end, ended: x.ways == written}
	for i, name := range names {
		k := slices.IndexFunc(x.m.Symbols, func(y Symbol) bool { return y.Name == name })
		if k < 0 {
			x.fail(opName("%"+node), fmt.Errorf("module %s has no symbol %q", x.m.Name, name))
			return
		}
		at := Tensor{Off: p.sizes.Off + 8*int64(i)*p.sizes.StridesOrDense()[0], DType: I64, Shape: []int64{}}
		p.reads = append(p.reads, SizeRead{Symbol: name, Min: x.m.Symbols[k].Min, Max: x.m.Symbols[k].Max, At: at})
	}
	if x.ways == chosen {
		x.done(x.r.dev.Record(s, p.end))
	}
	if x.unread = append(x.unread, p); x.ways == written {
		x.readLate(s, &p)
	}
}

// symbol is the value of a run-time size.
func (x *Exec) symbol(name string) (int64, bool) {
	if v, ok := x.syms[name]; ok {
		return v, true
	}
	if _, ok := x.read[name]; !ok {
		i := slices.IndexFunc(x.unread, func(p sizesRead) bool { return slices.Contains(p.names, name) })
		if i < 0 {
			return 0, false
		}
		if x.ways == written {
			return x.unknown(name)
		}
		for k := range x.unread[:i+1] { // the first that is wrong is the one to tell
			if err := x.readSizes(&x.unread[k]); err != nil {
				x.fail(opName("%"+x.unread[k].node), err)
				break
			}
		}
		x.unread = x.unread[i+1:]
	}
	x.varies = true
	v, ok := x.read[name]
	return v, ok
}

// unknown is the value of a size in a step that is captured, for a call that is left out then.
func (x *Exec) unknown(name string) (int64, bool) {
	err := fmt.Errorf("the step's code wants the number %s, which a tensor holds", name)
	if _, ok := x.r.dev.(SizeReader); !ok {
		x.fail(opName("sym "+name), fmt.Errorf("%w: %w", err, ErrUnsupported))
		return 0, true
	}
	x.hostReads(err)
	return 0, true
}

// readSizes waits for sizes, reads and checks them.
func (x *Exec) readSizes(p *sizesRead) error {
	if x.read == nil {
		x.read = map[string]int64{}
	}
	data := make([]byte, p.sizes.Bytes())
	if x.ways == all {
		for _, s := range p.names {
			x.read[s] = 0
		}
		return nil
	}
	if !p.ended { // who cancels the run aborts the device
		if err := x.r.dev.Synchronize(context.Background(), p.end); err != nil {
			return err
		}
	}
	if err := x.r.dev.Download(data, p.sizes); err != nil {
		return err
	}
	for i, r := range p.reads {
		v := dtype.LoadInt(I64, data[8*i:])
		if v < r.Min || v > r.Max {
			return &SymbolError{Rank: x.r.env.Rank, Module: x.m.Name, Symbol: r.Symbol, Value: v, Min: r.Min, Max: r.Max, Node: p.node}
		}
		x.read[r.Symbol] = v
	}
	known := maps.Clone(x.syms)
	maps.Copy(known, x.read)
	return x.m.needs(x.r.env.Rank, known)
}

// readAll checks the sizes that have not been read yet.
func (x *Exec) readAll() error {
	for i := range x.unread {
		if err := x.readSizes(&x.unread[i]); err != nil {
			return x.misuse(err)
		}
	}
	x.unread = nil
	if x.opts.Sizes != nil {
		maps.Copy(x.opts.Sizes, x.read)
	}
	return nil
}

// absent reports whether a call is left out, since its sizes are not known where nothing runs.
func (x *Exec) absent() bool { return x.ways == all && x.varies || x.byHost }

// errGiven refuses the caller's value of a symbol that a tensor holds.
var errGiven = errors.New("the program reads it from a tensor")
