// Operations whose windows slide.

func.func @convolution() {
  %x = stablehlo.constant dense<[[[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]]> : tensor<1x2x3x1xf32>
  %w = stablehlo.constant dense<[[[[1.0]], [[10.0]]]]> : tensor<1x2x1x1xf32>
  %y = stablehlo.convolution(%x, %w)
    dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, f, 0, 1],
    window = {stride = [1, 2], pad = [[0, 0], [1, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
  : (tensor<1x2x3x1xf32>, tensor<1x2x1x1xf32>) -> tensor<1x1x2x2xf32>
  check.expect_eq_const %y, dense<[[[[10.0, 32.0], [40.0, 65.0]]]]> : tensor<1x1x2x2xf32>
  %z = "stablehlo.convolution"(%x, %w) <{batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, f, 0, 1]>, padding = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>, window_strides = array<i64: 1, 2>, window_reversal = array<i1: false, true>}> : (tensor<1x2x3x1xf32>, tensor<1x2x1x1xf32>) -> tensor<1x1x2x2xf32>
  check.expect_eq_const %z, dense<[[[[1.0, 23.0], [4.0, 56.0]]]]> : tensor<1x1x2x2xf32>
  func.return
}

// -----

func.func @scatter_to_largest() {
  %x = stablehlo.constant dense<[1, 5, 2, 2, -3]> : tensor<5xi32>
  %s = stablehlo.constant dense<[10, 20, 40]> : tensor<3xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %y = "stablehlo.select_and_scatter"(%x, %s, %zero) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>, padding = dense<[[1, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %p = stablehlo.compare GE, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }, {
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %t = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %t : tensor<i32>
  }) : (tensor<5xi32>, tensor<3xi32>, tensor<i32>) -> tensor<5xi32>
  check.expect_eq_const %y, dense<[10, 20, 0, 40, 0]> : tensor<5xi32>
  func.return
}
