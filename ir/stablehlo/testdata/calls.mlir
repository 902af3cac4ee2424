// Calls by name: of what was an operation before or became one, and of what says where a value
// lies.

func.func @functions() {
  %x = stablehlo.constant dense<[0.0, 0.5]> : tensor<2xf32>
  %0 = stablehlo.custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  check.expect_almost_eq_const %0, dense<[0.0, 0.5204998778]> : tensor<2xf32>
  %1 = stablehlo.custom_call @mhlo.asinh(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  check.expect_almost_eq_const %1, dense<[0.0, 0.4812118251]> : tensor<2xf32>
  func.return
}

// -----

func.func @places() {
  %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = stablehlo.custom_call @annotate_device_placement(%x) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.custom_call @LayoutConstraint(%0) {operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>]} : (tensor<2xf32>) -> tensor<2xf32>
  %2 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%1) {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{}]>]>"}} : (tensor<2xf32>) -> tensor<2xf32>
  stablehlo.custom_call @check.eq(%2, %x) {has_side_effect = true} : (tensor<2xf32>, tensor<2xf32>) -> ()
  func.return
}

// -----

func.func @sizes() {
  %n = stablehlo.constant dense<2> : tensor<i32>
  %p = stablehlo.compare EQ, %n, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%p, %n) {error_message = "the batch is {0}, want 2", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  check.expect_eq_const %n, dense<2> : tensor<i32>
  func.return
}

// -----

module {
  func.func @main() {
    %x = stablehlo.constant dense<[[1.0, 5.0], [4.0, 2.0], [3.0, 6.0]]> : tensor<3x2xf32>
    %i = stablehlo.iota dim = 0 : tensor<3x2xi32>
    %a = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %b = stablehlo.constant dense<-1> : tensor<i32>
    %v, %at = stablehlo.custom_call @ApproxTopK(%x, %i, %a, %b) {called_computations = [@more], mhlo.backend_config = {aggregate_to_topk = true, recall_target = 0.949999988 : f32, reduction_dim = 0 : i64, reduction_input_size_override = -1 : i64, top_k = 2 : i64}} : (tensor<3x2xf32>, tensor<3x2xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
    check.expect_eq_const %v, dense<[[4.0, 6.0], [3.0, 5.0]]> : tensor<2x2xf32>
    check.expect_eq_const %at, dense<[[1, 2], [2, 0]]> : tensor<2x2xi32>
    func.return
  }
  func.func private @more(%x: tensor<f32>, %y: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
    %p = stablehlo.compare GT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    return %p : tensor<i1>
  }
}

// -----

func.func @lapack() {
  %spd = stablehlo.constant dense<[[4.0, 2.0], [2.0, 5.0]]> : tensor<2x2xf32>
  %l, %good = stablehlo.custom_call @lapack_spotrf_ffi(%spd) {mhlo.backend_config = {uplo = 76 : ui8}} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
  check.expect_almost_eq_const %l, dense<[[2.0, 0.0], [1.0, 2.0]]> : tensor<2x2xf32>
  check.expect_eq_const %good, dense<0> : tensor<i32>
  %u, %well = stablehlo.custom_call @cusolver_potrf_ffi(%spd) {mhlo.backend_config = {lower = false}} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
  check.expect_almost_eq_const %u, dense<[[2.0, 1.0], [0.0, 2.0]]> : tensor<2x2xf32>
  %negative = stablehlo.negate %spd : tensor<2x2xf32>
  %nan, %bad = stablehlo.custom_call @lapack_spotrf_ffi(%negative) {mhlo.backend_config = {uplo = 85 : ui8}} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
  check.expect_eq_const %bad, dense<1> : tensor<i32>
  %b = stablehlo.constant dense<[[2.0, 4.0], [5.0, 8.0]]> : tensor<2x2xf32>
  %forward = stablehlo.custom_call @lapack_strsm_ffi(%l, %b) {mhlo.backend_config = {diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_almost_eq_const %forward, dense<[[1.0, 2.0], [2.0, 3.0]]> : tensor<2x2xf32>
  %right = stablehlo.custom_call @lapack_strsm_ffi(%l, %b) {mhlo.backend_config = {diag = 85 : ui8, side = 82 : ui8, trans_x = 84 : ui8, uplo = 76 : ui8}} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_almost_eq_const %right, dense<[[2.0, 2.0], [5.0, 3.0]]> : tensor<2x2xf32>
  func.return
}

// -----

func.func @factors() {
  %a = stablehlo.constant dense<[[[0.0, 2.0], [3.0, 4.0], [1.5, 3.0]]]> : tensor<1x3x2xf64>
  %lu, %pivots, %info = stablehlo.custom_call @lapack_dgetrf_ffi(%a) {mhlo.backend_config = {}} : (tensor<1x3x2xf64>) -> (tensor<1x3x2xf64>, tensor<1x2xi32>, tensor<1xi32>)
  check.expect_almost_eq_const %lu, dense<[[[3.0, 4.0], [0.0, 2.0], [0.5, 0.5]]]> : tensor<1x3x2xf64>
  check.expect_eq_const %pivots, dense<[[2, 2]]> : tensor<1x2xi32>
  check.expect_eq_const %info, dense<[0]> : tensor<1xi32>
  %qr, %tau = stablehlo.custom_call @cusolver_geqrf_ffi(%a) {mhlo.backend_config = {}} : (tensor<1x3x2xf64>) -> (tensor<1x3x2xf64>, tensor<1x2xf64>)
  %q = stablehlo.custom_call @lapack_dorgqr_ffi(%qr, %tau) {mhlo.backend_config = {}} : (tensor<1x3x2xf64>, tensor<1x2xf64>) -> tensor<1x3x2xf64>
  %qtq = stablehlo.dot_general %q, %q, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<1x3x2xf64>, tensor<1x3x2xf64>) -> tensor<1x2x2xf64>
  check.expect_almost_eq_const %qtq, dense<[[[1.0, 0.0], [0.0, 1.0]]]> : tensor<1x2x2xf64>
  %r = stablehlo.custom_call @lapack_dormqr_ffi(%qr, %tau, %a) {mhlo.backend_config = {side = 76 : ui8, trans = 84 : ui8}} : (tensor<1x3x2xf64>, tensor<1x2xf64>, tensor<1x3x2xf64>) -> tensor<1x3x2xf64>
  %below = stablehlo.slice %r [0:1, 1:3, 0:1] : (tensor<1x3x2xf64>) -> tensor<1x2x1xf64>
  check.expect_almost_eq_const %below, dense<0.0> : tensor<1x2x1xf64>
  %upper = stablehlo.slice %r [0:1, 0:2, 0:2] : (tensor<1x3x2xf64>) -> tensor<1x2x2xf64>
  %again = stablehlo.dot_general %q, %upper, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x3x2xf64>, tensor<1x2x2xf64>) -> tensor<1x3x2xf64>
  check.expect_almost_eq %again, %a : tensor<1x3x2xf64>
  func.return
}

// -----

func.func @xla() {
  %a = stablehlo.constant dense<[[0.0, 2.0], [3.0, 4.0], [1.5, 3.0]]> : tensor<3x2xf64>
  %qr, %tau = stablehlo.custom_call @Qr(%a) : (tensor<3x2xf64>) -> (tensor<3x2xf64>, tensor<2xf64>)
  %q = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%qr, %tau) : (tensor<3x2xf64>, tensor<2xf64>) -> tensor<3x2xf64>
  %qtq = stablehlo.dot_general %q, %q, contracting_dims = [0] x [0] : (tensor<3x2xf64>, tensor<3x2xf64>) -> tensor<2x2xf64>
  check.expect_almost_eq_const %qtq, dense<[[1.0, 0.0], [0.0, 1.0]]> : tensor<2x2xf64>
  %lu, %pivots, %order = stablehlo.custom_call @LuDecomposition(%a) : (tensor<3x2xf64>) -> (tensor<3x2xf64>, tensor<2xi32>, tensor<3xi32>)
  check.expect_almost_eq_const %lu, dense<[[3.0, 4.0], [0.0, 2.0], [0.5, 0.5]]> : tensor<3x2xf64>
  check.expect_eq_const %pivots, dense<[1, 1]> : tensor<2xi32>
  check.expect_eq_const %order, dense<[1, 0, 2]> : tensor<3xi32>
  func.return
}

