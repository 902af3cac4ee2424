// Constants and casts of the dialects in which compilers put StableHLO mean no more than that, and
// sizes that types leave open are those of the constants.
func.func @unfolded() {
  %x = util.unfoldable_constant dense<[1.0, 2.0]> : tensor<2xf32>
  %y = util.unfoldable_constant
    dense<[3.0, 5.0]> : tensor<2xf32>
  %c = arith.constant dense<0.5> : tensor<2xf32>
  %0 = stablehlo.add %x, %y : tensor<2xf32>
  %1 = stablehlo.multiply %0, %c : tensor<2xf32>
  %2 = util.optimization_barrier %1 : tensor<2xf32>
  check.expect_almost_eq_const(%2, dense<[2.0, 3.5]> : tensor<2xf32>) : tensor<2xf32>
  return
}

// -----

func.func @open() {
  %x = flow.tensor.dynamic_constant dense<[[1, -2, 3], [-4, 5, -6]]> : tensor<2x3xi32> -> tensor<?x?xi32>
  %i = flow.tensor.dynamic_constant
    dense<[1, 1]> : tensor<2xi32> -> tensor<?xi32>
  %0 = stablehlo.abs %x : tensor<?x?xi32>
  %1 = "stablehlo.torch_index_select"(%0, %i) {batch_dims = 0 : i64, dim = 0 : i64} : (tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32>
  %2 = tensor.cast %1 : tensor<?x?xi32> to tensor<2x3xi32>
  check.expect_eq_const(%2, dense<[[4, 5, 6], [4, 5, 6]]> : tensor<2x3xi32>) : tensor<2x3xi32>
  return
}

// -----

// The last field of a structure may end in a comma.
func.func @comma() {
  %x = stablehlo.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %0 = "stablehlo.dot_general"(%x, %x) {
    dot_dimension_numbers = #stablehlo.dot<
      lhs_contracting_dimensions = [1],
      rhs_contracting_dimensions = [1],
    >
  } : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  check.expect_almost_eq_const %0, dense<5.0> : tensor<1x1xf32>
  return
}

// -----

module {
// ---------------------------------------------------------------------------
  // A longer line is a ruler, and no end of the module.
// ---------------------------------------------------------------------------
  func.func @ruled() {
    %x = stablehlo.constant dense<1> : tensor<i32>
    check.expect_eq_const %x, dense<1> : tensor<i32>
    return
  }
}

// -----

func.func @tolerances() {
  %x = util.unfoldable_constant dense<[1.0, 200.0]> : tensor<2xf32>
  %y = util.unfoldable_constant dense<[1.01, 201.0]> : tensor<2xf32>
  check.expect_almost_eq(%x, %y, atol 1.0e-02, rtol 0.01) : tensor<2xf32>
  check.expect_almost_eq_const(%x, dense<[1.5, 200.5]> : tensor<2xf32>, atol 0.6) : tensor<2xf32>
  %p = stablehlo.compare LT, %x, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
  check.expect_all_true(%p) : tensor<2xi1>
  %n = stablehlo.constant dense<[-1, 2]> : tensor<2xi32>
  check.expect_all_true(%n) : tensor<2xi32>
  return
}
