// Operations that are decomposed.

func.func @bits() {
  %x = stablehlo.constant dense<[1.0, -0.0]> : tensor<2xf32>
  %b = stablehlo.bitcast_convert %x : (tensor<2xf32>) -> tensor<2xui32>
  check.expect_eq_const %b, dense<[0x3F800000, 0x80000000]> : tensor<2xui32>
  %n = stablehlo.popcnt %b : tensor<2xui32>
  check.expect_eq_const %n, dense<[7, 1]> : tensor<2xui32>
  %z = "stablehlo.count_leading_zeros"(%b) : (tensor<2xui32>) -> tensor<2xui32>
  check.expect_eq_const %z, dense<[2, 0]> : tensor<2xui32>
  %y = stablehlo.constant dense<[2.0, 1.0]> : tensor<2xf32>
  %m = chlo.next_after %y, %x : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  check.expect_eq_const %m, dense<[1.9999999, 0.99999994]> : tensor<2xf32>
  %h = chlo.mulhi %b, %b : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
  check.expect_eq_const %h, dense<[264257536, 1073741824]> : tensor<2xui32>
  %p = stablehlo.reduce_precision %m, format = e8m7 : tensor<2xf32>
  check.expect_eq_const %p, dense<[2.0, 1.0]> : tensor<2xf32>
  %less = stablehlo.compare LT, %x, %m, TOTALORDER : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
  check.expect_eq_const %less, dense<true> : tensor<2xi1>
  func.return
}

// -----

func.func @shapes() {
  %x = stablehlo.iota dim = 0 : tensor<4xi32>
  %zero = stablehlo.constant dense<-1> : tensor<i32>
  %p = stablehlo.pad %x, %zero, low = [1], high = [-1], interior = [1] : (tensor<4xi32>, tensor<i32>) -> tensor<7xi32>
  check.expect_eq_const %p, dense<[-1, 0, -1, 1, -1, 2, -1]> : tensor<7xi32>
  %r = stablehlo.reverse %x, dims = [0] : tensor<4xi32>
  %values, %at = chlo.top_k(%r, k = 2) : tensor<4xi32> -> (tensor<2xi32>, tensor<2xi32>)
  check.expect_eq_const %values, dense<[3, 2]> : tensor<2xi32>
  check.expect_eq_const %at, dense<[0, 1]> : tensor<2xi32>
  %least:2 = stablehlo.custom_call @mhlo.topk(%r) {mhlo.attributes = {k = 2 : i64, largest = false}, mhlo.version = 1 : i64} : (tensor<4xi32>) -> (tensor<2xi32>, tensor<2xi32>)
  check.expect_eq_const %least#0, dense<[0, 1]> : tensor<2xi32>
  check.expect_eq_const %least#1, dense<[3, 2]> : tensor<2xi32>
  %i = stablehlo.constant dense<3> : tensor<i64>
  %d = stablehlo.dynamic_slice %x, %i, sizes = [2] : (tensor<4xi32>, tensor<i64>) -> tensor<2xi32>
  check.expect_eq_const %d, dense<[2, 3]> : tensor<2xi32>
  %u = stablehlo.dynamic_update_slice %x, %values, %i : (tensor<4xi32>, tensor<2xi32>, tensor<i64>) -> tensor<4xi32>
  check.expect_eq_const %u, dense<[0, 1, 3, 2]> : tensor<4xi32>
  %shape = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
  %w = stablehlo.dynamic_iota %shape, dim = 1 : (tensor<2xi64>) -> tensor<2x?xi32>
  %s = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %0 = stablehlo.maximum %a, %b : tensor<i32>
    stablehlo.return %0 : tensor<i32>
  }) : (tensor<4xi32>, tensor<i32>) -> tensor<2xi32>
  check.expect_eq_const %s, dense<[1, 3]> : tensor<2xi32>
  func.return
}

// -----

// Rows of groups, the last of which stands in none; columns of the other side in two dimensions.
func.func @ragged_rows() {
  %a = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>
  %b = stablehlo.constant dense<[[[[1.0, 0.0]], [[1.0, 1.0]]], [[[2.0, 1.0]], [[2.0, 0.0]]]]> : tensor<2x2x1x2xf32>
  %sizes = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %r = "chlo.ragged_dot"(%a, %b, %sizes) <{precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>], ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<4x2xf32>, tensor<2x2x1x2xf32>, tensor<2xi32>) -> tensor<4x1x2xf32>
  check.expect_eq_const %r, dense<[[[3.0, 2.0]], [[14.0, 3.0]], [[22.0, 5.0]], [[0.0, 0.0]]]> : tensor<4x1x2xf32>
  func.return
}

// -----

