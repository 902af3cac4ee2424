// Shapes that follow from sizes and constants.

// shape by concatenation of sizes
func.func private @f(%x: tensor<?x3xf32>, %v: tensor<3xf32>) -> tensor<?x3xf32> {
  %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
  %c = stablehlo.constant dense<3> : tensor<1xi32>
  %2 = stablehlo.concatenate %1, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %3 = stablehlo.dynamic_broadcast_in_dim %v, %2, dims = [1] : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  %4 = stablehlo.add %x, %3 : tensor<?x3xf32>
  return %4 : tensor<?x3xf32>
}
func.func @main() {
  %x = stablehlo.constant dense<1.0> : tensor<2x3xf32>
  %v = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %r = call @f(%x, %v) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  check.expect_eq_const %r, dense<[[2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]> : tensor<2x3xf32>
  return
}

// -----

// arithmetic on shapes
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi32>
  %a = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %b = stablehlo.constant dense<[1, 1]> : tensor<2xi64>
  %c = stablehlo.add %a, %b : tensor<2xi64>
  %d = stablehlo.convert %c : (tensor<2xi64>) -> tensor<2xi32>
  %r = stablehlo.dynamic_reshape %x, %d : (tensor<6xi32>, tensor<2xi32>) -> tensor<?x?xi32>
  check.expect_eq_const %r, dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  return
}

// -----

// one-element arithmetic and slice
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<6xi32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %h = stablehlo.divide %n, %two : tensor<i32>
  %h1 = stablehlo.reshape %h : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.constant dense<[2, 7]> : tensor<2xi32>
  %s0 = stablehlo.slice %s [0:1] : (tensor<2xi32>) -> tensor<1xi32>
  %d = stablehlo.concatenate %s0, %h1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %r = stablehlo.dynamic_reshape %x, %d : (tensor<6xi32>, tensor<2xi32>) -> tensor<?x?xi32>
  check.expect_eq_const %r, dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %i = stablehlo.dynamic_iota %d, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>
  check.expect_eq_const %i, dense<[[0, 1, 2], [0, 1, 2]]> : tensor<2x3xi32>
  return
}

// -----

// dynamic_pad, real_dynamic_slice, dynamic_gather with computed constants
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %o = stablehlo.constant dense<1> : tensor<1xi64>
  %t = stablehlo.add %o, %o : tensor<1xi64>
  %n = stablehlo.negate %o : tensor<1xi64>
  %r = stablehlo.dynamic_pad %x, %z, %t, %n, %o : (tensor<3xi32>, tensor<i32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xi32>
  check.expect_eq_const %r, dense<[0, 0, 1, 0, 2, 0]> : tensor<6xi32>
  return
}

// -----

// set_dimension_size, then get
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %n = stablehlo.constant dense<2> : tensor<i32>
  %r = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<3xi32>, tensor<i32>) -> tensor<?xi32, #stablehlo.bounds<3>>
  %g = stablehlo.get_dimension_size %r, dim = 0 : (tensor<?xi32, #stablehlo.bounds<3>>) -> tensor<i32>
  check.expect_eq_const %g, dense<2> : tensor<i32>
  return
}

// -----

// compute_reshape_shape and others of old: dynamic_conv by computed padding
func.func @main() {
  %x = stablehlo.constant dense<[[[1.0, 2.0, 3.0]]]> : tensor<1x1x3xf32>
  %w = stablehlo.constant dense<[[[1.0, 1.0]]]> : tensor<1x1x2xf32>
  %o = stablehlo.constant dense<1> : tensor<1x2xi32>
  %p = stablehlo.convert %o : (tensor<1x2xi32>) -> tensor<1x2xi64>
  %r = "stablehlo.dynamic_conv"(%x, %w, %p) {dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<1x1x3xf32>, tensor<1x1x2xf32>, tensor<1x2xi64>) -> tensor<?x?x?xf32>
  check.expect_eq_const %r, dense<[[[1.0, 3.0, 5.0, 3.0]]]> : tensor<1x1x4xf32>
  return
}

// -----

// dynamic results of ops whose shape follows from operands
func.func private @f(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %d = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0] : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %sh = stablehlo.constant dense<[2, 2]> : tensor<2xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %s, %sh, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %c = stablehlo.concatenate %d, %b, dim = 1 : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %e = stablehlo.convert %c : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %g = stablehlo.compare GT, %e, %e : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xi1>
  %h = stablehlo.select %g, %e, %e : tensor<?x?xi1>, tensor<?x?xf32>
  return %h : tensor<?x?xf32>
}
func.func @main() {
  %x = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %r = call @f(%x) : (tensor<2x2xf32>) -> tensor<2x4xf32>
  check.expect_eq_const %r, dense<[[5.0, 11.0, 3.0, 3.0], [11.0, 25.0, 7.0, 7.0]]> : tensor<2x4xf32>
  return
}

// -----

// chlo broadcasting ops
func.func @main() {
  %x = stablehlo.constant dense<[[1], [2]]> : tensor<2x1xi32>
  %y = stablehlo.constant dense<[10, 20, 30]> : tensor<3xi32>
  %r = chlo.broadcast_add %x, %y : (tensor<2x1xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  check.expect_eq_const %r, dense<[[11, 21, 31], [12, 22, 32]]> : tensor<2x3xi32>
  %c = chlo.broadcast_compare %x, %y {comparison_direction = #chlo<comparison_direction LT>} : (tensor<2x1xi32>, tensor<3xi32>) -> tensor<2x3xi1>
  check.expect_eq_const %c, dense<true> : tensor<2x3xi1>
  %s = stablehlo.constant dense<5> : tensor<i32>
  %m = chlo.broadcast_multiply %s, %y : (tensor<i32>, tensor<3xi32>) -> tensor<3xi32>
  check.expect_eq_const %m, dense<[50, 100, 150]> : tensor<3xi32>
  %e = "chlo.broadcast_subtract"(%y, %x) {broadcast_dimensions = array<i64: 1>} : (tensor<3xi32>, tensor<2x1xi32>) -> tensor<2x3xi32>
  check.expect_eq_const %e, dense<[[9, 19, 29], [8, 18, 28]]> : tensor<2x3xi32>
  %k = chlo.constant dense<[1, 2]> : tensor<2xi32>
  %l = "chlo.constant_like"(%y) {value = 7 : i32} : (tensor<3xi32>) -> tensor<3xi32>
  check.expect_eq_const %l, dense<7> : tensor<3xi32>
  %p = stablehlo.constant dense<true> : tensor<i1>
  %q = chlo.broadcast_select %p, %x, %y : (tensor<i1>, tensor<2x1xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  check.expect_eq_const %q, dense<[[1, 1, 1], [2, 2, 2]]> : tensor<2x3xi32>
  return
}