// -----

// Signs of vectors are free: what factors make together is not.
func.func @spectral() {
  %a = stablehlo.constant dense<[[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]]> : tensor<2x3xf32>
  %0:5 = stablehlo.custom_call @lapack_sgesdd_ffi(%a) {mhlo.backend_config = {mode = 83 : ui8}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2x3xf32>, tensor<i32>)
  check.expect_almost_eq_const %0#1, dense<[5.0, 2.0]> : tensor<2xf32>
  check.expect_eq_const %0#4, dense<0> : tensor<i32>
  %some.s = stablehlo.broadcast_in_dim %0#1, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
  %some.us = stablehlo.multiply %0#2, %some.s : tensor<2x2xf32>
  %some = stablehlo.dot_general %some.us, %0#3, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  check.expect_almost_eq %some, %a : tensor<2x3xf32>
  %1:5 = stablehlo.custom_call @lapack_sgesdd_ffi(%a) {mhlo.backend_config = {mode = 65 : ui8}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<3x3xf32>, tensor<i32>)
  %all = stablehlo.dot_general %1#3, %1#3, contracting_dims = [1] x [1] : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  check.expect_almost_eq_const %all, dense<[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]> : tensor<3x3xf32>
  %2:5 = stablehlo.custom_call @lapack_sgesdd_ffi(%a) {mhlo.backend_config = {mode = 78 : ui8}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<3x3xf32>, tensor<i32>)
  check.expect_almost_eq_const %2#1, dense<[5.0, 2.0]> : tensor<2xf32>
  %nan = stablehlo.constant dense<0x7FC00000> : tensor<2x3xf32>
  %3:5 = stablehlo.custom_call @lapack_sgesdd_ffi(%nan) {mhlo.backend_config = {mode = 78 : ui8}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<3x3xf32>, tensor<i32>)
  check.expect_eq_const %3#4, dense<1> : tensor<i32>
  func.return
}

