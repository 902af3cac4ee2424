// Regions that read what stands around them, that compute in wider types, and names of types.

// Bodies read a constant and a computed number from outside.
func.func private @f(%x: tensor<5xi32>, %two: tensor<i32>, %f: tensor<5xf32>) -> (tensor<i32>, tensor<4xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xf32>) {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %four = stablehlo.add %two, %two : tensor<i32>
  %r = stablehlo.reduce(%x init: %z) across dimensions = [0] : (tensor<5xi32>, tensor<i32>) -> tensor<i32>
   reducer(%a: tensor<i32>, %b: tensor<i32>) {
     %s = stablehlo.xor %b, %a : tensor<i32>
     %t = stablehlo.and %four, %s : tensor<i32>
     stablehlo.return %t : tensor<i32>
   }
  %w = "stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 2>}> ({
   ^bb0(%a: tensor<i32>, %b: tensor<i32>):
     %s = stablehlo.maximum %b, %a : tensor<i32>
     %t = stablehlo.maximum %two, %s : tensor<i32>
     stablehlo.return %t : tensor<i32>
  }) : (tensor<5xi32>, tensor<i32>) -> tensor<4xi32>
  %so = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
   ^bb0(%a: tensor<i32>, %b: tensor<i32>):
     %s = stablehlo.remainder %a, %four : tensor<i32>
     %t = stablehlo.remainder %b, %four : tensor<i32>
     %c = stablehlo.compare LT, %s, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>
     stablehlo.return %c : tensor<i1>
  }) : (tensor<5xi32>) -> tensor<5xi32>
  %i = stablehlo.constant dense<[[1], [1], [4]]> : tensor<3x1xi64>
  %u = stablehlo.constant dense<[10, 20, 30]> : tensor<3xi32>
  %sc = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
   ^bb0(%a: tensor<i32>, %b: tensor<i32>):
     %s = stablehlo.multiply %a, %two : tensor<i32>
     %t = stablehlo.add %s, %b : tensor<i32>
     stablehlo.return %t : tensor<i32>
  }) : (tensor<5xi32>, tensor<3x1xi64>, tensor<3xi32>) -> tensor<5xi32>
  %sf = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
   ^bb0(%a: tensor<i32>, %b: tensor<i32>):
     stablehlo.return %four : tensor<i32>
  }) : (tensor<5xi32>, tensor<3x1xi64>, tensor<3xi32>) -> tensor<5xi32>
  %m = "stablehlo.map"(%x) ({
   ^bb0(%a: tensor<i32>):
     %s = stablehlo.multiply %a, %four : tensor<i32>
     stablehlo.return %s : tensor<i32>
  }) {dimensions = array<i64: 0>} : (tensor<5xi32>) -> tensor<5xi32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %src = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %fz = stablehlo.constant dense<0.0> : tensor<f32>
  %ss = "stablehlo.select_and_scatter"(%f, %src, %fz) <{window_dimensions = array<i64: 2>}> ({
   ^bb0(%a: tensor<f32>, %b: tensor<f32>):
     %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
     stablehlo.return %c : tensor<i1>
  }, {
   ^bb0(%a: tensor<f32>, %b: tensor<f32>):
     %s = stablehlo.multiply %b, %half : tensor<f32>
     %t = stablehlo.add %a, %s : tensor<f32>
     stablehlo.return %t : tensor<f32>
  }) : (tensor<5xf32>, tensor<4xf32>, tensor<f32>) -> tensor<5xf32>
  return %r, %w, %so, %sc, %sf, %m, %ss : tensor<i32>, tensor<4xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xf32>
}
func.func @main() {
  %x = stablehlo.constant dense<[7, 2, 0, 1, 4]> : tensor<5xi32>
  %f = stablehlo.constant dense<[1.0, 5.0, 3.0, 2.0, 4.0]> : tensor<5xf32>
  %twoq = stablehlo.constant dense<[3, 2]> : tensor<2xi32>
  %twop = stablehlo.slice %twoq [1:2] : (tensor<2xi32>) -> tensor<1xi32>
  %two = stablehlo.reshape %twop : (tensor<1xi32>) -> tensor<i32>
  %r:7 = call @f(%x, %two, %f) : (tensor<5xi32>, tensor<i32>, tensor<5xf32>) -> (tensor<i32>, tensor<4xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xf32>)
  check.expect_eq_const %r#0, dense<0> : tensor<i32>
  check.expect_eq_const %r#1, dense<[7, 2, 2, 4]> : tensor<4xi32>
  check.expect_eq_const %r#2, dense<[0, 4, 1, 2, 7]> : tensor<5xi32>
  check.expect_eq_const %r#3, dense<[7, 48, 0, 1, 38]> : tensor<5xi32>
  check.expect_eq_const %r#4, dense<[7, 4, 0, 1, 4]> : tensor<5xi32>
  check.expect_eq_const %r#5, dense<[28, 8, 0, 4, 16]> : tensor<5xi32>
  check.expect_eq_const %r#6, dense<[0.0, 1.5, 1.5, 0.0, 2.0]> : tensor<5xf32>
  return
}

