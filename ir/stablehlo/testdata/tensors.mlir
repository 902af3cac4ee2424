// Operations that move and combine elements.

func.func private @twice(%x: tensor<2x3xi32>) -> (tensor<2x3xi32>, tensor<3x2xi32>) {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xi32>) -> tensor<3x2xi32>
  %s = stablehlo.add %x, %x : tensor<2x3xi32>
  return %s, %t : tensor<2x3xi32>, tensor<3x2xi32>
}
func.func public @main() {
  %i = stablehlo.iota dim = 1 : tensor<2x3xi32>
  %r:2 = func.call @twice(%i) : (tensor<2x3xi32>) -> (tensor<2x3xi32>, tensor<3x2xi32>)
  check.expect_eq_const %r#0, dense<[[0, 2, 4], [0, 2, 4]]> : tensor<2x3xi32>
  check.expect_eq_const %r#1, dense<[[0, 0], [1, 1], [2, 2]]> : tensor<3x2xi32>
  %flat = stablehlo.reshape %r#1 : (tensor<3x2xi32>) -> tensor<6xi32>
  %odd = stablehlo.slice %flat [1:6:2] : (tensor<6xi32>) -> tensor<3xi32>
  check.expect_eq_const %odd, dense<[0, 1, 2]> : tensor<3xi32>
  %all = stablehlo.concatenate %odd, %flat, dim = 0 : (tensor<3xi32>, tensor<6xi32>) -> tensor<9xi32>
  check.expect_eq_const %all, dense<[0, 1, 2, 0, 0, 1, 1, 2, 2]> : tensor<9xi32>
  %wide = stablehlo.broadcast_in_dim %odd, dims = [1] : (tensor<3xi32>) -> tensor<2x3xi32>
  check.expect_eq %wide, %i : tensor<2x3xi32>
  return
}

// -----

func.func @reduce() {
  %x = stablehlo.constant dense<[[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]]> : tensor<2x3xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  check.expect_almost_eq_const %sum, dense<[9.0, 12.0]> : tensor<2xf32>
  // The place of the largest: a body of two values each.
  %i = stablehlo.iota dim = 1 : tensor<2x3xi32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %m:2 = stablehlo.reduce(%x init: %low), (%i init: %none) across dimensions = [1] : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%j: tensor<i32>, %k: tensor<i32>) {
    %p = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %v = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
    %w = stablehlo.select %p, %j, %k : tensor<i1>, tensor<i32>
    stablehlo.return %v, %w : tensor<f32>, tensor<i32>
  }
  check.expect_eq_const %m#0, dense<[5.0, 6.0]> : tensor<2xf32>
  check.expect_eq_const %m#1, dense<[1, 2]> : tensor<2xi32>
  func.return
}

// -----

func.func @dot() {
  %a = stablehlo.iota dim = 0 : tensor<4x2xi64>
  %b = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi64>
  %ab = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x2xi64>, tensor<2x3xi64>) -> tensor<4x3xi64>
  check.expect_eq_const %ab, dense<[[0, 0, 0], [5, 7, 9], [10, 14, 18], [15, 21, 27]]> : tensor<4x3xi64>
  %bb = "stablehlo.dot_general"(%b, %b) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [1], rhs_batching_dimensions = [1], lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<3xi64>
  check.expect_eq_const %bb, dense<[17, 29, 45]> : tensor<3xi64>
  func.return
}

// -----

func.func @places() {
  %x = stablehlo.iota dim = 0 : tensor<4xi32>
  %at = stablehlo.constant dense<[[3], [1], [1]]> : tensor<3x1xi64>
  %g = "stablehlo.gather"(%x, %at) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<4xi32>, tensor<3x1xi64>) -> tensor<3xi32>
  check.expect_eq_const %g, dense<[3, 1, 1]> : tensor<3xi32>
  %s = "stablehlo.scatter"(%x, %at, %g) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<i32>, %new: tensor<i32>):
    %sum = stablehlo.add %old, %new : tensor<i32>
    stablehlo.return %sum : tensor<i32>
  }) : (tensor<4xi32>, tensor<3x1xi64>, tensor<3xi32>) -> tensor<4xi32>
  check.expect_eq_const %s, dense<[0, 3, 2, 6]> : tensor<4xi32>
  %o:2 = "stablehlo.sort"(%s, %x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
    %p = stablehlo.compare GT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<4xi32>, tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>)
  check.expect_eq_const %o#0, dense<[6, 3, 2, 0]> : tensor<4xi32>
  check.expect_eq_const %o#1, dense<[3, 1, 2, 0]> : tensor<4xi32>
  func.return
}
