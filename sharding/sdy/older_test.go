package sdy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir/stablehlo"
)

// oldProgram is a program of four partitions whose argument has an old sharding.
func oldProgram(text string) string {
	return fmt.Sprintf(`module @m attributes {mhlo.num_partitions = 4 : i32} {
  func.func public @main(%%a: tensor<4x8xf32> {mhlo.sharding = %q}) -> tensor<4x8xf32> {
    %%n = stablehlo.negate %%a : tensor<4x8xf32>
    return %%n : tensor<4x8xf32>
  }
}
`, text)
}

// Old shardings are those of a mesh that is fine enough, or refused; none is passed over.
func TestOldShardings(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{devices=[4,1]<=[4]}", "<mesh<['d0'=4]>, [{'d0'}, {}]>"},
		{"{devices=[1,4]0,1,2,3}", "<mesh<['d0'=4]>, [{}, {'d0'}]>"},
		{"{devices=[2,2]<=[4]}", "<mesh<['d0'=2, 'd1'=2]>, [{'d0'}, {'d1'}]>"},
		{"{devices=[2,2]<=[2,2]T(1,0)}", "<mesh<['d0'=2, 'd1'=2]>, [{'d1'}, {'d0'}]>"},
		{"{devices=[2,2]0,2,1,3}", "<mesh<['d0'=2, 'd1'=2]>, [{'d1'}, {'d0'}]>"},
		{"{devices=[1,4]<=[2,2]T(1,0)}", "<mesh<['d0'=2, 'd1'=2]>, [{}, {'d1', 'd0'}]>"},
		{"{devices=[1,2,2]<=[4] last_tile_dim_replicate}", "<mesh<['d0'=2, 'd1'=2]>, [{}, {'d0'}]>"},
		{"{devices=[1,2,2]<=[4] last_tile_dims={replicated}}", "<mesh<['d0'=2, 'd1'=2]>, [{}, {'d0'}]>"},
		{"{devices=[4,1]<=[4] metadata={op_name=\"x\"}}", "<mesh<['d0'=4]>, [{'d0'}, {}]>"},
		{"{replicated}", "<mesh<['d0'=4]>, [{}, {}]>"},
		{"{maximal device=1}", "op not supported: want replicated or devices"},
		{"{manual}", "op not supported: want replicated or devices"},
		{"{devices=[2,2]0,3,1,2}", "devices in an order that no mesh has"},
		{"{devices=[2,1]<=[2]}", "it is of 2 devices, the program of 4"},
		{"{devices=[2,2]<=[2,4]}", "is not of 4 devices"},
		{"{devices=[2,2]<=[2,2]T(1,1)}", "is no order of 2 dimensions"},
		{"{devices=[4]<=[4]}", "it is of 1 dimensions, the type is tensor<4x8xf32>"},
		{"{devices=[2,1,2]<=[4] last_tile_dims={manual}}", "op not supported: last_tile_dims={manual}"},
		{"replicated", "want {replicated}"},
		{"{devices=[0,1]<=[0]}", "want 1 to"},
		{"{devices=[4,1]}", "is not a list of 4 devices"},
		{"{devices=[4,1]<=[4}", "<=[4] is not of 4 devices"},
		{"{devices=[4,x]<=[4]}", "is no list of numbers"},
		{"{devices=[3,1]<=[3]}", "it is of 3 devices"},
		{"{devices=[4,1]0,0,0,0}", "devices in an order that no mesh has"},
		{"{devices=[4,1]1,0,3,2}", "devices in an order that no mesh has"},
		{"{{replicated}, {replicated}}", "2 shardings for 1 values"},
	} {
		m, err := stablehlo.Parse("old.mlir", oldProgram(c.text))
		if err != nil {
			t.Fatal(err)
		}
		m.Sharded(Given)
		p, err := m.Program()
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "old.mlir:2:") {
				t.Errorf("%s: %v, want %q", c.text, err, c.want)
			}
			continue
		}
		in := p.Module.Funcs()[0].Inputs()[0]
		if got := in.Meta().Strs("sharding"); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s is %v, want %s", c.text, got, c.want)
		}
	}
}

