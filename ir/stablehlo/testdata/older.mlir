// Operations that older programs have, and those of newer ones.

func.func @scanned() {
  %x = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %c = stablehlo.constant dense<[0, 10]> : tensor<2xi32>
  %r:2 = chlo.scan(%x) inits(%c) dimension=1 {
  ^bb0(%a: tensor<2xi32>, %b: tensor<2xi32>):
    %s = stablehlo.add %a, %b : tensor<2xi32>
    stablehlo.return %s, %s : tensor<2xi32>, tensor<2xi32>
  } : (tensor<2x3xi32>, tensor<2xi32>) -> (tensor<2x3xi32>, tensor<2xi32>)
  check.expect_eq_const %r#0, dense<[[1,3,6],[14,19,25]]> : tensor<2x3xi32>
  check.expect_eq_const %r#1, dense<[6, 25]> : tensor<2xi32>
  %q:2 = chlo.scan (%x) inits (%c) dimension = 1 {is_reverse = true} {
  ^bb0(%a: tensor<2xi32>, %b: tensor<2xi32>):
    %s = stablehlo.add %a, %b : tensor<2xi32>
    stablehlo.return %b, %s : tensor<2xi32>, tensor<2xi32>
  } : (tensor<2x3xi32>, tensor<2xi32>) -> (tensor<2x3xi32>, tensor<2xi32>)
  check.expect_eq_const %q#0, dense<[[5,3,0],[21,16,10]]> : tensor<2x3xi32>
  check.expect_eq_const %q#1, dense<[6, 25]> : tensor<2xi32>
  %g:2 = "chlo.scan"(%x, %c) <{dimension = 1 : i64, is_associative = true, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<2xi32>, %b: tensor<2xi32>):
    %s = stablehlo.maximum %a, %b : tensor<2xi32>
    stablehlo.return %s, %s : tensor<2xi32>, tensor<2xi32>
  }) : (tensor<2x3xi32>, tensor<2xi32>) -> (tensor<2x3xi32>, tensor<2xi32>)
  check.expect_eq_const %g#0, dense<[[1,2,3],[10,10,10]]> : tensor<2x3xi32>
  %n = "chlo.scan"(%c) <{dimension = 0 : i64, scan_dim_size = 3 : i64, operandSegmentSizes = array<i32: 0, 1>, resultSegmentSizes = array<i32: 0, 1>}> ({
  ^bb0(%b: tensor<2xi32>):
    %s = stablehlo.add %b, %b : tensor<2xi32>
    stablehlo.return %s : tensor<2xi32>
  }) : (tensor<2xi32>) -> tensor<2xi32>
  check.expect_eq_const %n, dense<[0, 80]> : tensor<2xi32>
  func.return
}

// -----

func.func @slices() {
  %x = stablehlo.constant dense<[[1, 2], [4, 5]]> : tensor<2x2xi32>
  %y = stablehlo.constant dense<[1.5, 2.5]> : tensor<2xf32>
  %r:2 = chlo.scan(%x, %y) inits() dimension=0 {
  ^bb0(%a: tensor<2xi32>, %b: tensor<f32>):
    stablehlo.return %b, %a : tensor<f32>, tensor<2xi32>
  } : (tensor<2x2xi32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2x2xi32>)
  check.expect_eq_const %r#0, dense<[1.5, 2.5]> : tensor<2xf32>
  check.expect_eq_const %r#1, dense<[[1, 2], [4, 5]]> : tensor<2x2xi32>
  func.return
}

// -----

func.func @einsums() {
  %x = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %y = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi32>
  %a = "stablehlo.unary_einsum"(%x) <{einsum_config = "ab->ba"}> : (tensor<2x3xi32>) -> tensor<3x2xi32>
  check.expect_eq_const %a, dense<[[1,4],[2,5],[3,6]]> : tensor<3x2xi32>
  %b = stablehlo.unary_einsum %x, config = "ab->" : (tensor<2x3xi32>) -> tensor<i32>
  check.expect_eq_const %b, dense<21> : tensor<i32>
  %c = stablehlo.einsum %x, %y, config = "ab,ca->bc" : (tensor<2x3xi32>, tensor<2x2xi32>) -> tensor<3x2xi32>
  check.expect_eq_const %c, dense<[[1,4],[2,5],[3,6]]> : tensor<3x2xi32>
  %d = "stablehlo.einsum"(%x, %y) <{einsum_config = "ab,cd->acb"}> : (tensor<2x3xi32>, tensor<2x2xi32>) -> tensor<2x2x3xi32>
  check.expect_eq_const %d, dense<[[[1,2,3],[1,2,3]],[[4,5,6],[4,5,6]]]> : tensor<2x2x3xi32>
  %e = "stablehlo.einsum"(%x, %x) <{einsum_config = "ab,ab->a"}> : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2xi32>
  check.expect_eq_const %e, dense<[14, 77]> : tensor<2xi32>
  func.return
}

// -----

func.func @selects() {
  %x = stablehlo.constant dense<[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]> : tensor<2x2x2xi32>
  %i = stablehlo.constant dense<[[1, 0, 9], [0, 0, 1]]> : tensor<2x3xi64>
  %r = "stablehlo.torch_index_select"(%x, %i) <{dim = 1 : i64, batch_dims = 1 : i64}> : (tensor<2x2x2xi32>, tensor<2x3xi64>) -> tensor<2x3x2xi32>
  check.expect_eq_const %r, dense<[[[3,4],[1,2],[3,4]],[[5,6],[5,6],[7,8]]]> : tensor<2x3x2xi32>
  %q = "stablehlo.torch_index_select"(%x, %i) <{dim = 2 : i64, batch_dims = 0 : i64}> : (tensor<2x2x2xi32>, tensor<2x3xi64>) -> tensor<2x2x2x3xi32>
  check.expect_eq_const %q, dense<[[[[2,1,2],[1,1,2]],[[4,3,4],[3,3,4]]],[[[6,5,6],[5,5,6]],[[8,7,8],[7,7,8]]]]> : tensor<2x2x2x3xi32>
  func.return
}

// -----

func.func @shaped() {
  %x = stablehlo.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi32>
  %s = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
  %0 = chlo.dynamic_reshape %x, %s : (tensor<6xi32>, tensor<2xi64>) -> tensor<2x3xi32>
  check.expect_eq_const %0, dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  func.return
}

// -----

func.func @smallest() {
  %x = stablehlo.constant dense<[3.0, 0x7FC00000, 5.0, 5.0, -0.0]> : tensor<5xf32>
  %0, %1 = chlo.top_k(%x, k = 2) {largest = false} : tensor<5xf32> -> (tensor<2xf32>, tensor<2xi32>)
  check.expect_eq_const %0, dense<[-0.0, 3.0]> : tensor<2xf32>
  check.expect_eq_const %1, dense<[4, 0]> : tensor<2xi32>
  %2, %3 = "chlo.top_k"(%x) <{k = 2 : i64, largest = true}> : (tensor<5xf32>) -> (tensor<2xf32>, tensor<2xi32>)
  check.expect_eq_const %3, dense<[1, 2]> : tensor<2xi32>
  func.return
}
