// Floats of a byte: arithmetic is that of f32, rounded once; what is too large is infinite, or
// NaN in types without infinities.

func.func @rounds() {
  %x = stablehlo.constant dense<[1.0, 1.0625, 1.1875, -17.0, 464.0, 465.0, 1.0e-9]> : tensor<7xf32>
  %a = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E4M3FN>
  check.expect_almost_eq_const %a, dense<[1.0, 1.0, 1.25, -16.0, 448.0, 0x7F, 0.0]> : tensor<7xf8E4M3FN>
  %b = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E5M2>
  check.expect_almost_eq_const %b, dense<[1.0, 1.0, 1.25, -16.0, 448.0, 448.0, 0.0]> : tensor<7xf8E5M2>
  %c = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E4M3>
  check.expect_almost_eq_const %c, dense<[1.0, 1.0, 1.25, -16.0, 0x78, 0x78, 0.0]> : tensor<7xf8E4M3>
  %d = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E3M4>
  check.expect_almost_eq_const %d, dense<[1.0, 1.0625, 1.1875, 0xF0, 0x70, 0x70, 0.0]> : tensor<7xf8E3M4>
  %e = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E4M3FNUZ>
  check.expect_almost_eq_const %e, dense<[1.0, 1.0, 1.25, -16.0, 0x80, 0x80, 0.0]> : tensor<7xf8E4M3FNUZ>
  %f = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E5M2FNUZ>
  check.expect_almost_eq_const %f, dense<[1.0, 1.0, 1.25, -16.0, 448.0, 448.0, 0.0]> : tensor<7xf8E5M2FNUZ>
  %g = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E4M3B11FNUZ>
  check.expect_almost_eq_const %g, dense<[1.0, 1.0, 1.25, -16.0, 0x80, 0x80, 0.0]> : tensor<7xf8E4M3B11FNUZ>
  %h = stablehlo.convert %x : (tensor<7xf32>) -> tensor<7xf8E8M0FNU>
  check.expect_almost_eq_const %h, dense<[0x7F, 0x7F, 0x7F, 0xFF, 0x88, 0x88, 0x61]> : tensor<7xf8E8M0FNU>
  func.return
}

// -----

func.func @computes() {
  %x = stablehlo.constant dense<[0.0, 1.0, 2.0, 3.0]> : tensor<4xf8E4M3FN>
  %y = stablehlo.constant dense<[0x7E, 0x08, 0x7F, 0xBC]> : tensor<4xf8E4M3FN>
  %0 = stablehlo.add %x, %y : tensor<4xf8E4M3FN>
  check.expect_almost_eq_const %0, dense<[448.0, 1.0, 0x7F, 1.5]> : tensor<4xf8E4M3FN>
  %1 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] : (tensor<4xf8E4M3FN>, tensor<4xf8E4M3FN>) -> tensor<f32>
  check.expect_almost_eq_const %1, dense<14.0> : tensor<f32>
  %2 = stablehlo.bitcast_convert %y : (tensor<4xf8E4M3FN>) -> tensor<4xui8>
  check.expect_eq_const %2, dense<[126, 8, 127, 188]> : tensor<4xui8>
  %3 = stablehlo.maximum %x, %y : tensor<4xf8E4M3FN>
  check.expect_almost_eq_const %3, dense<[448.0, 1.0, 0x7F, 3.0]> : tensor<4xf8E4M3FN>
  %4 = stablehlo.is_finite %y : (tensor<4xf8E4M3FN>) -> tensor<4xi1>
  check.expect_eq_const %4, dense<[true, true, false, true]> : tensor<4xi1>
  %5 = stablehlo.reduce_precision %x, format = e3m1 : tensor<4xf8E4M3FN>
  check.expect_almost_eq_const %5, dense<[0.0, 1.0, 2.0, 3.0]> : tensor<4xf8E4M3FN>
  func.return
}

// -----

// Subnormal numbers are lost only to fewer bits of exponent; what rounds beyond the largest
// number is infinite or NaN.
func.func @reduces() {
  %x = stablehlo.constant dense<[0x01, 0x03, 0x7B, 0x81, 0x7E]> : tensor<5xf8E5M2>
  %0 = stablehlo.reduce_precision %x, format = e5m10 : tensor<5xf8E5M2>
  %1 = stablehlo.bitcast_convert %0 : (tensor<5xf8E5M2>) -> tensor<5xui8>
  check.expect_eq_const %1, dense<[1, 3, 123, 129, 126]> : tensor<5xui8>
  %2 = stablehlo.reduce_precision %x, format = e5m1 : tensor<5xf8E5M2>
  %3 = stablehlo.bitcast_convert %2 : (tensor<5xf8E5M2>) -> tensor<5xui8>
  check.expect_eq_const %3, dense<[0, 4, 124, 128, 126]> : tensor<5xui8>
  %4 = stablehlo.reduce_precision %x, format = e4m2 : tensor<5xf8E5M2>
  %5 = stablehlo.bitcast_convert %4 : (tensor<5xf8E5M2>) -> tensor<5xui8>
  check.expect_eq_const %5, dense<[0, 0, 124, 128, 126]> : tensor<5xui8>
  %y = stablehlo.constant dense<[0x7E, 0x78, 0x01, 0xFE, 0x7F]> : tensor<5xf8E4M3FN>
  %6 = stablehlo.reduce_precision %y, format = e4m1 : tensor<5xf8E4M3FN>
  %7 = stablehlo.bitcast_convert %6 : (tensor<5xf8E4M3FN>) -> tensor<5xui8>
  check.expect_eq_const %7, dense<[127, 120, 0, 127, 127]> : tensor<5xui8>
  %z = stablehlo.constant dense<[0x81, 0x80, 0x7F, 0xFF]> : tensor<4xf8E4M3FNUZ>
  %8 = stablehlo.reduce_precision %z, format = e4m1 : tensor<4xf8E4M3FNUZ>
  %9 = stablehlo.bitcast_convert %8 : (tensor<4xf8E4M3FNUZ>) -> tensor<4xui8>
  check.expect_eq_const %9, dense<[0, 128, 128, 128]> : tensor<4xui8>
  func.return
}