func.func @ragged_sums() {
  %a = stablehlo.constant dense<[[1.0, 2.0, 3.0, 4.0]]> : tensor<1x4xf32>
  %b = stablehlo.constant dense<[[1.0], [10.0], [100.0], [1000.0]]> : tensor<4x1xf32>
  %sizes = stablehlo.constant dense<[1, 0, 2]> : tensor<3xi32>
  %r = "chlo.ragged_dot"(%a, %b, %sizes) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], lhs_ragged_dimensions = [1]>}> : (tensor<1x4xf32>, tensor<4x1xf32>, tensor<3xi32>) -> tensor<3x1x1xf32>
  check.expect_eq_const %r, dense<[[[1.0]], [[0.0]], [[320.0]]]> : tensor<3x1x1xf32>
  func.return
}

// -----

// Two batches, each with groups of its own; the last row of each stands in none.
func.func @ragged_rows_of_batches() {
  %a = stablehlo.constant dense<[[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0], [9.0, 10.0], [0x7F800000, 1.0]]]> : tensor<2x3x2xf32>
  %b = stablehlo.constant dense<[[[[1.0], [0.0]], [[0.0], [1.0]]], [[[1.0], [1.0]], [[2.0], [1.0]]]]> : tensor<2x2x2x1xf32>
  %sizes = stablehlo.constant dense<[[2, 0], [1, 1]]> : tensor<2x2xi64>
  %r = "chlo.ragged_dot"(%a, %b, %sizes) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [1], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2], lhs_ragged_dimensions = [1], rhs_group_dimensions = [0]>}> : (tensor<2x3x2xf32>, tensor<2x2x2x1xf32>, tensor<2x2xi64>) -> tensor<2x3x1xf32>
  check.expect_eq_const %r, dense<[[[1.0], [3.0], [0.0]], [[8.0], [28.0], [0.0]]]> : tensor<2x3x1xf32>
  func.return
}

// -----

// Sums of two batches by the same groups.
func.func @ragged_sums_of_batches() {
  %a = stablehlo.constant dense<[[[1.0, 2.0, 3.0, 4.0]], [[5.0, 6.0, 7.0, 8.0]]]> : tensor<2x1x4xf32>
  %b = stablehlo.constant dense<[[[1.0], [10.0], [100.0], [1000.0]], [[1.0], [1.0], [2.0], [3.0]]]> : tensor<2x4x1xf32>
  %sizes = stablehlo.constant dense<[1, 0, 2]> : tensor<3xi32>
  %r = "chlo.ragged_dot"(%a, %b, %sizes) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [2]>}> : (tensor<2x1x4xf32>, tensor<2x4x1xf32>, tensor<3xi32>) -> tensor<3x2x1x1xf32>
  check.expect_eq_const %r, dense<[[[[1.0]], [[5.0]]], [[[0.0]], [[0.0]]], [[[320.0]], [[20.0]]]]> : tensor<3x2x1x1xf32>
  func.return
}

// -----

// Batches in groups are batches.
func.func @ragged_batches() {
  %a = stablehlo.constant dense<[[[1.0, 2.0]], [[3.0, 4.0]]]> : tensor<2x1x2xf32>
  %b = stablehlo.constant dense<[[[1.0], [10.0]], [[1.0], [1.0]]]> : tensor<2x2x1xf32>
  %sizes = stablehlo.constant dense<[1, 1]> : tensor<2xi32>
  %r = "chlo.ragged_dot"(%a, %b, %sizes) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0]>}> : (tensor<2x1x2xf32>, tensor<2x2x1xf32>, tensor<2xi32>) -> tensor<2x1x1xf32>
  check.expect_eq_const %r, dense<[[[21.0]], [[7.0]]]> : tensor<2x1x1xf32>
  func.return
}

// -----

func.func @broadcast_function() {
  %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = stablehlo.constant dense<0.0> : tensor<f32>
  %r = chlo.broadcast_next_after %a, %b : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  check.expect_eq_const %r, dense<[0x3F7FFFFF, 0x3FFFFFFF]> : tensor<2xf32>
  func.return
}

// -----

// Constants whose data stand behind the module.
module {
  func.func @resources() {
    %x = stablehlo.constant dense_resource<blob> : tensor<2xf32>
    check.expect_eq_const %x, dense<[1.0, 2.0]> : tensor<2xf32>
    %y = stablehlo.constant dense_resource<"other blob"> : tensor<3xi1>
    check.expect_eq_const %y, dense<[true, false, true]> : tensor<3xi1>
    func.return
  }
}

{-#
  dialect_resources: {
    builtin: {
      blob: "0x040000000000803F00000040",
      "other blob": "0x01000000010001"
    }
  },
  external_resources: {
    mlir_reproducer: {
      verify_each: true
    }
  }
#-}
