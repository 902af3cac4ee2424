package fx

import (
	"github.com/seed-ee968945/concert/ir"
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
		c := &call{im: &importer{file: f}, n: &f.Nodes[i]}
		v, perr := parsePy(c.n.Args)
		if perr != nil {
			return nil, c.failAt("args", perr.at+1, "syntax", "%s", perr.msg)
		}
		c.args = v
		entries, err := c.outputEntries()
		if err != nil {
			return nil, err
		}
		out := make([]string, len(entries))
		for k := range entries {
			out[k] = entries[k].s
		}
		return out, nil
	}
	return nil, f.errorf("", "nodes", "output", "the graph has no output node")
}

// Feeds says for each input of the backward graph f which output of the forward
// graph fw it takes: input k, tangents not counted, is forward output 1+k. It
// fails with an *Error where the input's from or type contradicts that.
func (f *File) Feeds(fw *File) ([]Feed, error) {
	outputs, err := fw.Outputs()
	if err != nil {
		return nil, err
	}
	index := make(map[string]*Node, len(fw.Nodes))
	for i := range fw.Nodes {
		index[fw.Nodes[i].Name] = &fw.Nodes[i]
	}
	var feeds []Feed
	next := 1
	for _, in := range f.Inputs() {
		feed := Feed{Input: in.Name, Role: in.Role, Output: Tangent}
		if in.Role == string(ir.RoleTangent) {
			feeds = append(feeds, feed)
			continue
		}
		if next >= len(outputs) {
			return nil, f.errorf(in.Name, "from", "feed", "the forward graph %s has %d outputs, output %d is wanted", fw.Name, len(outputs), next)
		}
		from := outputs[next]
		switch src := index[from]; {
		case in.From != "" && in.From != from:
			return nil, f.errorf(in.Name, "from", "feed", "output %d of the forward graph %s is %q, not %q", next, fw.Name, from, clip(in.From))
		case src == nil || len(src.Out) != 1 || len(in.Out) != 1 || !sameShape(src.Out[0], in.Out[0]):
			return nil, f.errorf(in.Name, "out", "feed", "the input has another type than output %d of the forward graph %s, %q", next, fw.Name, from)
		}
		feed.Output = next
		next++
		feeds = append(feeds, feed)
	}
	return feeds, nil
}

func sameShape(a, b Tensor) bool {
	if a.DType != b.DType || len(a.Shape) != len(b.Shape) {
		return false
	}
	for i := range a.Shape {
		if a.Shape[i] != b.Shape[i] {
			return false
		}
	}
	return true
}

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

// Feeds says for each input of a backward function which output of the forward
// function, None counted, it takes, or Tangent. It needs no more than the inputs'
// roles, so that it works on functions read from text as well.
func Feeds(bw *ir.Func) []Feed {
	var feeds []Feed
	next := 1
	for _, in := range bw.Inputs() {
		feed := Feed{Input: tracedName(in), Role: string(in.Role()), Output: Tangent}
		if in.Role() != ir.RoleTangent {
			feed.Output = next
			next++
		}
		feeds = append(feeds, feed)
	}
	return feeds
}
