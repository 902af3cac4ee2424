package ir

import (
	"strings"
	"testing"
)

// TestMesh reads what a builder says of a few values.
func TestMesh(t *testing.T) {
	b := NewBuilder(8)
	m := b.Mesh(Axis{"data", 2}, Axis{"model", 4})
	f := b.Func("f")
	x := f.Input("x", Tensor(F32, 8, 16)).Shard(m, "data", "model:(1)2?")
	y := f.Input("y", Tensor(F32, 8, 16))
	m.ShardingGroup(x, y)
	f.Return(f.Add(x, y).Shard(m, "model data", ""))
	got, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`%x: f32[8,16] !{role="data", sharding=["<mesh<['data'=2, 'model'=4]>, [{'data'}, {'model':(1)2, ?}]>"], sharding_group=1}`,
		`%y: f32[8,16] !{role="data", sharding_group=1}`,
		`!{sharding=["<mesh<['data'=2, 'model'=4]>, [{'model', 'data'}, {}]>"]}`,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("want %s in\n%s", want, got)
		}
	}
	if m.String() != "data=2,model=4" {
		t.Error(m)
	}
}

// TestMeshErrors says what does not fit, and goes on.
func TestMeshErrors(t *testing.T) {
	for want, say := range map[string]func(b *Builder){
		"axes of 4 ranks in a world of 8": func(b *Builder) { b.Mesh(Axis{"x", 4}) },
		`axis "x": want names, each once`: func(b *Builder) { b.Mesh(Axis{"x", 2}, Axis{"x", 4}) },
		`axis "x" of 0 in a world of 8`:   func(b *Builder) { b.Mesh(Axis{"x", 0}) },
		"1 dimensions said of f32[8,8]": func(b *Builder) {
			b.Func("f").Input("v", Tensor(F32, 8, 8)).Shard(b.Mesh(Axis{"x", 8}), "x")
		},
		`dimension 0: there is no axis "y"`: func(b *Builder) {
			b.Func("f").Input("v", Tensor(F32, 8)).Shard(b.Mesh(Axis{"x", 8}), "y")
		},
		"%w cannot lie like %v": func(b *Builder) {
			f := b.Func("f")
			b.Mesh(Axis{"x", 8}).ShardingGroup(f.Input("v", Tensor(F32, 8)), f.Input("w", Tensor(F32, 4)))
		},
	} {
		b := NewBuilder(8)
		say(b)
		if _, err := b.Finish(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	b := NewBuilder(8)
	m := b.Mesh(Axis{"x", 8})
	if v := b.Func("f").MatMul(nil, nil).Shard(m, "x"); v == nil {
		t.Error("a value of a failed operation is one no more")
	}
}
