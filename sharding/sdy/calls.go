package sdy

import (
	"slices"

	"github.com/seed-ee968945/concert/sharding"
)

// target is what a custom call names.
func (s *subject) target() string {
	if a, ok := s.op.Attr("call_target_name"); ok {
		return a.Text
	}
	if f := s.op.Flags; len(f) > 0 {
		return f[0].Text
	}
	return ""
}

// callTable has the rules of custom calls that are known, by target.
var callTable = map[string]maker{
	"Eigh":          eigh,
	"Qr":            qr,
	"mhlo.topk":     topK,
	"ApproxTopK":    approxTopK,
	"X64Combine":    combine64,
	"PartialReduce": approxTopK,

	"QrDecompositionBlock":                     qr,
	"ProductOfElementaryHouseholderReflectors": householder,
}

// pointwiseCalls are custom calls that relate their tensors dimension by dimension.
var pointwiseCalls = []string{
	"annotate_device_placement", "Cholesky", "CompactWyHelper", "InspectSharding", "InvertDiagBlocksLowerTriangular",
	"InvertDiagBlocksUpperTriangular", "LayoutConstraint", "mhlo.erf", "MoveToDevice", "MoveToHost", "X64SplitHigh", "X64SplitLow",
	"xla.megascale.provide_metadata", "_SPMDInternalOp_MultiPad", "_SPMDInternalOp_RotateRight", "_SPMDInternalOp_MultiRotate",
	"_SPMDInternalOp_MultiSlice", "_SPMDInternalOp_Wrap",
}

// customCall is known by its target; shardings do not pass others.
func customCall(s *subject) (*sharding.Rule, error) {
	t := s.target()
	if slices.Contains(pointwiseCalls, t) && len(s.outs) > 0 {
		return same(s)
	}
	if m, ok := callTable[t]; ok {
		return m(s)
	}
	return nil, nil
}

const none = sharding.None

// whole is a factor that the call wants all of.
func whole(n int64) sharding.Factor { return sharding.Factor{Size: n, Kind: sharding.NeedReplication} }

func eigh(s *subject) (*sharding.Rule, error) {
	in := s.ins[0]
	i, j := len(in)-2, len(in)-1
	r := s.new().Each(in[:i], nil)
	r.Add(sharding.Factor{Size: in[i]}, []int{i}, []int{i, none})
	return r.Add(sharding.Factor{Size: in[j]}, []int{j}, []int{j, i}).Done(), nil
}

func qr(s *subject) (*sharding.Rule, error) {
	in := s.ins[0]
	i, j := len(in)-2, len(in)-1
	r := s.new().Each(in[:i], nil)
	r.Add(whole(in[i]), []int{i}, []int{i, none})
	r.Add(whole(in[j]), []int{j}, []int{j, none})
	return r.Add(whole(s.outs[1][i]), nil, []int{none, i}).Done(), nil
}

func householder(s *subject) (*sharding.Rule, error) {
	in := s.ins[0]
	i, j := len(in)-2, len(in)-1
	r := s.new().Each(in[:i], nil)
	r.Add(whole(in[i]), []int{i}, []int{i})
	r.Add(whole(in[j]), []int{j}, []int{j})
	return r.Add(whole(s.ins[1][i]), []int{none, i}, nil).Done(), nil
}

func topK(s *subject) (*sharding.Rule, error) {
	return s.new().Differing(s.ins[0], s.outs[0], sharding.Factor{Kind: sharding.NeedReplication, Blocked: true}).Done(), nil
}

func approxTopK(s *subject) (*sharding.Rule, error) {
	r := s.new()
	for d, n := range s.ins[0] {
		out := s.outs[0][d]
		if n == out {
			r.Along(d, sharding.Factor{Size: n})
			continue
		}
		r.Add(sharding.Factor{Size: n}, []int{d, d}, nil)
		r.Add(sharding.Factor{Size: out, Kind: sharding.NeedReplication, Blocked: true}, nil, []int{d, d})
	}
	return r.Done(), nil
}

// combine64 makes the state of a generator, which is wanted whole, or relates element to element.
func combine64(s *subject) (*sharding.Rule, error) {
	if !slices.Contains(s.feeds, "stablehlo.rng_bit_generator") {
		return same(s)
	}
	return s.new().Each(s.outs[0], func(int) sharding.Factor {
		return sharding.Factor{Kind: sharding.NeedReplication, Blocked: true}
	}).Done(), nil
}
