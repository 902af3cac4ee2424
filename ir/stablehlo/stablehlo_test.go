package stablehlo

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/text/texttest"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// Broken programs are refused with the place and a caret.
func TestErrors(t *testing.T) {
	texttest.Wants(t, "testdata/errors.txtar", *update, func(name, text string) string {
		if err := imported(name, text); err != nil {
			return err.Error() + "\n"
		}
		return "nothing is wrong\n"
	})
}

// imported parses and imports all that a text holds.
func imported(name, text string) error {
	for _, c := range mlir.Split(name, text) {
		m, err := c.Parse()
		if err != nil {
			return err
		}
		for _, f := range m.Funcs {
			if f.Private {
				continue
			}
			if _, err := (&Module{Module: m}).Import(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// A body that says how its numbers lie, even twice, is that of a collective.
func TestConstrainedBody(t *testing.T) {
	p := programOf(t, "body.mlir", `module @m attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @m = <["a"=2]>
  func.func public @main(%x: tensor<4xi32>) -> tensor<4xi32> {
    %r = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = sdy.sharding_constraint %a <@m, []> : tensor<i32>
      %s = stablehlo.maximum %c, %b : tensor<i32>
      %t = sdy.sharding_constraint %s <@m, []> : tensor<i32>
      %u = sdy.sharding_constraint %t <@m, []> : tensor<i32>
      stablehlo.return %u : tensor<i32>
    }) : (tensor<4xi32>) -> tensor<4xi32>
    return %r : tensor<4xi32>
  }
}`)
	if c := p.Module.Funcs()[0].Order()[1]; c.Op() != ir.OpAllReduce || c.Attrs().Str("reduce", "") != "max" {
		t.Errorf("no all_reduce.max:\n%s", p.Module)
	}
}

// FuzzImport: whatever a text is, it is imported or refused.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range mlir.Split(file, string(text)) {
			f.Add(c.Text())
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		if err := imported("fuzz", text); err != nil {
			_ = err.Error()
		}
	})
}

// A large text takes time and memory in proportion: bytes of elements are read once.
func TestLarge(t *testing.T) {
	const n = 1 << 20
	text := "func.func @main() -> tensor<1048576xf32> {\n  %x = stablehlo.constant dense<\"0x" + strings.Repeat("0000803F", n) + "\"> : tensor<1048576xf32>\n  return %x : tensor<1048576xf32>\n}\n"
	m, err := Parse("large", text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Import(m.Funcs[0])
	if err != nil {
		t.Fatal(err)
	}
	if l := p.Outs[0].Literal; l == nil || len(l.Data) != 4*n {
		t.Error("the constant is not what the text says")
	}
}

// programOf parses a text and imports it.
func programOf(t *testing.T, name, text string) *Program {
	t.Helper()
	m, err := Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Nodes know where they come from, and arguments what they are donated to.
func TestProgram(t *testing.T) {
	const text = `module {
  func.func public @main(%a: tensor<2xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<2xf32>) -> tensor<2xf32> {
    %s = stablehlo.add %a, %b : tensor<2xf32> loc(#here)
    return %s : tensor<2xf32>
  }
}
#here = loc("model.py":3:7)
`
	p := programOf(t, "p.mlir", text)
	f := p.Module.Funcs()[0]
	if d := f.Donations(); len(d) != 1 || d[0].Input.Name() != "a" || d[0].Result != 0 {
		t.Errorf("donations are %v", d)
	}
	for _, n := range f.Order() {
		if n.Name() != "s" {
			continue
		}
		at, ok := n.Origins()[0].(*Position)
		if !ok || at.String() != "p.mlir:3:10" || at.Location != `"model.py":3:7` {
			t.Errorf("%%s comes from %v", n.Origins())
		}
	}
	if _, err := Parse("p.mlir", "module {"); err == nil {
		t.Error("half a module is one")
	}
}

// Tokens are no inputs and results of a program, but count where the text numbers those.
func TestTokens(t *testing.T) {
	p := programOf(t, "p.mlir", `func.func @main(%t: !stablehlo.token, %a: tensor<2xf32>, %b: tensor<2xf32> {tf.aliasing_output = 2 : i32}) -> (!stablehlo.token, tensor<2xf32>, tensor<2xf32>) {
  %u = stablehlo.after_all %t : !stablehlo.token
  %s = stablehlo.negate %a : tensor<2xf32>
  %r = stablehlo.negate %b : tensor<2xf32>
  return %u, %s, %r : !stablehlo.token, tensor<2xf32>, tensor<2xf32>
}`)
	f := p.Module.Funcs()[0]
	if d := f.Donations(); len(f.Inputs()) != 2 || len(f.Return().Args()) != 2 || len(d) != 1 || d[0].Input.Name() != "b" || d[0].Result != 1 {
		t.Errorf("donations are %v in %s", d, p.Module)
	}
}

// A manual computation is a function of each rank's pieces, its groups those of axes.
func TestManual(t *testing.T) {
	const text = `module @m attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) -> tensor<4x4xf32> {
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {"y"}]>] out_shardings=[<@mesh, [{"y"}, {}]>] manual_axes={"x", "y"} (%b: tensor<2x2xf32>) {
      %1 = "stablehlo.all_gather"(%b) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>, use_global_device_ids}> : (tensor<2x2xf32>) -> tensor<2x4xf32>
      sdy.return %1 : tensor<2x4xf32>
    } : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
`
	p := programOf(t, "manual.mlir", text)
	const want = `world 4
group @g0 = [[0, 2], [1, 3]]

func @main(%a: f32[2,2] !{role="data"}) -> (f32[2,4]) {
  %all_gather = all_gather %a on @g0 {dim=1} : async f32[2,4]
  %wait_tensor = wait_tensor %all_gather : f32[2,4]
  return %wait_tensor
}
`
	if got := p.Module.String(); got != want {
		t.Errorf("the module is\n%s\nwant\n%s", got, want)
	}
}

// Where the function says of its arguments and results that other ranks have other pieces, the program is
// more than its manual computation.
func TestManualBesideShardings(t *testing.T) {
	for _, c := range []struct{ arg, in, out, result string }{
		{`[{"x"}]`, `[{"x"}]`, `[{"x"}]`, `[{}]`},
		{`[{"x", "y"}]`, `[{"y", "x"}]`, `[{"y", "x"}]`, `[{"y", "x"}]`},
		{`[{"x"}]`, `[{"x"}]`, `[{}], unreduced={"x"}`, `[{}]`},
	} {
		text := fmt.Sprintf(`module @m attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, %s>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, %s>}) {
    %%0 = sdy.manual_computation(%%a) in_shardings=[<@mesh, %s>] out_shardings=[<@mesh, %s>] manual_axes={"x", "y"} (%%b: tensor<2xf32>) {
      sdy.return %%b : tensor<2xf32>
    } : (tensor<4xf32>) -> tensor<4xf32>
    return %%0 : tensor<4xf32>
  }
}
`, c.arg, c.result, c.in, c.out)
		m, err := Parse("manual.mlir", text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Program(); err == nil || !strings.Contains(err.Error(), "wants a partitioner") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What a short text says by names that stand for others, by ranks it does not list and by
// sizes is bounded: it is refused, or imported without that.
func TestBounds(t *testing.T) {
	const n = 60
	var attrs, tuples strings.Builder
	attrs.WriteString("#a0 = []\n")
	tuples.WriteString("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %t0 = stablehlo.tuple %x, %x : tuple<>\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&attrs, "#a%d = [#a%d, #a%d]\n", i, i-1, i-1)
		fmt.Fprintf(&tuples, "  %%t%d = stablehlo.tuple %%t%d, %%t%d : tuple<>\n", i, i-1, i-1)
	}
	for _, c := range []struct{ text, want string }{
		{attrs.String(), "names stand for more than 65536 attributes"},
		{tuples.String() + "  return %x : tensor<4xf32>\n}\n", "a tuple of more than 65536 values"},
		{"func.func @main(%x: tensor<i32>) {\n  %0 = stablehlo.while(%i = %x) : tensor<i32> cond {\n    %p = stablehlo.compare LT, %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n" +
			strings.Repeat("    %a:65536 = \"foo.bar\"() : () -> ()\n", 50) + "    stablehlo.return %p : tensor<i1>\n  } do {\n    stablehlo.return %i : tensor<i32>\n  }\n  return\n}\n", "op not supported: foo.bar"},
		{"module attributes {mhlo.num_partitions = 2 : i32} {\nfunc.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %c = stablehlo.constant dense<0> : tensor<1000000000000xi32>\n" +
			"  %p = stablehlo.partition_id : tensor<ui32>\n  %0 = stablehlo.dynamic_slice %c, %p, sizes = [1] : (tensor<1000000000000xi32>, tensor<ui32>) -> tensor<1xi32>\n  return %x : tensor<4xf32>\n}\n}\n", ""},
	} {
		err := imported("bounds.mlir", c.text)
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || c.want == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// cuDNN's attention is attention in StableHLO too, as far as it does nothing beyond that.
func TestLibrary(t *testing.T) {
	for drop, want := range map[string]ir.Op{"0": ir.OpAttention, "0.1": ir.OpCall} {
		m, err := Parse("cudnn.mlir", `func.func @main(%q: tensor<2x8x4x16xbf16>, %k: tensor<2x8x4x16xbf16>) -> tensor<2x4x8x16xbf16> {
  %0:2 = stablehlo.custom_call @__cudnn$fmhaSoftmax(%q, %k, %k) {api_version = 2 : i32, backend_config = "{\22cudnn_fmha_backend_config\22: {\22fmha_scale\22: 0.25, \22dropout_rate\22: `+drop+`, \22mask_type\22: \22CAUSAL\22, \22bmm1_dot_dimension_numbers\22: {\22lhs_batch_dimensions\22: [\220\22, \222\22]}, \22bmm2_dot_dimension_numbers\22: {\22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \222\22]}}}"} : (tensor<2x8x4x16xbf16>, tensor<2x8x4x16xbf16>, tensor<2x8x4x16xbf16>) -> (tensor<2x4x8x16xbf16>, tensor<0xui8>)
  return %0#0 : tensor<2x4x8x16xbf16>
}
`)
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Program()
		if err != nil {
			t.Fatal(err)
		}
		if text := p.Module.String(); !strings.Contains(text, "= "+want.Name()+" ") || want == ir.OpAttention && !strings.Contains(text, "{causal=true, scale=0.25} : bf16[2,4,8,16]") {
			t.Errorf("dropout %s: want %s\n%s", drop, want, text)
		}
	}
}

// Loops in a loop count in each of its turns: what would be too much in all of them stays a loop.
func TestNestedLoops(t *testing.T) {
	text := `func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<100> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32> cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1:2 = stablehlo.while(%j = %zero, %b0 = %a) : tensor<i32>, tensor<4xf32> cond {
      %more = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
`
	for k := range 40 {
		text += fmt.Sprintf("      %%b%d = stablehlo.add %%b%d, %%x : tensor<4xf32>\n", k+1, k)
	}
	text += `      %next = stablehlo.add %j, %one : tensor<i32>
      stablehlo.return %next, %b40 : tensor<i32>, tensor<4xf32>
    }
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %1#1 : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}
`
	p := programOf(t, "loops.mlir", text)
	n := 0
	for _, f := range p.Module.Funcs() {
		n += len(f.Order())
	}
	if n < 4000 || n > 5000 {
		t.Errorf("%d operations, want those of the inner loop once", n)
	}
}

// The generic form of a function says of its arguments and results what the other form does.
func TestGenericFunction(t *testing.T) {
	p := programOf(t, "generic.mlir", `"builtin.module"() ({
  "func.func"() <{arg_attrs = [{}, {tf.aliasing_output = 0 : i32}], function_type = (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>, res_attrs = [{jax.result_info = "x"}], sym_name = "main"}> ({
  ^bb0(%a: tensor<4xi32>, %b: tensor<4xi32>):
    %0 = "stablehlo.add"(%a, %b) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    "func.return"(%0) : (tensor<4xi32>) -> ()
  }) : () -> ()
}) : () -> ()
`)
	if d := p.Module.Funcs()[0].Donations(); len(d) != 1 || d[0].Input.Name() != "b" || d[0].Result != 0 {
		t.Errorf("donations are %v in %s", d, p.Module)
	}
}
