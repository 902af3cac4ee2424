// Operations on single elements, in generic form and in those of the dialects.

func.func @integers() {
  %a = stablehlo.constant dense<[7, -7, 5, -128]> : tensor<4xi8>
  %b = "stablehlo.constant"() <{value = dense<[2, 2, 0, -1]> : tensor<4xi8>}> : () -> tensor<4xi8>
  %zeros = stablehlo.constant dense<[010, 0x10, -08]> : tensor<3xi8>
  check.expect_eq_const %zeros, dense<[10, 16, -8]> : tensor<3xi8>
  %sum = stablehlo.add %a, %b : tensor<4xi8>
  check.expect_eq_const %sum, dense<[9, -5, 5, 127]> : tensor<4xi8>
  %quotient = stablehlo.divide %a, %b : tensor<4xi8>
  check.expect_eq_const %quotient, dense<[3, -3, -1, -128]> : tensor<4xi8>
  %rest = "stablehlo.remainder"(%a, %b) : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>
  check.expect_eq_const %rest, dense<[1, -1, 5, 0]> : tensor<4xi8>
  %down = stablehlo.shift_right_logical %a, %b : tensor<4xi8>
  check.expect_eq_const %down, dense<[1, 62, 5, 0]> : tensor<4xi8>
  %not = stablehlo.not %a : tensor<4xi8>
  check.expect_eq_const %not, dense<[-8, 6, -6, 127]> : tensor<4xi8>
  func.return
}

// -----

func.func @truth() {
  %a = stablehlo.constant dense<[false, false, true, true]> : tensor<4xi1>
  %b = stablehlo.constant dense<"0x0A"> : tensor<4xi1>
  %or = stablehlo.add %a, %b : tensor<4xi1>
  check.expect_eq_const %or, dense<[false, true, true, true]> : tensor<4xi1>
  %and = stablehlo.minimum %a, %b : tensor<4xi1>
  check.expect_eq_const %and, dense<[false, false, false, true]> : tensor<4xi1>
  %xor = stablehlo.xor %a, %b : tensor<4xi1>
  check.expect_eq_const %xor, dense<[false, true, true, false]> : tensor<4xi1>
  %less = stablehlo.compare LT, %a, %b : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  check.expect_eq_const %less, dense<[false, true, false, false]> : tensor<4xi1>
  func.return
}

// -----

module @floats attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main() -> tensor<4xi1> {
    %x = stablehlo.constant dense<[2.5, -2.5, 0xFF800000, 0x7FC00000]> : tensor<4xf32>
    %away = stablehlo.round_nearest_afz %x : tensor<4xf32>
    %want = stablehlo.constant dense<[3.0, -3.0, 0xFF800000, 0x7FC00000]> : tensor<4xf32>
    stablehlo.custom_call @check.expect_close(%away, %want) {has_side_effect = true} : (tensor<4xf32>, tensor<4xf32>) -> ()
    %even = "stablehlo.round_nearest_even"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    check.expect_almost_eq_const %even, dense<[2.0, -2.0, 0xFF800000, 0x7FC00000]> : tensor<4xf32>
    %sign = stablehlo.sign %x : tensor<4xf32>
    check.expect_almost_eq_const %sign, dense<[1.0, -1.0, -1.0, 0x7FC00000]> : tensor<4xf32>, tolerance = 0.0
    %low = stablehlo.constant dense<0.0> : tensor<f32>
    %high = stablehlo.constant dense<2.0> : tensor<f32>
    %clamped = stablehlo.clamp %low, %x, %high : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    check.expect_almost_eq_const %clamped, dense<[2.0, 0.0, 0.0, 0x7FC00000]> : tensor<4xf32>
    %finite = stablehlo.is_finite %x : (tensor<4xf32>) -> tensor<4xi1>
    check.expect_eq_const %finite, dense<[true, true, false, false]> : tensor<4xi1>
    return %finite : tensor<4xi1>
  }
}

// -----

// The ends of float64: a subnormal number, the last whose hyperbolic sine is finite, a cosine next to 1.
func.func @ends() {
  %x = stablehlo.constant dense<[5.0e-324, 1.0e-310]> : tensor<2xf64>
  %0 = stablehlo.log %x : tensor<2xf64>
  %log = stablehlo.constant dense<[-744.4400719213812, -713.8013788281542]> : tensor<2xf64>
  check.expect_close %0, %log, max_ulp_difference = 2 : tensor<2xf64>, tensor<2xf64>
  %y = stablehlo.constant dense<[710.0, -710.0, 711.0]> : tensor<3xf64>
  %1 = chlo.sinh %y : tensor<3xf64> -> tensor<3xf64>
  %sinh = stablehlo.constant dense<[1.1169973830808557e308, -1.1169973830808557e308, 0x7FF0000000000000]> : tensor<3xf64>
  check.expect_close %1, %sinh, max_ulp_difference = 4 : tensor<3xf64>, tensor<3xf64>
  %2 = chlo.cosh %y : tensor<3xf64> -> tensor<3xf64>
  %cosh = stablehlo.constant dense<[1.1169973830808557e308, 1.1169973830808557e308, 0x7FF0000000000000]> : tensor<3xf64>
  check.expect_close %2, %cosh, max_ulp_difference = 4 : tensor<3xf64>, tensor<3xf64>
  %z = stablehlo.constant dense<[0.999, 1.0, -1.0]> : tensor<3xf64>
  %3 = chlo.acos %z : tensor<3xf64> -> tensor<3xf64>
  %acos = stablehlo.constant dense<[0.044725087168733454, 0.0, 3.1415926535897931]> : tensor<3xf64>
  check.expect_close %3, %acos, max_ulp_difference = 2 : tensor<3xf64>, tensor<3xf64>
  func.return
}

// -----

// Without bits of mantissa NaN is infinite.
func.func @no_mantissa() {
  %x = stablehlo.constant dense<[0x7FC00000, 0xFFC00001, 3.0, -0.0]> : tensor<4xf32>
  %0 = stablehlo.reduce_precision %x, format = e5m0 : tensor<4xf32>
  check.expect_almost_eq_const %0, dense<[0x7F800000, 0x7F800000, 2.0, -0.0]> : tensor<4xf32>
  func.return
}
