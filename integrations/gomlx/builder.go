package gomlx

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/notimplemented"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// builder is a computation that is being built: functions, each a list of lines of StableHLO.
type builder struct {
	notimplemented.Builder
	b     *Backend
	name  string
	main  *function
	funcs []*function
	sites sites // of values, whose numbers are unique in the computation, so that closures can name their parents'
	done  bool

	replicas int            // devices that run it on values of their own
	meshes   []compute.Mesh // of the devices that it is one computation of
	devices  []compute.DeviceNum
}

func newBuilder(b *Backend, name string) *builder {
	n := &builder{b: b, name: name, sites: sites{began: callers(far)}}
	n.main = newFunction(n, nil, compute.MainName)
	n.funcs = []*function{n.main}
	return n
}

func (n *builder) Name() string           { return n.name }
func (n *builder) Main() compute.Function { return n.main }

func (n *builder) NewFunction(name string) (compute.Function, error) {
	if name == "" || name == compute.MainName {
		return nil, errors.Errorf("concert: a function cannot be called %q", name)
	}
	for _, f := range n.funcs {
		if f.name == name {
			return nil, errors.Errorf("concert: there is a function %q", name)
		}
	}
	f := newFunction(n, nil, name)
	n.funcs = append(n.funcs, f)
	return f, nil
}

func (n *builder) OpShape(op compute.Value) (shapes.Shape, error) {
	v, ok := op.(*value)
	if !ok || v.f.n != n {
		return shapes.Invalid(), errors.Errorf("concert: %v is no value of computation %q", op, n.name)
	}
	return v.shape, nil
}

func (n *builder) fresh() string {
	n.sites.add()
	return fmt.Sprintf("%%v%d", len(n.sites.of))
}

// text is the computation as a module of StableHLO, with the lines of the program if they are asked for.
func (n *builder) text(located bool) string {
	var b strings.Builder
	b.WriteString(n.head())
	for k, f := range n.funcs {
		if f.outs == nil && !f.returned {
			continue // begun and never used
		}
		visibility := "private "
		if k == 0 {
			visibility = "public "
		}
		fmt.Fprintf(&b, "func.func %s@%s%s {\n", visibility, symbol(f.name), f.signature())
		for _, l := range f.lines {
			b.WriteString(l)
			if located && strings.HasPrefix(l, "%v") {
				b.WriteString(n.sites.location(n.named(l)[0]))
			}
			b.WriteByte('\n')
		}
		b.WriteString("return")
		if len(f.outs) > 0 {
			fmt.Fprintf(&b, " %s : %s", names(f.outs), types(f.outs))
		}
		b.WriteString("\n}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// signature is what a function takes and returns, of main with shardings and donations.
func (f *function) signature() string {
	main := f == f.n.main
	params, outs := make([]string, len(f.params)), make([]string, len(f.outs))
	for i, p := range f.params {
		params[i] = p.name + ": " + typeText(p.shape)
		if main {
			attrs := f.n.sharding(p.shape, f.specs[i])
			if f.alias[i] >= 0 {
				attrs = append(attrs, fmt.Sprintf("tf.aliasing_output = %d : i32", f.alias[i]))
			}
			params[i] += braces(attrs)
		}
	}
	for i, o := range f.outs {
		outs[i] = typeText(o.shape)
		if main {
			outs[i] += braces(f.n.sharding(o.shape, f.outSpecs[i]))
		}
	}
	return fmt.Sprintf("(%s) -> (%s)", strings.Join(params, ", "), strings.Join(outs, ", "))
}

func braces(attrs []string) string {
	if len(attrs) == 0 {
		return ""
	}
	return " {" + strings.Join(attrs, ", ") + "}"
}

// symbol is a function's name as MLIR takes it.
func symbol(name string) string {
	if name == compute.MainName {
		return name
	}
	return fmt.Sprintf("%q", name)
}

func typeText(s shapes.Shape) string {
	var b strings.Builder
	b.WriteString("tensor<")
	for _, d := range s.Dimensions {
		fmt.Fprintf(&b, "%dx", d)
	}
	return b.String() + elementTypes[s.DType].name + ">"
}

func types(vs []*value) string {
	text := make([]string, len(vs))
	for i, v := range vs {
		text[i] = typeText(v.shape)
	}
	return strings.Join(text, ", ")
}

func names(vs []*value) string {
	text := make([]string, len(vs))
	for i, v := range vs {
		text[i] = v.name
	}
	return strings.Join(text, ", ")
}
