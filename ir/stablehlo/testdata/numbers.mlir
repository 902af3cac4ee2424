// Functions and normalisations that are decomposed. Those of batch_norm are the examples of
// the specification.

func.func @batch_norm_training() {
  %x = stablehlo.constant dense<[[[1.0, 2.0], [3.0, 4.0]], [[3.0, 4.0], [1.0, 2.0]]]> : tensor<2x2x2xf64>
  %one = stablehlo.constant dense<1.0> : tensor<2xf64>
  %y, %mean, %var = "stablehlo.batch_norm_training"(%x, %one, %one) {epsilon = 0.0 : f32, feature_index = 2 : i64} : (tensor<2x2x2xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<2x2x2xf64>, tensor<2xf64>, tensor<2xf64>)
  check.expect_almost_eq_const %y, dense<[[[0.0, 0.0], [2.0, 2.0]], [[2.0, 2.0], [0.0, 0.0]]]> : tensor<2x2x2xf64>
  check.expect_almost_eq_const %mean, dense<[2.0, 3.0]> : tensor<2xf64>
  check.expect_almost_eq_const %var, dense<[1.0, 1.0]> : tensor<2xf64>
  %z = "stablehlo.batch_norm_inference"(%x, %one, %one, %mean, %var) {epsilon = 0.0 : f32, feature_index = 2 : i64} : (tensor<2x2x2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>) -> tensor<2x2x2xf64>
  check.expect_almost_eq_const %z, dense<[[[0.0, 0.0], [2.0, 2.0]], [[2.0, 2.0], [0.0, 0.0]]]> : tensor<2x2x2xf64>
  func.return
}

// -----

func.func @batch_norm_grad() {
  %x = stablehlo.constant dense<[[[1.0, 2.0], [3.0, 4.0]], [[3.0, 4.0], [1.0, 2.0]]]> : tensor<2x2x2xf64>
  %g = stablehlo.constant dense<0.1> : tensor<2x2x2xf64>
  %one = stablehlo.constant dense<1.0> : tensor<2xf64>
  %mean = stablehlo.constant dense<[2.0, 3.0]> : tensor<2xf64>
  %dx, %ds, %do = "stablehlo.batch_norm_grad"(%x, %one, %mean, %one, %g) {epsilon = 0.0 : f32, feature_index = 2 : i64} : (tensor<2x2x2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2x2x2xf64>) -> (tensor<2x2x2xf64>, tensor<2xf64>, tensor<2xf64>)
  check.expect_almost_eq_const %dx, dense<0.0> : tensor<2x2x2xf64>
  check.expect_almost_eq_const %ds, dense<0.0> : tensor<2xf64>
  check.expect_almost_eq_const %do, dense<[0.4, 0.4]> : tensor<2xf64>
  func.return
}

// -----

