// Spellings that few programs have.

func.func @spellings() {
  %a = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
  %b = stablehlo.constant dense<[10, 20]> : tensor<2xi32>
  %c = chlo.broadcast_add %a, %b {broadcast_dimensions = array<i64: 0>} : (tensor<2x2xi32>, tensor<2xi32>) -> tensor<2x2xi32>
  check.expect_eq_const %c, dense<[[11, 12], [23, 24]]> : tensor<2x2xi32>
  %d = chlo.broadcast_multiply %b, %a : (tensor<2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
  check.expect_eq_const %d, dense<[[10, 40], [30, 80]]> : tensor<2x2xi32>
  %e = stablehlo.dot %a, %b : (tensor<2x2xi32>, tensor<2xi32>) -> tensor<2xi32>
  check.expect_eq_const %e, dense<[50, 110]> : tensor<2xi32>
  %f = "stablehlo.broadcast"(%b) <{broadcast_sizes = array<i64: 2>}> : (tensor<2xi32>) -> tensor<2x2xi32>
  check.expect_eq_const %f, dense<[[10, 20], [10, 20]]> : tensor<2x2xi32>
  %g = "chlo.constant_like"(%b) <{value = 7 : i32}> : (tensor<2xi32>) -> tensor<2xi32>
  check.expect_eq_const %g, dense<7> : tensor<2xi32>
  %shape = stablehlo.constant dense<[4]> : tensor<1xi64>
  %h = stablehlo.dynamic_reshape %a, %shape : (tensor<2x2xi32>, tensor<1xi64>) -> tensor<?xi32>
  check.expect_eq_const %h, dense<[1, 2, 3, 4]> : tensor<4xi32>
  func.return
}

// -----

// Operations that concert has and StableHLO has not.
func.func @concert() {
  %x = stablehlo.constant dense<[[0.0, 0.693147182], [1000.0, 1000.0]]> : tensor<2x2xf32>
  %s = stablehlo.custom_call @concert.softmax(%x) {dim = 1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_almost_eq_const %s, dense<[[0.333333333, 0.666666667], [0.5, 0.5]]> : tensor<2x2xf32>, tolerance = 1.0e-6
  %y = stablehlo.constant dense<[0.0, 1.0, -1.0]> : tensor<3xf32>
  %g = stablehlo.custom_call @concert.gelu(%y) {approximate = false} : (tensor<3xf32>) -> tensor<3xf32>
  check.expect_almost_eq_const %g, dense<[0.0, 0.841344746, -0.158655254]> : tensor<3xf32>, tolerance = 1.0e-6
  %t = stablehlo.custom_call @concert.gelu(%y) {approximate = true} : (tensor<3xf32>) -> tensor<3xf32>
  check.expect_almost_eq_const %t, dense<[0.0, 0.841191991, -0.158808009]> : tensor<3xf32>, tolerance = 1.0e-6
  func.return
}

// -----

// The generic form throughout, with locations.
"builtin.module"() ({
  "func.func"() <{function_type = () -> tensor<2xf32>, sym_name = "main", sym_visibility = "public"}> ({
    %0 = "stablehlo.constant"() <{value = dense<[1.0, 2.0]> : tensor<2xf32>}> : () -> tensor<2xf32> loc(#loc1)
    %1 = "stablehlo.add"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("model.py":3:7)
    "check.expect_eq_const"(%1) <{value = dense<[2.0, 4.0]> : tensor<2xf32>}> : (tensor<2xf32>) -> () loc(#loc1)
    "func.return"(%1) : (tensor<2xf32>) -> () loc(unknown)
  }) : () -> () loc(#loc1)
}) : () -> () loc(#loc1)
#loc1 = loc("model.py":2:1)

// -----

func.func @set_dimension_size() {
  %operand = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi64>
  %size = stablehlo.constant dense<3> : tensor<i32>
  %result = stablehlo.set_dimension_size %operand, %size, dim = 1 : (tensor<2x3xi64>, tensor<i32>) -> tensor<2x3xi64>
  check.expect_eq_const %result, dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi64>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %less = stablehlo.set_dimension_size %operand, %two, dim = 1 : (tensor<2x3xi64>, tensor<i32>) -> tensor<2x?xi64, #stablehlo.bounds<?, 3>>
  %twice = stablehlo.add %less, %less : tensor<2x?xi64, #stablehlo.bounds<?, 3>>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %sum = stablehlo.reduce(%twice init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2x?xi64, #stablehlo.bounds<?, 3>>, tensor<i64>) -> tensor<2xi64>
  check.expect_eq_const %sum, dense<[6, 18]> : tensor<2xi64>
  %left = stablehlo.get_dimension_size %twice, dim = 1 : (tensor<2x?xi64, #stablehlo.bounds<?, 3>>) -> tensor<i32>
  check.expect_eq_const %left, dense<2> : tensor<i32>
  func.return
}
