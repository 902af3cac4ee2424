package fx

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// Feed says where an input of a backward graph comes from.
type Feed struct {
	Input  string // the input's name
	Role   string // parameter, data, saved or tangent
	Output int    // place among the forward graph's outputs, None counted; -1 for a tangent
}

// Tangent marks the Output of a feed that no forward output gives: an incoming
// gradient, which is 1.
const Tangent = -1

// Inputs lists the input nodes in order.
func (f *File) Inputs() []*Node {
	var out []*Node
	for i := range f.Nodes {
		if f.Nodes[i].Kind == KindInput {
			out = append(out, &f.Nodes[i])
		}
	}
	return out
}

// Outputs lists the names of the output nodes' entries in order, "" for None. The gradients of
// a backward graph are those of the parameters in order, then None for the data; output K of
// the trace is entry K of this list. The error is an *Error: there is no output node, or its
// args are not Python.
func (f *File) Outputs() ([]string, error) {
	for i := range f.Nodes {
		if f.Nodes[i].Kind != KindOutput {
			continue
		}
		c := (&importer{file: f}).newNode(int32(i))
		v, perr := pytext.Parse(c.n.Args)
		if perr != nil {
			return nil, c.FailAt("args", perr.At+1, "syntax", "%s", perr.Msg)
		}
		c.Args = v
		entries, err := c.outputEntries()
		if err != nil {
			return nil, err
		}
		out := make([]string, len(entries))
		for k := range entries {
			out[k] = entries[k].Text
		}
		return out, nil
	}
	return nil, f.errorf("", "nodes", "output", "the graph has no output node")
}

// Feeds says for each input of the backward graph f which output of the forward
// graph fw it takes, see FirstSaved. It fails with an *Error where the input's from or
// type contradicts that.
func (f *File) Feeds(fw *File) ([]Feed, error) {
	outputs, err := fw.Outputs()
	if err != nil {
		return nil, err
	}
	index := make(map[string]*Node, len(fw.Nodes))
	for i := range fw.Nodes {
		index[fw.Nodes[i].Name] = &fw.Nodes[i]
	}
	var inputs []*Node
	for _, in := range f.Inputs() {
		if in.Role != string(ir.RoleTangent) {
			inputs = append(inputs, in)
		}
	}
	check := func(in *Node, k int) error {
		if k >= len(outputs) {
			return f.errorf(in.Name, "from", "feed", "the forward graph %s has %d outputs, output %d is wanted", fw.Name, len(outputs), k)
		}
		from := outputs[k]
		switch src := index[from]; {
		case in.From != "" && in.From != from && in.Name != from:
			return f.errorf(in.Name, "from", "feed", "output %d of the forward graph %s is %q, not %q", k, fw.Name, from, pytext.Clip(in.From))
		case src == nil || len(src.Out) != 1 || len(in.Out) != 1 || !sameShape(src.Out[0], in.Out[0]):
			return f.errorf(in.Name, "out", "feed", "the input has another type than output %d of the forward graph %s, %q", k, fw.Name, from)
		}
		return nil
	}
	named := func(k, output int) bool {
		return inputs[k].From == outputs[output] || inputs[k].Name == outputs[output]
	}
	first, err := FirstSaved(len(outputs), len(inputs), func(k, output int) error { return check(inputs[k], output) }, named)
	if err != nil {
		return nil, err
	}
	var feeds []Feed
	next := first
	for _, in := range f.Inputs() {
		feed := Feed{Input: in.Name, Role: in.Role, Output: Tangent}
		if in.Role != string(ir.RoleTangent) {
			feed.Output = next
			next++
		}
		feeds = append(feeds, feed)
	}
	return feeds, nil
}

// FirstSaved is the index of the first output of a forward graph that backward takes; its
// inputs, tangents not counted, take that and the following ones in order. It is 1, after
// the loss, or such that the outputs end with what is saved: before it AOT autograd returns the new
// values of the buffers that the step writes, and every result. fits says why backward input k cannot
// be the given output. Where all fit either way it is 1, unless named says that all inputs have the last
// outputs' names. The error is that of the first input at index 1.
func FirstSaved(outputs, inputs int, fits func(k, output int) error, named func(k, output int) bool) (int, error) {
	fit := func(first int) error {
		for k := range inputs {
			if err := fits(k, first+k); err != nil {
				return err
			}
		}
		return nil
	}
	err, last := fit(1), outputs-inputs
	if last <= 1 || fit(last) != nil {
		return 1, err
	}
	for k := 0; err == nil && k < inputs; k++ {
		if !named(k, last+k) {
			return 1, nil
		}
	}
	return last, nil
}

func sameShape(a, b Tensor) bool { return a.DType == b.DType && a.shape().Equal(b.shape()) }

// Outputs lists what a function returns in the order of the traced output, nil
// for None: output K of the trace is entry K. For a function that was not
// imported it is what the function returns.
func Outputs(f *ir.Func) []*ir.Value {
	r := f.Return()
	if r == nil {
		return nil
	}
	places := r.Meta().Ints(MetaOutputs)
	if places == nil {
		return append([]*ir.Value(nil), r.Args()...)
	}
	out := make([]*ir.Value, len(places))
	for k, p := range places {
		if p >= 0 && p < int64(len(r.Args())) {
			out[k] = r.Arg(int(p))
		}
	}
	return out
}