// -----

// They do so inside of a loop, which captures them.
func.func private @f(%x: tensor<3xi32>, %n: tensor<i32>) -> (tensor<i32>, tensor<3xi32>) {
  %k = stablehlo.add %n, %n : tensor<i32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %z, %y = %x) : tensor<i32>, tensor<3xi32>
   cond {
     %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
     stablehlo.return %c : tensor<i1>
   } do {
     %one = stablehlo.constant dense<1> : tensor<i32>
     %j = stablehlo.add %i, %one : tensor<i32>
     %s = stablehlo.reduce(%y init: %z) across dimensions = [0] : (tensor<3xi32>, tensor<i32>) -> tensor<i32>
       reducer(%a: tensor<i32>, %b: tensor<i32>) {
         %p = stablehlo.multiply %b, %k : tensor<i32>
         %q = stablehlo.maximum %a, %p : tensor<i32>
         stablehlo.return %q : tensor<i32>
       }
     %t = "stablehlo.map"(%y) ({
       ^bb0(%a: tensor<i32>):
         %p = stablehlo.minimum %a, %s : tensor<i32>
         %q = stablehlo.add %p, %j : tensor<i32>
         stablehlo.return %q : tensor<i32>
     }) {dimensions = array<i64: 0>} : (tensor<3xi32>) -> tensor<3xi32>
     stablehlo.return %j, %t : tensor<i32>, tensor<3xi32>
   }
  return %r#0, %r#1 : tensor<i32>, tensor<3xi32>
}
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %twoq = stablehlo.constant dense<[3, 2]> : tensor<2xi32>
  %twop = stablehlo.slice %twoq [1:2] : (tensor<2xi32>) -> tensor<1xi32>
  %n = stablehlo.reshape %twop : (tensor<1xi32>) -> tensor<i32>
  %r:2 = call @f(%x, %n) : (tensor<3xi32>, tensor<i32>) -> (tensor<i32>, tensor<3xi32>)
  check.expect_eq_const %r#0, dense<2> : tensor<i32>
  check.expect_eq_const %r#1, dense<[4, 5, 6]> : tensor<3xi32>
  return
}

// -----

// A name stands for the type of a tensor.
!t = tensor<2xf32>
func.func @main() {
  %x = stablehlo.constant dense<[1.0, 2.0]> : !t
  %y = stablehlo.add %x, %x : !t
  %z = "stablehlo.negate"(%y) : (!t) -> !t
  check.expect_eq_const %z, dense<[-2.0, -4.0]> : tensor<2xf32>
  return
}

// -----

// A reduction in a wider type.
func.func @main() {
  %x = stablehlo.constant dense<[[3.0e+38, 3.0e+38], [1.0, 2.0]]> : tensor<2x2xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce"(%x, %z) ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %1 = stablehlo.add %a, %b : tensor<f64>
    stablehlo.return %1 : tensor<f64>
  }) {dimensions = array<i64: 1>} : (tensor<2x2xf32>, tensor<f32>) -> tensor<2xf64>
  check.expect_almost_eq_const %r, dense<[6.0000000109955115E+38, 3.0]> : tensor<2xf64>
  return
}

// -----

