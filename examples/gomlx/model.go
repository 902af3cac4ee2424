package main

import (
	"path"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/nn"
	"github.com/gomlx/gomlx/ml/train/optimizer"
)

// gpt is a transformer, and how its weights are cut: each dimension along axes of the mesh.
type gpt struct {
	mesh                          *distributed.DeviceMesh // nil: one device
	fsdp, tp                      distributed.AxisSpec
	seq, dim, heads, layers, data int
	vocabulary                    int
	dtype                         dtypes.DType // of what is computed; weights are float32
}

// weight is a variable, cut in two dimensions.
func (m *gpt) weight(scope *model.Scope, g *Graph, name string, rows, columns int, cut ...distributed.AxisSpec) *Node {
	v := scope.WithInitializer(initializer.RandomNormalFn(scope, 0.02)).VariableWithShape(name, shapes.Make(dtypes.Float32, rows, columns))
	if m.mesh != nil {
		v.WithShardingSpec(&distributed.ShardingSpec{Mesh: m.mesh, Axes: cut})
	}
	return ConvertDType(v.NodeValue(g), m.dtype)
}

func (m *gpt) norm(scope *model.Scope, x *Node) *Node {
	gain := scope.WithInitializer(initializer.One).VariableWithShape("gain", shapes.Make(dtypes.Float32, m.dim)).NodeValue(x.Graph())
	bias := scope.WithInitializer(initializer.Zero).VariableWithShape("bias", shapes.Make(dtypes.Float32, m.dim)).NodeValue(x.Graph())
	return ConvertDType(nn.LayerNorm(ConvertDType(x, dtypes.Float32), []int{-1}, 1e-5, gain, bias, nil), m.dtype)
}

func dot(x, w *Node) *Node { return nn.Dense(x, w, nil, compute.DenseLayoutInputOutputs) }

// logits predicts the byte behind each one.
func (m *gpt) logits(scope *model.Scope, _ any, in []*Node) []*Node {
	tokens, g := in[0], in[0].Graph()
	batch, seq := tokens.Shape().Dimensions[0], tokens.Shape().Dimensions[1]
	x := Gather(m.weight(scope, g, "bytes", m.vocabulary, m.dim, m.fsdp, nil), InsertAxes(tokens, -1))
	x = Add(x, InsertAxes(m.weight(scope, g, "places", seq, m.dim, m.fsdp, nil), 0))
	for l := range m.layers {
		s := scope.In("layer%d", l)
		up := func(name string, x *Node, out int) *Node { // weights by columns
			return dot(x, m.weight(s, g, name, m.dim, out, m.fsdp, m.tp))
		}
		down := func(name string, x *Node) *Node { // and by rows
			return dot(x, m.weight(s, g, name, x.Shape().Dim(-1), m.dim, m.tp, m.fsdp))
		}
		h := m.norm(s.In("attend"), x)
		var qkv [3]*Node
		for i, name := range []string{"q", "k", "v"} {
			qkv[i] = Reshape(up(name, h, m.dim), batch, seq, m.heads, m.dim/m.heads)
		}
		h, _ = attention.Core(qkv[0], qkv[1], qkv[2], attention.LayoutBSHD, attention.CoreOptions{Scope: s, UseCausalMask: true})
		x = Add(x, down("o", Reshape(h, batch, seq, m.dim)))
		x = Add(x, down("down", activation.Gelu(up("up", m.norm(s.In("think"), x), 4*m.dim))))
	}
	logits := dot(m.norm(scope.In("last"), x), m.weight(scope, g, "out", m.dim, m.vocabulary, m.fsdp, m.tp))
	return []*Node{ConvertDType(logits, dtypes.Float32)}
}

// asWeights is Adam whose states are cut as the weights are.
type asWeights struct{ optimizer.Interface }

func (o asWeights) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	var cut []*model.Variable
	for v := range scope.Store().IterVariables() {
		if v.Trainable && v.ShardingSpec() != nil {
			cut = append(cut, v)
		}
	}
	for _, v := range cut {
		s := scope.Store().Scope(path.Join("/", optimizer.AdamDefaultScope, v.Scope())).WithInitializer(initializer.Zero)
		for _, moment := range []string{"_1st_moment", "_2nd_moment"} {
			if m := s.VariableWithShape(v.Name()+moment, v.Shape()).SetTrainable(false); m.ShardingSpec() != v.ShardingSpec() {
				m.WithShardingSpec(v.ShardingSpec())
			}
		}
	}
	o.Interface.UpdateGraph(scope, g, loss)
}
