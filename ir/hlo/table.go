package hlo

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// plain are instructions that are operations without attributes, by other names where these
// differ in more than dashes.
var plain = map[string]string{
	"abs": "", "add": "", "and": "", "atan2": "", "cbrt": "", "ceil": "", "clamp": "", "convert": "", "cosine": "", "divide": "", "exponential": "", "floor": "",
	"is-finite": "", "log": "", "logistic": "", "maximum": "", "minimum": "", "multiply": "", "negate": "", "not": "", "or": "", "partition-id": "", "power": "",
	"remainder": "", "replica-id": "", "round-nearest-afz": "", "round-nearest-even": "", "rsqrt": "", "select": "", "shift-left": "",
	"shift-right-arithmetic": "", "shift-right-logical": "", "sign": "", "sine": "", "sqrt": "", "subtract": "", "tan": "", "tanh": "", "xor": "", "real": "", "imag": "",
	"reshape": "", "after-all": "", "count-leading-zeros": "", "bitcast-convert": "",
	"popcnt": "", "exponential-minus-one": "exponential_minus_one", "log-plus-one": "log_plus_one", "erf": "chlo.erf", "opt-barrier": "optimization_barrier",
	"acos": "chlo.acos", "acosh": "chlo.acosh", "asin": "chlo.asin", "asinh": "chlo.asinh", "atanh": "chlo.atanh", "cosh": "chlo.cosh", "sinh": "chlo.sinh",
}

// renamed are attributes of lists of numbers by their names in StableHLO.
var renamed = map[string]map[string]string{
	"broadcast":            {"dimensions": "broadcast_dimensions"},
	"transpose":            {"dimensions": "permutation"},
	"concatenate":          {"dimensions": "dimension"},
	"reverse":              {"dimensions": "dimensions"},
	"reduce":               {"dimensions": "dimensions"},
	"iota":                 {"iota_dimension": "iota_dimension"},
	"get-dimension-size":   {"dimensions": "dimension"},
	"reduce-precision":     {"exponent_bits": "exponent_bits", "mantissa_bits": "mantissa_bits"},
	"get-tuple-element":    {"index": "index"},
	"tuple":                {},
	"map":                  {"dimensions": "dimensions"},
	"sort":                 {"dimensions": "dimension"},
	"all-gather":           {"dimensions": "all_gather_dim"},
	"all-reduce":           {},
	"reduce-scatter":       {"dimensions": "scatter_dimension"},
	"collective-permute":   {"source_target_pairs": "source_target_pairs"},
	"collective-broadcast": {},
	"convolution":          {"feature_group_count": "feature_group_count", "batch_group_count": "batch_group_count"},
}

// scalars are attributes of one number.
var scalars = []string{"dimension", "iota_dimension", "exponent_bits", "mantissa_bits", "index", "all_gather_dim", "scatter_dimension", "feature_index", "feature_group_count", "batch_group_count"}

// instruction converts one instruction that is no parameter.
func (c *converter) instruction(in *instruction, depth int) error {
	c.in = in
	if to, ok := plain[in.opcode]; ok {
		return c.operation(to, nil, nil)
	}
	if f, ok := c.special[in.opcode]; ok {
		return f(c, depth)
	}
	names, ok := renamed[in.opcode]
	if !ok {
		if f := c.halves(in.opcode); f != nil {
			return f(c, depth)
		}
		return c.errorf("op not supported: %s", in.opcode)
	}
	if _, ok := get(in.attrs, "slice_sizes"); ok && in.opcode == "collective-permute" {
		return c.errorf("op not supported: collective-permute of slices (slice_sizes) into another tensor")
	}
	if in.shape.many && slices.Contains([]string{"all-gather", "reduce-scatter", "collective-permute", "collective-broadcast"}, in.opcode) {
		return c.each(depth)
	}
	attrs, err := c.renamed(names)
	if err != nil {
		return err
	}
	name := ""
	if in.opcode == "broadcast" { // StableHLO has another operation of this name
		name = "broadcast_in_dim"
	}
	return c.withRegion(name, attrs, depth)
}

