package llama

import "github.com/seed-ee968945/concert/ir"

// one annotates inputs of a kind: the first, and the others alike.
func one(l *Step, m *ir.Mesh, dims []string, kinds ...string) {
	var all []*ir.Value
	for _, k := range kinds {
		all = append(all, l.Inputs[k]...)
	}
	all[0].Shard(m, dims...)
	if len(all) > 1 {
		m.ShardingGroup(all...)
	}
}

// Arrangement says of a few tensors how they lie; a step of the same sizes is sharded so by hand.
type Arrangement struct {
	Name        string
	data, model int64
	replicate   bool
	experts     bool
	Annotate    func(l *Step, m *ir.Mesh)
}

// Of is a step with the arrangement's mesh.
func (a *Arrangement) Of(l Step) *Step {
	l.Data, l.Model, l.Replicate = a.data, a.model, a.replicate
	if a.experts {
		l.Experts = 2 * a.data
	}
	return &l
}

// Arrangements are those of a decoder on four ranks, each of at most ten annotations.
var Arrangements = []Arrangement{
	{"ddp4", 4, 1, true, false, func(l *Step, m *ir.Mesh) {
		one(l, m, []string{"data", ""}, "ids", "goal")
	}},
	{"fsdp4", 4, 1, false, false, func(l *Step, m *ir.Mesh) {
		one(l, m, []string{"data", ""}, "ids", "goal")
		for _, k := range [][]string{{"table"}, {"out"}, {"q"}, {"k", "v"}, {"gate", "up"}} {
			one(l, m, []string{"data", ""}, k...)
		}
		one(l, m, []string{"", "data"}, "o")
		one(l, m, []string{"", "data"}, "down")
	}},
	{"tp4 sp", 1, 4, false, false, func(l *Step, m *ir.Mesh) {
		one(l, m, []string{"", "model"}, "ids", "goal")
		for _, k := range [][]string{{"q"}, {"k", "v"}, {"gate", "up"}, {"out"}} {
			one(l, m, []string{"", "model"}, k...)
		}
		one(l, m, []string{"model", ""}, "o")
		one(l, m, []string{"model", ""}, "down")
	}},
	{"fsdp2 tp2", 2, 2, false, false, func(l *Step, m *ir.Mesh) {
		one(l, m, []string{"data", "model"}, "ids", "goal")
		one(l, m, []string{"data", ""}, "table")
		for _, k := range [][]string{{"q"}, {"k", "v"}, {"gate", "up"}, {"out"}} {
			one(l, m, []string{"data", "model"}, k...)
		}
		one(l, m, []string{"model", "data"}, "o")
		one(l, m, []string{"model", "data"}, "down")
		one(l, m, []string{""}, "first", "second")
	}},
	{"experts4", 4, 1, false, true, func(l *Step, m *ir.Mesh) {
		one(l, m, []string{"data", ""}, "ids", "goal")
		for _, k := range [][]string{{"table"}, {"out"}, {"q"}, {"k", "v"}} {
			one(l, m, []string{"data", ""}, k...)
		}
		one(l, m, []string{"", "data"}, "o")
		one(l, m, []string{"data", "", ""}, "egate", "eup")
		one(l, m, []string{"data", "", ""}, "edown")
	}},
}
