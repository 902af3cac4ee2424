package dimensions

import (
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Algorithm is what a product computes with.
type Algorithm struct {
	Sides [2]string // types to which operands are rounded; empty: as they are
	Sum   ir.DType  // of the sum; Invalid: that of the result
}

// AlgorithmOf reads the attribute, a structure or a name of HLO's; nil where there is none.
func AlgorithmOf(m *mlir.Module, o *mlir.Operation) (*Algorithm, error) {
	r := reader{m, o}
	a, ok := o.Attr("algorithm")
	if !ok {
		return nil, nil
	}
	var types [3]string
	single := true
	if a.Kind == mlir.KindString {
		if a.Text == "unset" {
			return nil, nil
		}
		if types, single, ok = named(a.Text); !ok {
			return nil, r.errorf("op not supported: algorithm %s", a.Text)
		}
	} else {
		fields, err := m.Fields(a)
		if err != nil {
			return nil, err
		}
		for i, name := range []string{"lhs_precision_type", "rhs_precision_type", "accumulation_type"} {
			if types[i], ok = typeName(fields, name); !ok {
				return nil, r.errorf("algorithm without %s", name)
			}
		}
		for _, name := range []string{"lhs_component_count", "rhs_component_count", "num_primitive_operations"} {
			if n, ok := fields.Get(name); ok && n.Text != "1" {
				single = false
			}
		}
	}
	out := &Algorithm{}
	if single {
		out.Sides = [2]string(types[:2])
	}
	var err error
	if out.Sum, err = mlir.ElementType(types[2]); err != nil {
		return nil, r.errorf("op not supported: algorithm that accumulates in %s", types[2])
	}
	return out, nil
}

// typeName is the name of a type in a structure.
func typeName(fields mlir.Attrs, name string) (string, bool) {
	v, ok := fields.Get(name)
	if ok && v.Kind == mlir.KindTyped {
		return v.Type.String(), true
	}
	return v.Text, ok
}

// named are the types of dot_bf16_bf16_f32 and its like: of both operands and of the sum. single
// is false of _x3 and more, which approximate a wider type.
func named(name string) (types [3]string, single, ok bool) {
	name, ok = strings.CutPrefix(name, "dot_")
	name, _ = strings.CutSuffix(name, "_fast_accum")
	parts := strings.Split(strings.ReplaceAll(name, "any_f8", "any"), "_")
	single = len(parts) == 3
	if !ok || len(parts) < 3 || len(parts) > 4 || len(parts) == 4 && parts[3][0] != 'x' {
		return types, false, false
	}
	for i := range types {
		if types[i] = parts[i]; i < 2 && parts[i] == "any" {
			types[i] = ""
		}
	}
	return types, single, true
}