// halves is the rule for an instruction that XLA prints as NAME-start, NAME-update and NAME-done:
// for collectives these are instructions, for others short for async-start of a computation that
// is the instruction alone.
func (c *converter) halves(opcode string) func(*converter, int) error {
	dash := strings.LastIndexByte(opcode, '-')
	if dash < 0 {
		return nil
	}
	of := opcode[:dash]
	_, moves := renamed[of]
	_, is := plain[of]
	if !moves && !is && c.special[of] == nil || of == "send" || of == "recv" {
		return nil
	}
	switch opcode[dash:] {
	case "-start":
		return start(of)
	case "-update":
		return goesOn
	case "-done":
		return done
	}
	return nil
}

// uses are the operands of the instruction.
func (c *converter) uses() []mlir.Use {
	out := make([]mlir.Use, len(c.in.operands))
	for i, o := range c.in.operands {
		out[i] = mlir.Use{Name: o}
	}
	return out
}

// operation adds the operation that the instruction is; one of several results is a tuple.
func (c *converter) operation(name string, attrs []mlir.Named, regions []*mlir.Block) error {
	if name == "" {
		name = strings.ReplaceAll(c.in.opcode, "-", "_")
	}
	if !strings.Contains(name, ".") {
		name = "stablehlo." + name
	}
	s := mlir.Spec{Name: name, Result: c.in.name, Operands: c.uses(), Attrs: attrs, Regions: regions}
	t := c.typ(c.in.shape)
	if !c.in.shape.many || name == "stablehlo.tuple" || name == "stablehlo.get_tuple_element" || name == "stablehlo.optimization_barrier" || name == "func.call" || name == "stablehlo.async_done" {
		s.Types = []mlir.Type{t}
		c.add(s)
		return nil
	}
	s.Result, s.Results, s.Types = c.temporary(), len(t.Tuple), t.Tuple
	c.add(s)
	parts := make([]mlir.Use, len(t.Tuple))
	for i := range parts {
		parts[i] = mlir.Use{Name: s.Result, Index: i}
	}
	c.add(mlir.Spec{Name: "stablehlo.tuple", Result: c.in.name, Operands: parts, Types: []mlir.Type{t}})
	return nil
}

// renamed are attributes of numbers under their names in StableHLO.
func (c *converter) renamed(names map[string]string) ([]mlir.Named, error) {
	var out []mlir.Named
	for _, a := range c.in.attrs {
		to, ok := names[a.name]
		if !ok {
			continue
		}
		n, err := c.numbers(a)
		if err != nil {
			return nil, err
		}
		if a.name == "source_target_pairs" {
			c.names(slices.Max(append(n, -1)) + 1)
		}
		val := mlir.Numbers(a.start, n...)
		if slices.Contains(scalars, to) {
			if len(n) != 1 {
				return nil, c.errorf("%s of %d numbers, want one", a.name, len(n))
			}
			val = mlir.Number(a.start, n[0])
		}
		out = append(out, mlir.Named{Name: to, Val: val})
	}
	return out, nil
}

// withRegion adds an operation with the computation that it applies, and among whom.
func (c *converter) withRegion(name string, attrs []mlir.Named, depth int) error {
	var regions []*mlir.Block
	if _, ok := get(c.in.attrs, "to_apply"); ok {
		b, err := c.calledRegion("to_apply", depth)
		if err != nil {
			return err
		}
		regions = append(regions, b)
	}
	for _, key := range []string{"is_stable", "unique_indices", "indices_are_sorted", "use_global_device_ids"} {
		if v := c.text(key); v != "" {
			attrs = append(attrs, mlir.Named{Name: key, Val: mlir.Word(c.in.at, v)})
		}
	}
	among, err := c.among()
	if err != nil {
		return err
	}
	return c.operation(name, append(attrs, among...), regions)
}
