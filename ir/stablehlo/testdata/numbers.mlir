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
