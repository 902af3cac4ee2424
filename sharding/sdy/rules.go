package sdy

import (
	"slices"

	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// subject is an operation that a rule is made for.
type subject struct {
	m        *mlir.Module
	op       *mlir.Operation
	ins      [][]int64 // shapes of operands; what is no tensor has none
	outs     [][]int64
	defs     []*mlir.Operation // by operand: what defines it; nil of an argument
	bases    []mlir.Use        // by operand: it, or what it is a slice of
	feeds    []string          // names of the operations that use the result
	conserve bool              // nothing passes where data would move
}

// maker makes the rule of an operation; nil of one through which nothing passes.
type maker func(s *subject) (*sharding.Rule, error)

// new starts a rule.
func (s *subject) new() *sharding.Rule { return sharding.NewRule(s.ins, s.outs) }

// ints are the numbers of an attribute, nil where it is absent.
func (s *subject) ints(names ...string) ([]int64, error) {
	a, ok := s.op.Attr(names...)
	if !ok {
		return nil, nil
	}
	return s.m.Ints(a)
}

// dim is a number that must be there and be a dimension.
func (s *subject) dim(shape []int64, names ...string) (int, error) {
	l, err := s.ints(names...)
	if err == nil && (len(l) != 1 || l[0] < 0 || l[0] >= int64(len(shape))) {
		err = s.errorf("%s: want a dimension of %d", names[0], len(shape))
	}
	if err != nil {
		return 0, err
	}
	return int(l[0]), nil
}

func (s *subject) errorf(format string, args ...any) error {
	return s.m.ErrorAt(s.op, 0, format, args...)
}

// elementwise are operations that compute each element by itself.
var elementwise = []string{
	"abs", "add", "and", "atan2", "cbrt", "ceil", "count_leading_zeros", "compare", "complex", "convert", "cosine", "divide", "exponential",
	"exponential_minus_one", "floor", "imag", "is_finite", "log_plus_one", "log", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or",
	"popcnt", "power", "real", "reduce_precision", "remainder", "round_nearest_even", "round_nearest_afz", "rsqrt", "shift_left",
	"shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor", "clamp", "select",
}

// pointwise are operations that relate their tensors dimension by dimension.
var pointwise = []string{"all_reduce", "collective_broadcast", "collective_permute", "cross-replica-sum"}

// table has the rule of every operation that has one, by name.
func table() map[string]maker {
	t := map[string]maker{
		"sdy.sharding_constraint":        same,
		"sdy.propagation_barrier":        same,
		"stablehlo.all_gather":           gatheredAlong("all_gather_dim"),
		"stablehlo.reduce_scatter":       gatheredAlong("scatter_dimension"),
		"stablehlo.all_to_all":           allToAll,
		"stablehlo.bitcast_convert":      bitcast,
		"stablehlo.batch_norm_inference": batchNorm,
		"stablehlo.broadcast_in_dim":     broadcast,
		"stablehlo.cholesky":             cholesky,
		"stablehlo.concatenate":          concatenate,
		"stablehlo.convolution":          convolution,
		"stablehlo.custom_call":          customCall,
		"stablehlo.dot_general":          dotGeneral,
		"stablehlo.dot":                  dot,
		"stablehlo.dynamic_slice":        dynamicSlice,
		"stablehlo.dynamic_update_slice": dynamicUpdateSlice,
		"stablehlo.fft":                  fft,
		"stablehlo.gather":               gather,
		"stablehlo.scatter":              scatter,
		"stablehlo.pad":                  differing,
		"stablehlo.slice":                differing,
		"stablehlo.reduce":               reduce,
		"stablehlo.reduce_window":        reduceWindow,
		"stablehlo.select_and_scatter":   selectAndScatter,
		"stablehlo.reshape":              func(s *subject) (*sharding.Rule, error) { return sharding.Reshape(s.ins[0], s.outs[0]), nil },
		"stablehlo.reverse":              reverse,
		"stablehlo.rng_bit_generator":    randomBits,
		"stablehlo.sort":                 sortAlong,
		"stablehlo.transpose":            transpose,
		"stablehlo.triangular_solve":     triangularSolve,
	}
	for _, name := range slices.Concat(elementwise, pointwise) {
		t["stablehlo."+name] = same
	}
	return t
}

// operands is how many operands an operation of the table has at least, where that is not 1.
var operands = map[string]int{
	"stablehlo.convolution": 2, "stablehlo.dot_general": 2, "stablehlo.dot": 2, "stablehlo.dynamic_update_slice": 2, "stablehlo.gather": 2,
	"stablehlo.scatter": 3, "stablehlo.reduce": 2, "stablehlo.select_and_scatter": 3, "stablehlo.triangular_solve": 2, "stablehlo.pad": 2,
}

// same relates all tensors dimension by dimension; scalars beside them have none.
func same(s *subject) (*sharding.Rule, error) {
	return s.new().Each(s.outs[0], nil).Done(), nil
}

// moved is a factor along which pieces move.
func (s *subject) moved() sharding.Factor {
	return sharding.Factor{Kind: sharding.Permutation, Blocked: s.conserve}
}

// differing is pad and slice: data moves where sizes differ.
func differing(s *subject) (*sharding.Rule, error) {
	return s.new().Differing(s.ins[0], s.outs[0], s.moved()).Done(), nil
}

func dynamicSlice(s *subject) (*sharding.Rule, error) {
	return s.new().Differing(s.ins[0], s.outs[0], sharding.Factor{Kind: sharding.NeedReplication, Blocked: true}).Done(), nil
}

// dynamicUpdateSlice writes a piece: each device can write what of it is its own, if it has
// all of it.
func dynamicUpdateSlice(s *subject) (*sharding.Rule, error) {
	r := s.new()
	constant := !slices.ContainsFunc(s.defs[2:], func(d *mlir.Operation) bool {
		return d == nil || d.Name != "stablehlo.constant" && d.Name != "sdy.constant"
	})
	for d, n := range s.ins[0] {
		if m := s.ins[1][d]; m != n {
			kind := sharding.NeedReplication
			if constant {
				kind = sharding.PassThrough
			}
			r.Add(sharding.Factor{Size: n}, []int{d}, []int{d})
			r.Add(sharding.Factor{Size: m, Kind: kind}, []int{sharding.None, d}, nil)
			continue
		}
		r.Along(d, sharding.Factor{Size: n})
	}
	return r.Done(), nil
}

// gatheredAlong is a collective that changes one dimension.
func gatheredAlong(name string) maker {
	return func(s *subject) (*sharding.Rule, error) {
		g, err := s.dim(s.ins[0], name)
		if err != nil {
			return nil, err
		}
		r := s.new()
		for d, n := range s.ins[0] {
			if d != g {
				r.Along(d, sharding.Factor{Size: n})
			}
		}
		return r.Own(g, s.ins[0][g], s.outs[0][g], sharding.NeedReplication).Done(), nil
	}
}

func allToAll(s *subject) (*sharding.Rule, error) {
	split, err := s.dim(s.ins[0], "split_dimension")
	if err != nil {
		return nil, err
	}
	concat, err := s.dim(s.ins[0], "concat_dimension")
	if err != nil {
		return nil, err
	}
	r := s.new()
	for d, n := range s.ins[0] {
		if d != split && d != concat {
			r.Along(d, sharding.Factor{Size: n})
		}
	}
	r.Own(split, s.ins[0][split], s.outs[0][split], sharding.NeedReplication)
	if split != concat {
		r.Own(concat, s.ins[0][concat], s.outs[0][concat], sharding.NeedReplication)
	}
	return r.Done(), nil
}

// bitcast may have a dimension more on the side of the smaller elements.
func bitcast(s *subject) (*sharding.Rule, error) {
	in, out := s.ins[0], s.outs[0]
	short := in
	if len(out) < len(in) {
		short = out
	}
	r := s.new().Each(short, nil)
	f := sharding.Factor{Kind: sharding.NeedReplication}
	if d := len(out) - 1; len(in) < len(out) {
		f.Size = out[d]
		r.Add(f, nil, []int{d})
	} else if d := len(in) - 1; len(in) > len(out) {
		f.Size = in[d]
		r.Add(f, []int{d}, nil)
	}
	return r.Done(), nil
}

func batchNorm(s *subject) (*sharding.Rule, error) {
	feature, err := s.dim(s.ins[0], "feature_index")
	if err != nil {
		return nil, err
	}
	r := s.new()
	for d, n := range s.ins[0] {
		dims := slices.Repeat([]int{sharding.None}, len(s.ins))
		if d == feature {
			dims = make([]int, len(s.ins))
		}
		dims[0] = d
		r.Add(sharding.Factor{Size: n}, dims, []int{d})
	}
	return r.Done(), nil
}

func broadcast(s *subject) (*sharding.Rule, error) {
	to, err := s.ints("dims", "broadcast_dimensions")
	if err != nil {
		return nil, err
	}
	if len(to) != len(s.ins[0]) {
		return nil, s.errorf("dims %v for an operand of %d dimensions", to, len(s.ins[0]))
	}
	return sharding.Expand(s.ins[0], s.outs[0], to), nil
}

// lastTwo is a factor of a kind in the last two dimensions, and none before.
func lastTwo(rank int, kind sharding.Kind) func(d int) sharding.Factor {
	return func(d int) sharding.Factor {
		if d >= rank-2 {
			return sharding.Factor{Kind: kind}
		}
		return sharding.Factor{}
	}
}

func cholesky(s *subject) (*sharding.Rule, error) {
	return s.new().Each(s.ins[0], lastTwo(len(s.ins[0]), sharding.NeedReplication)).Done(), nil
}

// concatenate along slices only moves pieces; else its dimension is wanted whole.
func concatenate(s *subject) (*sharding.Rule, error) {
	c, err := s.dim(s.outs[0], "dim", "dimension")
	if err != nil {
		return nil, err
	}
	kind := sharding.NeedReplication
	sliced := func(d *mlir.Operation) bool { return d != nil && d.Name == "stablehlo.slice" }
	one := !slices.ContainsFunc(s.bases, func(b mlir.Use) bool { return b != s.bases[0] })
	if slices.ContainsFunc(s.defs, sliced) && one || !slices.ContainsFunc(s.defs, func(d *mlir.Operation) bool { return !sliced(d) }) {
		kind = sharding.Permutation
	}
	r := s.new()
	for d, n := range s.outs[0] {
		if d != c {
			r.Along(d, sharding.Factor{Size: n})
		} else if !s.conserve {
			r.Along(d, sharding.Factor{Size: n, Kind: kind})
		}
	}
	return r.Done(), nil
}

func dotGeneral(s *subject) (*sharding.Rule, error) {
	batch, contracting, err := stablehlo.Pairs(s.m, s.op)
	if err != nil {
		return nil, err
	}
	for i, in := range s.ins[:2] {
		for _, d := range slices.Concat(batch[i], contracting[i]) {
			if d < 0 || d >= int64(len(in)) {
				return nil, s.errorf("dimension %d of %d", d, len(in))
			}
		}
	}
	return sharding.Product(s.ins[0], s.ins[1], s.outs[0], batch, contracting), nil
}

func dot(s *subject) (*sharding.Rule, error) {
	if len(s.ins[0]) == 0 || len(s.ins[1]) == 0 {
		return nil, s.errorf("a product of scalars")
	}
	return sharding.Product(s.ins[0], s.ins[1], s.outs[0], [2][]int64{}, [2][]int64{{int64(len(s.ins[0]) - 1)}, {0}}), nil
}

// fft wants the dimensions that it transforms whole.
func fft(s *subject) (*sharding.Rule, error) {
	length, err := s.ints("length", "fft_length")
	if err != nil {
		return nil, err
	}
	last := len(s.ins[0]) - 1
	return s.new().Each(s.ins[0], func(d int) sharding.Factor {
		f := sharding.Factor{}
		if d > last-len(length) || d == last {
			f.Kind = sharding.NeedReplication
		}
		f.Blocked = d == last && s.ins[0][d] != s.outs[0][d]
		return f
	}).Done(), nil
}

func reduce(s *subject) (*sharding.Rule, error) {
	dims, err := s.ints("dimensions")
	if err != nil {
		return nil, err
	}
	return sharding.Reduce(s.ins, s.outs, len(s.ins)/2, dims), nil
}

func reverse(s *subject) (*sharding.Rule, error) {
	dims, err := s.ints("dims", "dimensions")
	if err != nil {
		return nil, err
	}
	return s.new().Each(s.outs[0], func(d int) sharding.Factor {
		if slices.Contains(dims, int64(d)) {
			return sharding.Factor{Kind: sharding.Permutation}
		}
		return sharding.Factor{}
	}).Done(), nil
}

// randomBits wants its state whole, and relates it to nothing.
func randomBits(s *subject) (*sharding.Rule, error) {
	r := s.new()
	for d, n := range s.ins[0] {
		r.Add(sharding.Factor{Size: n, Kind: sharding.NeedReplication, Blocked: true}, []int{d}, []int{d})
	}
	for d, n := range s.outs[1] {
		r.Add(sharding.Factor{Size: n}, nil, []int{sharding.None, d})
	}
	return r.Done(), nil
}

// sortAlong passes its own dimension only where there is another to be sharded.
func sortAlong(s *subject) (*sharding.Rule, error) {
	along, err := s.ints("dimension")
	if err != nil {
		return nil, err
	}
	by := len(s.ins[0]) - 1
	if len(along) == 1 {
		by = int(along[0])
	}
	alone := true
	for d, n := range s.ins[0] {
		alone = alone && (d == by || n == 1)
	}
	return s.new().Each(s.ins[0], func(d int) sharding.Factor {
		if d == by {
			return sharding.Factor{Kind: sharding.NeedReplication, Blocked: alone}
		}
		return sharding.Factor{}
	}).Done(), nil
}

func transpose(s *subject) (*sharding.Rule, error) {
	from, err := s.ints("dims", "permutation")
	if err != nil {
		return nil, err
	}
	for _, d := range from {
		if d < 0 || d >= int64(len(s.ins[0])) || len(from) != len(s.outs[0]) {
			return nil, s.errorf("dims %v of %d dimensions", from, len(s.ins[0]))
		}
	}
	return sharding.Transpose(s.ins[0], s.outs[0], from), nil
}