func.func @rng() {
  %a = stablehlo.constant dense<3> : tensor<i32>
  %b = stablehlo.constant dense<4> : tensor<i32>
  %shape = stablehlo.constant dense<[2, 2]> : tensor<2xi64>
  %x = stablehlo.rng %a, %b, %shape, distribution = UNIFORM : (tensor<i32>, tensor<i32>, tensor<2xi64>) -> tensor<2x2xi32>
  check.expect_eq_const %x, dense<3> : tensor<2x2xi32>
  %mean = stablehlo.constant dense<7.0> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = "stablehlo.rng"(%mean, %zero, %shape) {rng_distribution = #stablehlo<rng_distribution NORMAL>} : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<2x2xf32>
  check.expect_eq_const %y, dense<7.0> : tensor<2x2xf32>
  func.return
}

// -----

func.func @functions() {
  %x = stablehlo.constant dense<[0x7F800000, 0xFF800000, 0x7FC00000, 0.5]> : tensor<4xf32>
  %i = chlo.is_inf %x : tensor<4xf32> -> tensor<4xi1>
  check.expect_eq_const %i, dense<[true, true, false, false]> : tensor<4xi1>
  %p = chlo.is_pos_inf %x : tensor<4xf32> -> tensor<4xi1>
  check.expect_eq_const %p, dense<[true, false, false, false]> : tensor<4xi1>
  %n = chlo.is_neg_inf %x : tensor<4xf32> -> tensor<4xi1>
  check.expect_eq_const %n, dense<[false, true, false, false]> : tensor<4xi1>
  %half = stablehlo.constant dense<0.5> : tensor<f64>
  %two = stablehlo.constant dense<2.0> : tensor<f64>
  %l = chlo.lgamma %half : tensor<f64> -> tensor<f64>
  check.expect_almost_eq_const %l, dense<0.5723649429247001> : tensor<f64>
  %d = chlo.digamma %half : tensor<f64> -> tensor<f64>
  check.expect_almost_eq_const %d, dense<-1.9635100260214235> : tensor<f64>
  %e = chlo.erf_inv %half : tensor<f64> -> tensor<f64>
  check.expect_almost_eq_const %e, dense<0.4769362762044699> : tensor<f64>
  %z = chlo.zeta %two, %two : tensor<f64>, tensor<f64> -> tensor<f64>
  check.expect_almost_eq_const %z, dense<0.6449340668482264> : tensor<f64>
  %g = chlo.polygamma %two, %two : tensor<f64>, tensor<f64> -> tensor<f64>
  check.expect_almost_eq_const %g, dense<-0.4041138063191886> : tensor<f64>
  %b = chlo.bessel_i1e %two : tensor<f64> -> tensor<f64>
  check.expect_almost_eq_const %b, dense<0.21526928924893765> : tensor<f64>
  func.return
}

// -----

// What a narrow integer does not have becomes the nearest number that it has.
func.func @saturated() {
  %x = stablehlo.constant dense<[-3.0e9, -300.5, -129.0, -0.7, 127.9, 255.9, 300.0, 7.0e4, 0x7F800000]> : tensor<9xf32>
  %a = stablehlo.convert %x : (tensor<9xf32>) -> tensor<9xi8>
  check.expect_eq_const %a, dense<[-128, -128, -128, 0, 127, 127, 127, 127, 127]> : tensor<9xi8>
  %b = stablehlo.convert %x : (tensor<9xf32>) -> tensor<9xui8>
  check.expect_eq_const %b, dense<[0, 0, 0, 0, 127, 255, 255, 255, 255]> : tensor<9xui8>
  %c = stablehlo.convert %x : (tensor<9xf32>) -> tensor<9xi16>
  check.expect_eq_const %c, dense<[-32768, -300, -129, 0, 127, 255, 300, 32767, 32767]> : tensor<9xi16>
  %h = stablehlo.convert %x : (tensor<9xf32>) -> tensor<9xbf16>
  %d = stablehlo.convert %h : (tensor<9xbf16>) -> tensor<9xui16>
  check.expect_eq_const %d, dense<[0, 0, 0, 0, 128, 256, 300, 65535, 65535]> : tensor<9xui16>
  return
}

// -----

// Operands are rounded as the algorithm of a product says, and so is the sum; several products come
// near to the wider type.
func.func @main() {
  %x = stablehlo.constant dense<[[1.001953125]]> : tensor<1x1xf32>
  %bf16 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
  check.expect_eq_const %bf16, dense<[[1.0]]> : tensor<1x1xf32>
  %one = "stablehlo.dot_general"(%x, %x) <{algorithm = #stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false>, dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
  check.expect_eq_const %one, dense<[[1.001953125]]> : tensor<1x1xf32>
  %three = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false> : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
  check.expect_eq_const %three, dense<[[1.003910064697265625]]> : tensor<1x1xf32>
  %narrow = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = f16, rhs_precision_type = f16, accumulation_type = f16, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = true> : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
  check.expect_eq_const %narrow, dense<[[1.00390625]]> : tensor<1x1xf32>
  %y = stablehlo.constant dense<[[1.000244140625]]> : tensor<1x1xf32>
  %tf32 = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
  check.expect_eq_const %tf32, dense<[[1.0]]> : tensor<1x1xf32>
  %a = stablehlo.constant dense<[[1.0e8, 1.0, -1.0e8]]> : tensor<1x3xf32>
  %b = stablehlo.constant dense<1.0> : tensor<3x1xf32>
  %f64 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = f64, rhs_precision_type = f64, accumulation_type = f64, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<1x3xf32>, tensor<3x1xf32>) -> tensor<1x1xf32>
  check.expect_eq_const %f64, dense<[[1.0]]> : tensor<1x1xf32>
  func.return
}

// -----

// The largest elements go by the total order: 0 is more than -0, NaN more than all numbers, and with a sign less.
func.func @main() {
  %x = stablehlo.constant dense<[-0.0, 0.0, -1.0, 0xFFC00000, 0x7FC00000]> : tensor<5xf32>
  %v, %i = chlo.top_k(%x, k = 5) : tensor<5xf32> -> (tensor<5xf32>, tensor<5xi32>)
  check.expect_eq_const %i, dense<[4, 1, 0, 2, 3]> : tensor<5xi32>
  %s = stablehlo.slice %v [1:4] : (tensor<5xf32>) -> tensor<3xf32>
  check.expect_eq_const %s, dense<[0.0, -0.0, -1.0]> : tensor<3xf32>
  %w, %j = chlo.top_k(%x, k = 3) {largest = false} : tensor<5xf32> -> (tensor<3xf32>, tensor<3xi32>)
  check.expect_eq_const %j, dense<[3, 2, 0]> : tensor<3xi32>
  func.return
}

// -----

// Numbers next to a tie are not rounded to it first; least and strange numbers stay what they are.
func.func @main() {
  %x = stablehlo.constant dense<[1.00048828125045474735, 1.00048828125, 1.00146484375, -1.00048828125045474735, 6.0e4, 7.0e4, 2.98023223877e-8, 2.9802322387695e-8]> : tensor<8xf64>
  %h = stablehlo.convert %x : (tensor<8xf64>) -> tensor<8xf16>
  check.expect_eq_const %h, dense<[1.0009765625, 1.0, 1.001953125, -1.0009765625, 6.0e4, 0x7C00, 5.9604644775390625e-08, 0.0]> : tensor<8xf16>
  %y = stablehlo.constant dense<[1.00390625000000090949, 1.00390625, 0x7FF0000000000000, 3.4028235e38, 3.39e38, 4.6e-41, 4.59177480789956e-41]> : tensor<7xf64>
  %b = stablehlo.convert %y : (tensor<7xf64>) -> tensor<7xbf16>
  check.expect_eq_const %b, dense<[1.0078125, 1.0, 0x7F80, 0x7F80, 3.3895313892515355e38, 9.183549615799121e-41, 0.0]> : tensor<7xbf16>
  %z = stablehlo.constant dense<[1.0625000000000009, 1.0625, 1.1875]> : tensor<3xf64>
  %f = stablehlo.convert %z : (tensor<3xf64>) -> tensor<3xf8E4M3FN>
  check.expect_eq_const %f, dense<[1.125, 1.0, 1.25]> : tensor<3xf8E4M3FN>
  func.return
}