// -----

func.func @spectral_of_cusolver() {
  %a = stablehlo.constant dense<[[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]]> : tensor<2x3xf32>
  %0:5 = stablehlo.custom_call @cusolver_gesvd_ffi(%a) {mhlo.backend_config = {compute_uv = true, full_matrices = false, transposed = true}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x3xf32>, tensor<2x2xf32>, tensor<i32>)
  %some.s = stablehlo.broadcast_in_dim %0#1, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
  %some.us = stablehlo.multiply %0#3, %some.s : tensor<2x2xf32>
  %some = stablehlo.dot_general %some.us, %0#2, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  check.expect_almost_eq %some, %a : tensor<2x3xf32>
  %1:5 = stablehlo.custom_call @cusolver_gesvd_ffi(%a) {mhlo.backend_config = {compute_uv = false, full_matrices = false, transposed = true}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<i32>)
  check.expect_almost_eq_const %1#1, dense<[5.0, 2.0]> : tensor<2xf32>
  %2:5 = stablehlo.custom_call @cusolver_gesvdj_ffi(%a) {mhlo.backend_config = {compute_uv = true, full_matrices = true}} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<3x3xf32>, tensor<i32>)
  %v = stablehlo.slice %2#3 [0:3, 0:2] : (tensor<3x3xf32>) -> tensor<3x2xf32>
  %vt = stablehlo.transpose %v, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %jacobi.s = stablehlo.broadcast_in_dim %2#1, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
  %jacobi.us = stablehlo.multiply %2#2, %jacobi.s : tensor<2x2xf32>
  %jacobi = stablehlo.dot_general %jacobi.us, %vt, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  check.expect_almost_eq %jacobi, %a : tensor<2x3xf32>
  func.return
}

// -----

func.func @symmetric() {
  %a = stablehlo.constant dense<[[2.0, 1.0], [1.0, 2.0]]> : tensor<2x2xf32>
  %lower = stablehlo.constant dense<[[2.0, 7.0], [1.0, 2.0]]> : tensor<2x2xf32>
  %0:3 = stablehlo.custom_call @lapack_ssyevd_ffi(%lower) {mhlo.backend_config = {mode = 86 : ui8, uplo = 76 : ui8}} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<i32>)
  check.expect_almost_eq_const %0#1, dense<[1.0, 3.0]> : tensor<2xf32>
  check.expect_eq_const %0#2, dense<0> : tensor<i32>
  %vt = stablehlo.transpose %0#0, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %product.s = stablehlo.broadcast_in_dim %0#1, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
  %product.us = stablehlo.multiply %0#0, %product.s : tensor<2x2xf32>
  %product = stablehlo.dot_general %product.us, %vt, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_almost_eq %product, %a : tensor<2x2xf32>
  %1:3 = stablehlo.custom_call @cusolver_syevd_ffi(%lower) {mhlo.backend_config = {algorithm = 0 : ui8, lower = false}} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<i32>)
  check.expect_almost_eq_const %1#1, dense<[-5.0, 9.0]> : tensor<2xf32>
  %pivots = stablehlo.constant dense<[[2, 2]]> : tensor<1x2xi32>
  %order = stablehlo.custom_call @cu_lu_pivots_to_permutation(%pivots) {mhlo.backend_config = {}} : (tensor<1x2xi32>) -> tensor<1x3xi32>
  check.expect_eq_const %order, dense<[[2, 0, 1]]> : tensor<1x3xi32>
  func.return
}

// -----

func.func @tridiagonal() {
  %below = stablehlo.constant dense<[9.0, 1.0, 1.0]> : tensor<3xf32>
  %on = stablehlo.constant dense<[2.0, 3.0, 2.0]> : tensor<3xf32>
  %above = stablehlo.constant dense<[1.0, 1.0, 9.0]> : tensor<3xf32>
  %b = stablehlo.constant dense<[[4.0], [10.0], [8.0]]> : tensor<3x1xf32>
  %0:5 = stablehlo.custom_call @lapack_sgtsv_ffi(%below, %on, %above, %b) {mhlo.backend_config = {}} : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3x1xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3x1xf32>, tensor<i32>)
  check.expect_almost_eq_const %0#3, dense<[[1.0], [2.0], [3.0]]> : tensor<3x1xf32>
  check.expect_eq_const %0#4, dense<0> : tensor<i32>
  %1 = stablehlo.custom_call @cusparse_gtsv2_ffi(%below, %on, %above, %b) {mhlo.backend_config = {}} : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3x1xf32>) -> tensor<3x1xf32>
  check.expect_almost_eq_const %1, dense<[[1.0], [2.0], [3.0]]> : tensor<3x1xf32>
  func.return
}