// Shardings in a form that carries them are not passed over.
func TestCarriedShardings(t *testing.T) {
	text := strings.Replace(oldProgram("{replicated}"), `mhlo.sharding = "{replicated}"`, `mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding<@mesh, [{\22x\22}, {}]>"}`, 1)
	m, err := stablehlo.Parse("old.mlir", text)
	if err != nil {
		t.Fatal(err)
	}
	m.Sharded(Given)
	if _, err := m.Program(); err == nil || !strings.Contains(err.Error(), "xla.sdy.sharding without mhlo.sharding") {
		t.Error(err)
	}
}

// A program that was serialized marks its results once more.
func TestMarkedResults(t *testing.T) {
	text := strings.NewReplacer("return %n", `%m = stablehlo.custom_call @xla.sdy.FuncResultSharding(%n) {has_side_effect = true} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %m`, "-> tensor<4x8xf32> {\n", "-> (tensor<4x8xf32> {mhlo.sharding = \"{devices=[1,4]<=[4]}\"}) {\n").Replace(oldProgram("{devices=[4,1]<=[4]}"))
	m, err := stablehlo.Parse("old.mlir", text)
	if err != nil {
		t.Fatal(err)
	}
	m.Sharded(Given)
	p, err := m.Program()
	if err != nil {
		t.Fatal(err)
	}
	out := p.Module.Funcs()[0].Return().Arg(0).Def()
	if got := out.Meta().Strs("sharding"); len(got) != 1 || got[0] != "<mesh<['d0'=4]>, [{}, {'d0'}]>" {
		t.Errorf("the result is %v", got)
	}
}

// Without who reads shardings, a program that has old ones is none of one rank's.
func TestOldShardingsAlone(t *testing.T) {
	m, err := stablehlo.Parse("old.mlir", oldProgram("{devices=[4,1]<=[4]}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Program(); err == nil || !strings.Contains(err.Error(), "wants a partitioner") {
		t.Error(err)
	}
}

// Tilings that cut the devices in ways that do not nest have no mesh in common.
func TestOldShardingsApart(t *testing.T) {
	text := `module @m attributes {mhlo.num_partitions = 6 : i32} {
  func.func public @main(%a: tensor<6xf32> {mhlo.sharding = "{devices=[2,3]<=[6] last_tile_dim_replicate}"}, %b: tensor<6xf32> {mhlo.sharding = "{devices=[3,2]<=[6] last_tile_dim_replicate}"}) -> tensor<6xf32> {
    %n = stablehlo.add %a, %b : tensor<6xf32>
    return %n : tensor<6xf32>
  }
}
`
	m, err := stablehlo.Parse("old.mlir", text)
	if err != nil {
		t.Fatal(err)
	}
	m.Sharded(Given)
	if _, err := m.Program(); err == nil || !strings.Contains(err.Error(), "no common mesh") {
		t.Error(err)
	}
}

// A sum of what is computed of parts of a sum, which is none of their sum, is refused.
func TestUnclearParts(t *testing.T) {
	for _, op := range []string{"stablehlo.exponential %d : tensor<2x2xf32>", "stablehlo.add %d, %c : tensor<2x2xf32>", "stablehlo.multiply %d, %d : tensor<2x2xf32>"} {
		m, err := stablehlo.Parse("parts.mlir", `sdy.mesh @m = <["x"=2]>
func.func @main(%a: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>}, %b: tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}, %c: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  %e = `+op+`
  %0 = sdy.all_reduce {"x"} %e out_sharding=<@m, [{}, {}]> : tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
`)
		if err != nil {
			t.Fatal(err)
		}
		m.Sharded(Given)
		if _, err := m.Program(); err == nil || !strings.Contains(err.Error(), "parts of a sum") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// FuzzOldShardings: whatever a text says, it is read or refused.
func FuzzOldShardings(f *testing.F) {
	for _, text := range []string{"{devices=[2,2]<=[2,2]T(1,0)}", "{devices=[2,2]0,2,1,3}", "{{replicated}, {devices=[4]<=[4]}}", "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"} {
		f.Add(text, 4)
	}
	f.Fuzz(func(t *testing.T, text string, n int) {
		if len(text) > 1<<10 {
			return
		}
		m, err := stablehlo.Parse("old.mlir", strings.Replace(oldProgram(text), "= 4", fmt.Sprintf("= %d", n), 1))
		if err != nil {
			return
		}
		m.Sharded(Given)
		if _, err := m.Program(); err != nil {
			_ = err.Error()
		}
	})
}
