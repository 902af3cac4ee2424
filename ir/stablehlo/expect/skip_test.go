package expect

import (
	"testing"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Types anywhere in a module, and operations of a host program, are why it is not run.
func TestSkip(t *testing.T) {
	for text, want := range map[string]string{
		`func.func @main() { return }`:                                                   "",
		`func.func @main(%a: tensor<2xcomplex<f32>>) { return }`:                         "complex numbers",
		`func.func private @f() -> tuple<tensor<i4>>`:                                    "types of less than a byte",
		`func.func @main() { %0 = stablehlo.constant dense<1> : tensor<2xui4> return }`:  "types of less than a byte",
		`func.func @main(%a: tensor<f32>) { interpreter.print %a : tensor<f32> return }`: "prints",
		`func.func @main(%a: tensor<2x2xf32>) { %0:3 = stablehlo.custom_call @lapack_sgees_ffi(%a) : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xi32>, tensor<i32>) return }`: "calls @lapack_sgees_ffi",
		`func.func @main(%a: tensor<f32>) { stablehlo.custom_call @check.expect_eq(%a, %a) : (tensor<f32>, tensor<f32>) -> () return }`:                                           "",
		`func.func @main(%a: tensor<4x!quant.uniform<i8:f32, 1.0:0>>) -> () { "func.return"() : () -> () }`:                                                                       "quantised types",
	} {
		m, err := mlir.Parse("t.mlir", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := Skip(m); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A file whose tool must fail is one that pipes it into not.
func TestFailure(t *testing.T) {
	if !Failure("// RUN: not stablehlo-translate %s\n") || Failure("// RUN: stablehlo-translate --interpret %s\n") {
		t.Error("not the files whose tool is expected to fail")
	}
}
