// Package library finds calls of libraries that are attention: by Transformer Engine, and by
// cuDNN as XLA calls it. What such a call does beyond that (dropout, windows, masks of other
// corners) leaves it a call.
package library

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Attention is a call of a function with operands of those ranks, with the attributes that say
// which attention it is; nil if it is none that concert has.
func Attention(o *mlir.Operation, target string, ranks []int) *mlir.Operation {
	var l []mlir.Named
	switch c := (libraryCall{o.At, target, configuration(o), ranks, len(o.Outs)}); {
	case strings.HasPrefix(target, "te_fused_attn_"):
		l = c.transformerEngine()
	case strings.HasPrefix(target, "__cudnn$fmha"):
		l = c.cudnn()
	}
	if l == nil {
		return nil
	}
	with := *o
	with.Attrs = slices.Concat(o.Attrs, l)
	return &with
}

// configuration is the text of what configures a call: a string, or names with values.
func configuration(o *mlir.Operation) string {
	a, ok := o.Attr("mhlo.backend_config")
	if !ok {
		a, _ = o.Attr("backend_config")
	}
	if a.Kind != mlir.KindDict {
		return a.Text
	}
	var b strings.Builder
	for _, e := range a.Dict {
		b.WriteString(e.Name + " = " + e.Val.Text + ", ")
	}
	return b.String()
}

// Setting is a value that configures a call, as text; empty if it is absent.
func Setting(o *mlir.Operation, key string) string { return setting(configuration(o), key) }

// Number is a setting that is a whole number or a truth value, which counts as 0 or 1; false if there
// is none.
func Number(o *mlir.Operation, key string) (int64, bool) {
	switch s := Setting(o, key); s {
	case "true":
		return 1, true
	case "false":
		return 0, true
	default:
		n, err := strconv.ParseInt(s, mlir.IntBase(s), 64)
		return n, err == nil
	}
}

// libraryCall is a call of a library.
type libraryCall struct {
	at             int
	target, config string
	ranks          []int
	results        int
}

// setting is a value in a configuration: key = 3 : i64, or "key":3; empty if it is absent.
func setting(config, key string) string {
	for rest := config; ; {
		i := strings.Index(rest, key)
		if i < 0 {
			return ""
		}
		before := byte(' ')
		if i > 0 {
			before = rest[i-1]
		}
		rest = rest[i+len(key):]
		if mlir.WordByte(before) {
			continue
		}
		v := strings.TrimLeft(rest, `\" =:`)
		if len(v) == len(rest) {
			continue
		}
		end := strings.IndexAny(v, ` ,}]\"`)
		if end < 0 {
			end = len(v)
		}
		return v[:end]
	}
}

// configured is a setting that is a number, or what it is where it is absent.
func configured(config, key string, def float64) float64 {
	v, err := strconv.ParseFloat(setting(config, key), 64)
	if err != nil {
		return def
	}
	return v
}

// transformerEngine are the attributes of attention that a call of Transformer Engine is, nil
// if it is none that concert has. Operands are q, k, v as [b, s, h, d] and a bias; forward
// then the seed and the ends of the sequences of queries and keys; backward the log-sum-exp,
// the state of the generator, the output, its gradient and the ends.
func (c libraryCall) transformerEngine() []mlir.Named {
	config := c.config
	backward := c.target == "te_fused_attn_backward_ffi"
	mask := configured(config, "mask_type", -1)
	causal, padded := mask == 2 || mask == 3, mask == 1 || mask == 3
	switch {
	case c.target != "te_fused_attn_forward_ffi" && !backward, mask < 0 || mask > 3,
		configured(config, "dropout_probability", 1) != 0, configured(config, "bias_type", 1) != 0, configured(config, "max_segments_per_seq", 0) != 1,
		configured(config, "window_size_left", 0) != -1, configured(config, "window_size_right", 0) > 0,
		configured(config, "softmax_type", 0) != 0, setting(config, "return_max_logit") == "true", setting(config, "return_max_logit") == "1":
		return nil
	}
	order, results, ends := []int64{0, 1, 2}, []int64{0, 1}, int64(6)
	if backward {
		order, results, ends = []int64{7, 0, 1, 2, 6, 4}, []int64{0, 1, 2}, 9
	}
	if setting(config, "softmax_type") != "" { // versions that know it have its offsets among the operands, behind the bias
		ends++
		for i, at := range order {
			if at > 3 {
				order[i]++
			}
		}
	}
	if len(c.ranks) <= int(ends) || !c.shaped(order[:3], 4) || c.results < len(results) {
		return nil
	}
	if padded {
		order = append(order, ends)
	}
	return attentionAttrs(c.at, order, results, causal, padded, true, true, configured(config, "scaling_factor", 1))
}

// cudnn are the attributes of attention that a call of cuDNN by XLA is, nil if it is none that
// concert has. Operands are q, k, v and a bias; backward the log-sum-exp and the gradient of
// the output stand behind v, the output last. Results are [b, h, s, d].
func (c libraryCall) cudnn() []mlir.Named {
	config := c.config
	backward, bias := strings.HasSuffix(c.target, "Backward"), strings.Contains(c.target, "Bias")
	mask := setting(config, "mask_type")
	said := strings.ReplaceAll(strings.ReplaceAll(config, `\`, ""), " ", "")
	// Scores are [b, h, s, s] in any case: only an operand has its heads third.
	byHead := strings.Contains(said, `_batch_dimensions":["0","1"]`) && !strings.Contains(said, `_batch_dimensions":["0","2"]`)
	switch {
	case strings.Contains(c.target, "Dropout") || strings.Contains(c.target, "F8") || configured(config, "dropout_rate", 0) != 0,
		mask != "NO_MASK" && mask != "CAUSAL", configured(config, "sliding_window_length", 0) > 0, configured(config, "fmha_scale", -1) <= 0:
		return nil
	}
	n := len(c.ranks)
	order, results := []int64{0, 1, 2}, []int64{0}
	if c.results > 2 { // the log-sum-exp, in front of a workspace
		results = append(results, 1)
	}
	if bias {
		order = append(order, 3)
	}
	if backward {
		order, results = []int64{4, 0, 1, 2, int64(n - 1), 3}, []int64{0, 1, 2}
		if bias {
			order = append(order, 5)
		}
	}
	want := len(order)
	if n != want || !c.shaped([]int64{0, 1, 2}, 4) || c.results < len(results) || bias && backward && c.results > 4 {
		return nil
	}
	return attentionAttrs(c.at, order, results, mask == "CAUSAL", false, !byHead, false, configured(config, "fmha_scale", 1))
}

// shaped reports whether operands have so many dimensions.
func (c libraryCall) shaped(operands []int64, rank int) bool {
	for _, i := range operands {
		if c.ranks[i] != rank {
			return false
		}
	}
	return true
}

// attentionAttrs say how a call is attention: which operands and results are its own, where
// the heads of operands and of results stand, and whether sequences end early.
func attentionAttrs(at int, order, results []int64, causal, padded, headsThird, resultsToo bool, scale float64) []mlir.Named {
	flag := func(b bool) mlir.Attr { return mlir.Word(at, strconv.FormatBool(b)) }
	return []mlir.Named{{Name: "operands", Val: mlir.Numbers(at, order...)}, {Name: "results", Val: mlir.Numbers(at, results...)}, {Name: "causal", Val: flag(causal)}, {Name: "padded", Val: flag(padded)},
		{Name: "heads_third", Val: flag(headsThird)}, {Name: "results_too", Val: flag(resultsToo)}, {Name: "scale", Val: mlir.Text(at, strconv.FormatFloat(scale, 'g', -1, 64))}}
}