// So are sums of windows.
func.func @main() {
  %x = stablehlo.constant dense<[100, 100, 27]> : tensor<3xi8>
  %z = stablehlo.constant dense<0> : tensor<i8>
  %r = "stablehlo.reduce_window"(%x, %z) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }) {window_dimensions = array<i64: 2>} : (tensor<3xi8>, tensor<i8>) -> tensor<2xi32>
  check.expect_eq_const %r, dense<[200, 127]> : tensor<2xi32>
  return
}

// -----

// A scatter.
func.func @main() {
  %x = stablehlo.constant dense<[100, 100, 27]> : tensor<3xi8>
  %i = stablehlo.constant dense<[[1]]> : tensor<1x1xi32>
  %u = stablehlo.constant dense<[100]> : tensor<1xi8>
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i16>, %b: tensor<i16>):
    %1 = stablehlo.add %a, %b : tensor<i16>
    stablehlo.return %1 : tensor<i16>
  }) : (tensor<3xi8>, tensor<1x1xi32>, tensor<1xi8>) -> tensor<3xi16>
  check.expect_eq_const %r, dense<[100, 200, 27]> : tensor<3xi16>
  return
}

// -----

// An all_reduce.
func.func @f(%x: tensor<2xi8>) -> tensor<2xi32> {
  %r = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi8>) -> tensor<2xi32>
  return %r : tensor<2xi32>
}
func.func @main() {
  %x = stablehlo.constant dense<[100, 1]> : tensor<2xi8>
  %r:2 = "interpreter.run_parallel"(%x, %x) {programs = [[@f], [@f]]} : (tensor<2xi8>, tensor<2xi8>) -> (tensor<2xi32>, tensor<2xi32>)
  check.expect_eq_const %r#0, dense<[200, 2]> : tensor<2xi32>
  return
}

// -----

// A select_and_scatter.
func.func @main() {
  %x = stablehlo.constant dense<[1.0, 5.0, 3.0]> : tensor<3xf32>
  %s = stablehlo.constant dense<[3.0e+38, 3.0e+38]> : tensor<2xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.select_and_scatter"(%x, %s, %z) <{window_dimensions = array<i64: 2>}> ({
   ^bb0(%a: tensor<f32>, %b: tensor<f32>):
     %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
     stablehlo.return %c : tensor<i1>
  }, {
   ^bb0(%a: tensor<f64>, %b: tensor<f64>):
     %t = stablehlo.add %a, %b : tensor<f64>
     stablehlo.return %t : tensor<f64>
  }) : (tensor<3xf32>, tensor<2xf32>, tensor<f32>) -> tensor<3xf64>
  check.expect_almost_eq_const %r, dense<[0.0, 6.0000000109955115E+38, 0.0]> : tensor<3xf64>
  return
}

// -----

// A reduce_scatter.
func.func @f(%x: tensor<2xi8>) -> tensor<1xi32> {
  %r = "stablehlo.reduce_scatter"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi8>) -> tensor<1xi32>
  return %r : tensor<1xi32>
}
func.func @main() {
  %x = stablehlo.constant dense<[100, 1]> : tensor<2xi8>
  %r:2 = "interpreter.run_parallel"(%x, %x) {programs = [[@f], [@f]]} : (tensor<2xi8>, tensor<2xi8>) -> (tensor<1xi32>, tensor<1xi32>)
  check.expect_eq_const %r#0, dense<[200]> : tensor<1xi32>
  check.expect_eq_const %r#1, dense<[2]> : tensor<1xi32>
  return
}

// -----

