package hlo

import (
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo"
)

// This file converts custom calls. Those of libraries that are attention become attention: by
// Transformer Engine, and by cuDNN as XLA calls it. What such a call does beyond that
// (dropout, windows, masks of other corners) leaves it a call.

// customCall keeps the name, and what configures the call as its payload.
func customCall(c *converter, _ int) error {
	target := c.text("custom_call_target")
	if target == "" {
		return c.errorf("custom-call without custom_call_target")
	}
	config := c.text("backend_config")
	var attrs []stablehlo.Named
	switch {
	case strings.HasPrefix(target, "te_fused_attn_"):
		attrs = c.transformerEngine(target, config)
	case strings.HasPrefix(target, "__cudnn$fmha"):
		attrs = c.cudnn(target, config)
	}
	if attrs != nil {
		target = "concert.attention"
		if strings.Contains(c.text("custom_call_target"), "ackward") {
			target += "_backward"
		}
	} else if config != "" {
		attrs = named("backend_config", stablehlo.Text(c.in.at, config))
	}
	return c.operation("custom_call", append(named("call_target_name", stablehlo.Text(c.in.at, target)), attrs...), nil)
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
		if wordByte(before) {
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

// number is a setting that is a number, or what it is where it is absent.
func number(config, key string, def float64) float64 {
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
func (c *converter) transformerEngine(target, config string) []stablehlo.Named {
	backward := target == "te_fused_attn_backward_ffi"
	mask := number(config, "mask_type", -1)
	causal, padded := mask == 2 || mask == 3, mask == 1 || mask == 3
	switch {
	case target != "te_fused_attn_forward_ffi" && !backward, mask < 0 || mask > 3,
		number(config, "dropout_probability", 1) != 0, number(config, "bias_type", 1) != 0, number(config, "max_segments_per_seq", 0) != 1,
		number(config, "window_size_left", 0) != -1, number(config, "window_size_right", 0) > 0:
		return nil
	}
	order, results, ends := []int64{0, 1, 2}, []int64{0, 1}, int64(6)
	if backward {
		order, results, ends = []int64{7, 0, 1, 2, 6, 4}, []int64{0, 1, 2}, 9
	}
	if len(c.in.operands) <= int(ends) || !c.shaped(order[:3], 4) || len(c.in.shape.tuple) < len(results) {
		return nil
	}
	if padded {
		order = append(order, ends)
	}
	return attentionAttrs(c.in.at, order, results, causal, padded, true, true, number(config, "scaling_factor", 1))
}

// cudnn are the attributes of attention that a call of cuDNN by XLA is, nil if it is none that
// concert has. Operands are q, k, v and a bias; backward the log-sum-exp and the gradient of
// the output stand behind v, the output last. Results are [b, h, s, d].
func (c *converter) cudnn(target, config string) []stablehlo.Named {
	backward, bias := strings.HasSuffix(target, "Backward"), strings.Contains(target, "Bias")
	mask := setting(config, "mask_type")
	byHead := strings.Contains(strings.ReplaceAll(strings.ReplaceAll(config, `\`, ""), " ", ""), `"lhs_batch_dimensions":["0","1"]`)
	switch {
	case strings.Contains(target, "Dropout") || strings.Contains(target, "F8") || number(config, "dropout_rate", 0) != 0,
		mask != "NO_MASK" && mask != "CAUSAL", number(config, "sliding_window_length", 0) > 0, number(config, "fmha_scale", -1) <= 0:
		return nil
	}
	n := len(c.in.operands)
	order, results := []int64{0, 1, 2}, []int64{0}
	if len(c.in.shape.tuple) > 2 { // the log-sum-exp, in front of a workspace
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
	if n != want || !c.shaped([]int64{0, 1, 2}, 4) || len(c.in.shape.tuple) < len(results) || bias && backward && len(c.in.shape.tuple) > 4 {
		return nil
	}
	return attentionAttrs(c.in.at, order, results, mask == "CAUSAL", false, !byHead, false, number(config, "fmha_scale", 1))
}

// shaped reports whether operands have so many dimensions.
func (c *converter) shaped(operands []int64, rank int) bool {
	for _, i := range operands {
		if len(c.by[c.in.operands[i]].shape.dims) != rank {
			return false
		}
	}
	return true
}

// attentionAttrs say how a call is attention: which operands and results are its own, where
// the heads of operands and of results stand, and whether sequences end early.
func attentionAttrs(at int, order, results []int64, causal, padded, headsThird, resultsToo bool, scale float64) []stablehlo.Named {
	flag := func(b bool) stablehlo.Attr { return stablehlo.Word(at, strconv.FormatBool(b)) }
	return named("operands", stablehlo.Numbers(at, order...), "results", stablehlo.Numbers(at, results...), "causal", flag(causal), "padded", flag(padded),
		"heads_third", flag(headsThird), "results_too", flag(resultsToo), "scale", stablehlo.Text(at, strconv.FormatFloat(scale, 'g', -1, 64)))
}