// Updates that overlap join by what is there and a function of the update, however many there are.
func.func @separated() {
  %zero = stablehlo.constant dense<0> : tensor<4xi32>
  %i = stablehlo.iota dim = 0 : tensor<2000xi32>
  %four = stablehlo.constant dense<4> : tensor<2000xi32>
  %at = stablehlo.remainder %i, %four : tensor<2000xi32>
  %at.1 = stablehlo.reshape %at : (tensor<2000xi32>) -> tensor<2000x1xi32>
  %less = "stablehlo.scatter"(%zero, %at.1, %i) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %r = stablehlo.subtract %a, %b : tensor<i32>
    stablehlo.return %r : tensor<i32>
  }) : (tensor<4xi32>, tensor<2000x1xi32>, tensor<2000xi32>) -> tensor<4xi32>
  check.expect_eq_const %less, dense<[-499000, -499500, -500000, -500500]> : tensor<4xi32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %more = "stablehlo.scatter"(%zero, %at.1, %i) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %product = stablehlo.multiply %b, %three : tensor<i32>
    %r = stablehlo.add %product, %a : tensor<i32>
    stablehlo.return %r : tensor<i32>
  }) : (tensor<4xi32>, tensor<2000x1xi32>, tensor<2000xi32>) -> tensor<4xi32>
  check.expect_eq_const %more, dense<[1497000, 1498500, 1500000, 1501500]> : tensor<4xi32>
  %same = "stablehlo.scatter"(%zero, %at.1, %i) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    stablehlo.return %three : tensor<i32>
  }) : (tensor<4xi32>, tensor<2000x1xi32>, tensor<2000xi32>) -> tensor<4xi32>
  check.expect_eq_const %same, dense<3> : tensor<4xi32>
  func.return
}

// -----

// Bodies look at the bits of numbers, choose by branches, and give single numbers other shapes.
func.func @main() {
  %x = stablehlo.constant dense<[3.0, -1.0, 2.0]> : tensor<3xf32>
  %s = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %i = stablehlo.bitcast_convert %a : (tensor<f32>) -> tensor<i32>
    %j = stablehlo.bitcast_convert %b : (tensor<f32>) -> tensor<i32>
    %m = stablehlo.constant dense<2147483647> : tensor<i32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %in = stablehlo.compare LT, %i, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %jn = stablehlo.compare LT, %j, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %ix = stablehlo.xor %i, %m : tensor<i32>
    %jx = stablehlo.xor %j, %m : tensor<i32>
    %ik = stablehlo.select %in, %ix, %i : tensor<i1>, tensor<i32>
    %jk = stablehlo.select %jn, %jx, %j : tensor<i1>, tensor<i32>
    %p = stablehlo.compare LT, %ik, %jk : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<3xf32>) -> tensor<3xf32>
  check.expect_eq_const %s, dense<[-1.0, 2.0, 3.0]> : tensor<3xf32>
  %y = stablehlo.constant dense<[3, -1, 2, -5]> : tensor<4xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %abs = "stablehlo.reduce"(%y, %zero) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.constant dense<0> : tensor<i32>
    %p = stablehlo.compare LT, %b, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %r = "stablehlo.if"(%p) ({
      %n = stablehlo.negate %b : tensor<i32>
      %m = stablehlo.maximum %a, %n : tensor<i32>
      stablehlo.return %m : tensor<i32>
    }, {
      %m = stablehlo.maximum %a, %b : tensor<i32>
      stablehlo.return %m : tensor<i32>
    }) : (tensor<i1>) -> tensor<i32>
    stablehlo.return %r : tensor<i32>
  }) : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
  check.expect_eq_const %abs, dense<5> : tensor<i32>
  %map = "stablehlo.map"(%y) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<i32>):
    %r = "stablehlo.case"(%a) ({
      %c = stablehlo.constant dense<7> : tensor<i32>
      stablehlo.return %c : tensor<i32>
    }, {
      stablehlo.return %a : tensor<i32>
    }, {
      %c = stablehlo.constant dense<8> : tensor<i32>
      %d = stablehlo.add %a, %c : tensor<i32>
      stablehlo.return %d : tensor<i32>
    }) : (tensor<i32>) -> tensor<i32>
    stablehlo.return %r : tensor<i32>
  }) : (tensor<4xi32>) -> tensor<4xi32>
  check.expect_eq_const %map, dense<[11, 7, 10, 3]> : tensor<4xi32>
  %sum = "stablehlo.reduce"(%y, %zero) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
    %d = stablehlo.reshape %c : (tensor<1xi32>) -> tensor<i32>
    %e = stablehlo.broadcast_in_dim %d, dims = [] : (tensor<i32>) -> tensor<i32>
    %r = stablehlo.add %a, %e : tensor<i32>
    stablehlo.return %r : tensor<i32>
  }) : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
  check.expect_eq_const %sum, dense<-1> : tensor<i32>
  func.return
}
