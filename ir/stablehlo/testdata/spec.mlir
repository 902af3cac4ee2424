// Programs written from the specification's text, with results computed by hand.

// all_to_all_split_concat
module {
func.func @f(%x: tensor<1x2xi32>) -> tensor<2x1xi32> {
  %r = "stablehlo.all_to_all"(%x) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<1x2xi32>) -> tensor<2x1xi32>
  return %r : tensor<2x1xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[[1, 2]]> : tensor<1x2xi32>
  %i1 = stablehlo.constant dense<[[3, 4]]> : tensor<1x2xi32>
  %r:2 = "interpreter.run_parallel"(%i0, %i1) {programs=[[@f], [@f]]} : (tensor<1x2xi32>, tensor<1x2xi32>) -> (tensor<2x1xi32>, tensor<2x1xi32>)
  check.expect_eq_const %r#0, dense<[[4], [2]]> : tensor<2x1xi32>
  check.expect_eq_const %r#1, dense<[[3], [1]]> : tensor<2x1xi32>
  func.return
}
}

// -----

// batch_norm
module {
func.func @main() {
  %x = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %g = stablehlo.constant dense<1.0> : tensor<2xf32>
  %b = stablehlo.constant dense<0.0> : tensor<2xf32>
  %r:3 = "stablehlo.batch_norm_training"(%x, %g, %b) {epsilon = 0.0 : f32, feature_index = 1 : i64} : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
  check.expect_almost_eq_const %r#0, dense<[[-1.0, -1.0], [1.0, 1.0]]> : tensor<2x2xf32>
  check.expect_almost_eq_const %r#1, dense<[2.0, 3.0]> : tensor<2xf32>
  check.expect_almost_eq_const %r#2, dense<[1.0, 1.0]> : tensor<2xf32>
  func.return
}
}

// -----

// chlo
module {
func.func @main() {
  %x = stablehlo.constant dense<[0.0, 0.5]> : tensor<2xf32>
  %a = chlo.erf %x : tensor<2xf32> -> tensor<2xf32>
  %b = chlo.square %x : tensor<2xf32> -> tensor<2xf32>
  %c = chlo.asinh %x : tensor<2xf32> -> tensor<2xf32>
  %d = chlo.lgamma %x : tensor<2xf32> -> tensor<2xf32>
  %e = chlo.sinh %x : tensor<2xf32> -> tensor<2xf32>
  check.expect_almost_eq_const %a, dense<[0.0, 0.5204998778]> : tensor<2xf32>
  check.expect_almost_eq_const %b, dense<[0.0, 0.25]> : tensor<2xf32>
  check.expect_almost_eq_const %c, dense<[0.0, 0.4812118251]> : tensor<2xf32>
  check.expect_almost_eq_const %e, dense<[0.0, 0.5210953055]> : tensor<2xf32>
  func.return
}
}

// -----

// cholesky_upper
module {
func.func @main() {
  %a = stablehlo.constant dense<[[4.0, 2.0], [2.0, 5.0]]> : tensor<2x2xf32>
  %r = "stablehlo.cholesky"(%a) {lower = false} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %u = stablehlo.slice %r [0:1, 0:2] : (tensor<2x2xf32>) -> tensor<1x2xf32>
  check.expect_almost_eq_const %u, dense<[[2.0, 1.0]]> : tensor<1x2xf32>
  func.return
}
}

// -----

// dynamic_gather
module {
func.func @main() {
  %x = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %i = stablehlo.constant dense<[[1, 0], [0, 5]]> : tensor<2x2xi64>
  %s = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %r = "stablehlo.dynamic_gather"(%x, %i, %s) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false} : (tensor<2x3xi32>, tensor<2x2xi64>, tensor<2xi64>) -> tensor<2x2xi32>
  check.expect_eq_const %r, dense<[[4, 5], [2, 3]]> : tensor<2x2xi32>
  func.return
}
}

// -----

// fmha
module {
func.func @main() {
  %q = stablehlo.constant dense<1.0> : tensor<1x4x1x8xf16>
  %k = stablehlo.constant dense<1.0> : tensor<1x4x1x8xf16>
  %v = stablehlo.constant dense<2.0> : tensor<1x4x1x8xf16>
  %r:2 = stablehlo.custom_call @__cudnn$fmhaSoftmax(%q, %k, %v) {api_version = 2 : i32, backend_config = "{\22operation_queue_id\22: \220\22, \22wait_on_operation_queues\22: [], \22cudnn_fmha_backend_config\22: {\22algorithm\22: {\22algo_id\22: \220\22, \22math_type\22: \22TENSOR_OP_MATH\22, \22tuning_knobs\22: {\2217\22: \221\22, \2224\22: \220\22}, \22is_cudnn_frontend\22: true, \22workspace_size\22: \220\22}, \22fmha_scale\22: 1.0, \22intermediate_tensor_shape\22: {\22element_type\22: \22F16\22, \22dimensions\22: [\221\22, \221\22, \224\22, \224\22], \22tuple_shapes\22: [], \22layout\22: {\22dim_level_types\22: [], \22dim_unique\22: [], \22dim_ordered\22: [], \22minor_to_major\22: [\223\22, \222\22, \221\22, \220\22], \22tiles\22: [], \22element_size_in_bits\22: \220\22, \22memory_space\22: \220\22, \22index_primitive_type\22: \22PRIMITIVE_TYPE_INVALID\22, \22pointer_primitive_type\22: \22PRIMITIVE_TYPE_INVALID\22, \22dynamic_shape_metadata_prefix_bytes\22: \220\22}, \22is_dynamic_dimension\22: [false, false, false, false]}, \22is_flash_attention\22: true, \22mask_type\22: \22CAUSAL\22, \22bmm1_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\223\22], \22rhs_contracting_dimensions\22: [\223\22], \22lhs_batch_dimensions\22: [\220\22, \222\22], \22rhs_batch_dimensions\22: [\220\22, \222\22]}, \22bmm2_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\223\22], \22rhs_contracting_dimensions\22: [\221\22], \22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \222\22]}, \22dropout_rate\22: 0.0, \22seed\22: 42, \22sliding_window_length\22: 0, \22max_seg_per_batch\22: 1, \22is_paged_attention\22: false}}", operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 1, 2, 0]> : tensor<4xindex>, dense<0> : tensor<1xindex>]} : (tensor<1x4x1x8xf16>, tensor<1x4x1x8xf16>, tensor<1x4x1x8xf16>) -> (tensor<1x1x4x8xf16>, tensor<0xui8>)
  %c = stablehlo.constant dense<2.0> : tensor<1x1x4x8xf16>
  check.expect_almost_eq %r#0, %c : tensor<1x1x4x8xf16>
  func.return
}
}

// -----

// mhlo_topk
module {
func.func @main() {
  %x = stablehlo.constant dense<[[3, 9, 1], [4, 4, 8]]> : tensor<2x3xi32>
  %r:2 = stablehlo.custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = true}, mhlo.version = 1 : i64} : (tensor<2x3xi32>) -> (tensor<2x2xi32>, tensor<2x2xi32>)
  check.expect_eq_const %r#0, dense<[[9, 3], [8, 4]]> : tensor<2x2xi32>
  check.expect_eq_const %r#1, dense<[[1, 0], [2, 0]]> : tensor<2x2xi32>
  func.return
}
}

// -----

// reduce_precision
module {
func.func @main() {
  %a = stablehlo.constant dense<[1.3, 65536.0]> : tensor<2xf32>
  %r = stablehlo.reduce_precision %a, format = e5m2 : tensor<2xf32>
  check.expect_eq_const %r, dense<[1.25, 0x7F800000]> : tensor<2xf32>
  func.return
}
}

// -----

// sharding_calls
module {
func.func @main() {
  %x = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %a = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<2xi32>) -> tensor<2xi32>
  %b = stablehlo.optimization_barrier %a : tensor<2xi32>
  check.expect_eq_const %b, dense<[1, 2]> : tensor<2xi32>
  func.return
}
}

// -----

// topk_composite
module {
func.func @main() {
  %x = stablehlo.constant dense<[3.0, 9.0, 1.0, 7.0]> : tensor<4xf32>
  %r:2 = stablehlo.composite "chlo.top_k" %x {composite_attributes = {k = 2 : i64}, decomposition = @topk} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>)
  check.expect_eq_const %r#0, dense<[9.0, 7.0]> : tensor<2xf32>
  check.expect_eq_const %r#1, dense<[1, 3]> : tensor<2xi32>
  func.return
}
func.func private @topk(%x: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
  %r:2 = chlo.top_k(%x, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)
  return %r#0, %r#1 : tensor<2xf32>, tensor<2xi32>
}
}

// -----

// triangular_solve
module {
func.func @main() {
  %a = stablehlo.constant dense<[[2.0, 9.0], [1.0, 4.0]]> : tensor<2x2xf32>
  %b = stablehlo.constant dense<[[2.0, 5.0]]> : tensor<1x2xf32>
  %r = "stablehlo.triangular_solve"(%a, %b) {left_side = false, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose TRANSPOSE>} : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  check.expect_almost_eq_const %r, dense<[[1.0, 1.0]]> : tensor<1x2xf32>
  func.return
}
}

// -----

// bitcast_widths
module {
func.func @main() {
  %x = stablehlo.constant dense<[1, 256]> : tensor<2xi32>
  %a = stablehlo.bitcast_convert %x : (tensor<2xi32>) -> tensor<2x4xui8>
  %b = stablehlo.bitcast_convert %a : (tensor<2x4xui8>) -> tensor<2xi32>
  check.expect_eq_const %a, dense<[[1, 0, 0, 0], [0, 1, 0, 0]]> : tensor<2x4xui8>
  check.expect_eq_const %b, dense<[1, 256]> : tensor<2xi32>
  func.return
}
}

// -----

// broadcast_groups
module {
func.func @f(%x: tensor<1xi32>) -> tensor<1xi32> {
  %r = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[2, 1], [3, 0]]> : tensor<2x2xi64>} : (tensor<1xi32>) -> tensor<1xi32>
  return %r : tensor<1xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1]> : tensor<1xi32>
  %i1 = stablehlo.constant dense<[2]> : tensor<1xi32>
  %i2 = stablehlo.constant dense<[3]> : tensor<1xi32>
  %i3 = stablehlo.constant dense<[4]> : tensor<1xi32>
  %r:4 = "interpreter.run_parallel"(%i0, %i1, %i2, %i3) {programs=[[@f], [@f], [@f], [@f]]} : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>)
  check.expect_eq_const %r#0, dense<[4]> : tensor<1xi32>
  check.expect_eq_const %r#1, dense<[3]> : tensor<1xi32>
  check.expect_eq_const %r#2, dense<[3]> : tensor<1xi32>
  check.expect_eq_const %r#3, dense<[4]> : tensor<1xi32>
  func.return
}
}

// -----

// conv_batch_groups
module {
func.func @main() {
  %x = stablehlo.constant dense<[[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]> : tensor<2x3x1xf32>
  %w = stablehlo.constant dense<[[[1.0, 10.0]], [[1.0, 10.0]]]> : tensor<2x1x2xf32>
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1]} {batch_group_count = 2 : i64, feature_group_count = 1 : i64} : (tensor<2x3x1xf32>, tensor<2x1x2xf32>) -> tensor<1x2x2xf32>
  check.expect_eq_const %r, dense<[[[3.0, 90.0], [5.0, 110.0]]]> : tensor<1x2x2xf32>
  func.return
}
}

// -----

// conv_reversed_dilated
module {
func.func @main() {
  %x = stablehlo.constant dense<[[[1.0], [2.0]]]> : tensor<1x2x1xf32>
  %w = stablehlo.constant dense<[[[1.0]], [[10.0]]]> : tensor<2x1x1xf32>
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[1, 1]], lhs_dilate = [2], rhs_dilate = [1], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x2x1xf32>, tensor<2x1x1xf32>) -> tensor<1x4x1xf32>
  check.expect_eq_const %r, dense<[[[1.0], [10.0], [2.0], [20.0]]]> : tensor<1x4x1xf32>
  func.return
}
}

// -----

// dot_general_batched
module {
func.func @main() {
  %a = stablehlo.constant dense<[[[1, 2]], [[3, 4]]]> : tensor<2x1x2xi32>
  %b = stablehlo.constant dense<[[[5, 6], [7, 8]], [[1, 0], [0, 1]]]> : tensor<2x2x2xi32>
  %r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, HIGHEST] : (tensor<2x1x2xi32>, tensor<2x2x2xi32>) -> tensor<2x1x2xi32>
  check.expect_eq_const %r, dense<[[[17, 23]], [[3, 4]]]> : tensor<2x1x2xi32>
  func.return
}
}

// -----

// dot_general_two_contracting
module {
func.func @main() {
  %a = stablehlo.constant dense<[[[1.0, 2.0], [3.0, 4.0]]]> : tensor<1x2x2xf32>
  %b = stablehlo.constant dense<[[[1.0], [1.0]], [[2.0], [0.5]]]> : tensor<2x2x1xf32>
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1, 2] x [1, 0] : (tensor<1x2x2xf32>, tensor<2x2x1xf32>) -> tensor<1x1xf32>
  check.expect_eq_const %r, dense<[[10.0]]> : tensor<1x1xf32>
  func.return
}
}

// -----

// dynamic_conv
module {
func.func @main() {
  %x = stablehlo.constant dense<[[[1.0], [2.0], [3.0]]]> : tensor<1x3x1xf32>
  %w = stablehlo.constant dense<[[[1.0]], [[1.0]]]> : tensor<2x1x1xf32>
  %pad = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi64>
  %r = "stablehlo.dynamic_conv"(%x, %w, %pad) {dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, window_strides = array<i64: 1>, feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<1x3x1xf32>, tensor<2x1x1xf32>, tensor<1x2xi64>) -> tensor<1x3x1xf32>
  check.expect_eq_const %r, dense<[[[1.0], [3.0], [5.0]]]> : tensor<1x3x1xf32>
  func.return
}
}

// -----

// dynamic_forms
module {
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi32>
  %shape = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
  %a = stablehlo.dynamic_reshape %x, %shape : (tensor<6xi32>, tensor<2xi64>) -> tensor<2x3xi32>
  %big = stablehlo.constant dense<[2, 2, 3]> : tensor<3xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %a, %big, dims = [1, 2] : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<2x2x3xi32>
  %lo = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
  %hi = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
  %in = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
  %z = stablehlo.constant dense<9> : tensor<i32>
  %p = stablehlo.dynamic_pad %a, %z, %lo, %hi, %in : (tensor<2x3xi32>, tensor<i32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x4xi32>
  %s0 = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
  %s1 = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
  %st = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %rd = "stablehlo.real_dynamic_slice"(%a, %s0, %s1, %st) : (tensor<2x3xi32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x1xi32>
  %n = stablehlo.constant dense<[3]> : tensor<1xi64>
  %io = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi64>) -> tensor<3xi32>
  check.expect_eq_const %a, dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  check.expect_eq_const %b, dense<[[[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]]> : tensor<2x2x3xi32>
  check.expect_eq_const %p, dense<[[9, 9, 9, 9], [1, 2, 3, 9], [9, 9, 9, 9], [4, 5, 6, 9]]> : tensor<4x4xi32>
  check.expect_eq_const %rd, dense<[[2], [5]]> : tensor<2x1xi32>
  check.expect_eq_const %io, dense<[0, 1, 2]> : tensor<3xi32>
  func.return
}
}

// -----

// dynamic_update_slice_clamped
module {
func.func @main() {
  %x = stablehlo.constant dense<0> : tensor<3x3xi32>
  %u = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
  %i = stablehlo.constant dense<-5> : tensor<i64>
  %j = stablehlo.constant dense<9> : tensor<i64>
  %r = stablehlo.dynamic_update_slice %x, %u, %i, %j : (tensor<3x3xi32>, tensor<2x2xi32>, tensor<i64>, tensor<i64>) -> tensor<3x3xi32>
  %s = stablehlo.dynamic_slice %r, %j, %i, sizes = [1, 2] : (tensor<3x3xi32>, tensor<i64>, tensor<i64>) -> tensor<1x2xi32>
  check.expect_eq_const %r, dense<[[0, 1, 2], [0, 3, 4], [0, 0, 0]]> : tensor<3x3xi32>
  check.expect_eq_const %s, dense<[[0, 0]]> : tensor<1x2xi32>
  func.return
}
}

// -----

// gather_batching
module {
func.func @main() {
  %x = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %i = stablehlo.constant dense<[[[2]], [[0]]]> : tensor<2x1x1xi32>
  %r = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 2>, indices_are_sorted = false} : (tensor<2x3xi32>, tensor<2x1x1xi32>) -> tensor<2x1x2xi32>
  check.expect_eq_const %r, dense<[[[2, 3]], [[4, 5]]]> : tensor<2x1x2xi32>
  func.return
}
}

// -----

// gather_reversed_group
module {
func.func @f(%x: tensor<1xi32>) -> tensor<3xi32> {
  %r = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[2, 0, 1]]> : tensor<1x3xi64>} : (tensor<1xi32>) -> tensor<3xi32>
  return %r : tensor<3xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1]> : tensor<1xi32>
  %i1 = stablehlo.constant dense<[2]> : tensor<1xi32>
  %i2 = stablehlo.constant dense<[3]> : tensor<1xi32>
  %r:3 = "interpreter.run_parallel"(%i0, %i1, %i2) {programs=[[@f], [@f], [@f]]} : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> (tensor<3xi32>, tensor<3xi32>, tensor<3xi32>)
  check.expect_eq_const %r#0, dense<[3, 1, 2]> : tensor<3xi32>
  check.expect_eq_const %r#1, dense<[3, 1, 2]> : tensor<3xi32>
  check.expect_eq_const %r#2, dense<[3, 1, 2]> : tensor<3xi32>
  func.return
}
}

// -----

// groups_of_sizes
module {
func.func @f(%x: tensor<1xi32>) -> tensor<1xi32> {
  %r = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.maximum %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) {replica_groups = dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>} : (tensor<1xi32>) -> tensor<1xi32>
  return %r : tensor<1xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1]> : tensor<1xi32>
  %i1 = stablehlo.constant dense<[9]> : tensor<1xi32>
  %i2 = stablehlo.constant dense<[3]> : tensor<1xi32>
  %i3 = stablehlo.constant dense<[4]> : tensor<1xi32>
  %r:4 = "interpreter.run_parallel"(%i0, %i1, %i2, %i3) {programs=[[@f], [@f], [@f], [@f]]} : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>)
  check.expect_eq_const %r#0, dense<[9]> : tensor<1xi32>
  check.expect_eq_const %r#1, dense<[9]> : tensor<1xi32>
  check.expect_eq_const %r#2, dense<[9]> : tensor<1xi32>
  check.expect_eq_const %r#3, dense<[4]> : tensor<1xi32>
  func.return
}
}

// -----

// groups_uneven_order
module {
func.func @f(%x: tensor<2xi32>) -> tensor<2xi32> {
  %r = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) {replica_groups = dense<[[3, 1], [0, 2]]> : tensor<2x2xi64>} : (tensor<2xi32>) -> tensor<2xi32>
  return %r : tensor<2xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %i1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
  %i2 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
  %i3 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
  %r:4 = "interpreter.run_parallel"(%i0, %i1, %i2, %i3) {programs=[[@f], [@f], [@f], [@f]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
  check.expect_eq_const %r#0, dense<[6, 8]> : tensor<2xi32>
  check.expect_eq_const %r#1, dense<[10, 12]> : tensor<2xi32>
  check.expect_eq_const %r#2, dense<[6, 8]> : tensor<2xi32>
  check.expect_eq_const %r#3, dense<[10, 12]> : tensor<2xi32>
  func.return
}
}

// -----

// integer_corner
module {
func.func @main() {
  %x = stablehlo.constant dense<[7, -7, 7, -7]> : tensor<4xi32>
  %y = stablehlo.constant dense<[2, 2, -2, -2]> : tensor<4xi32>
  %q = stablehlo.divide %x, %y : tensor<4xi32>
  %r = stablehlo.remainder %x, %y : tensor<4xi32>
  %p = stablehlo.power %x, %y : tensor<4xi32>
  check.expect_eq_const %q, dense<[3, -3, -3, 3]> : tensor<4xi32>
  check.expect_eq_const %r, dense<[1, -1, 1, -1]> : tensor<4xi32>
  check.expect_eq_const %p, dense<[49, 49, 0, 0]> : tensor<4xi32>
  func.return
}
}

// -----

// map_two
module {
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %y = stablehlo.constant dense<[4, 5, 6]> : tensor<3xi32>
  %r = "stablehlo.map"(%x, %y) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.multiply %a, %b : tensor<i32>
    %d = stablehlo.subtract %c, %a : tensor<i32>
    stablehlo.return %d : tensor<i32>
  }) {dimensions = array<i64: 0>} : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  check.expect_eq_const %r, dense<[3, 8, 15]> : tensor<3xi32>
  func.return
}
}

// -----

// nested_regions
module {
func.func @main() {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %three = stablehlo.constant dense<3> : tensor<i64>
  %r:2 = stablehlo.while(%i = %zero, %s = %zero) : tensor<i64>, tensor<i64>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %odd = stablehlo.and %i, %one : tensor<i64>
    %p = stablehlo.compare EQ, %odd, %one : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %v = "stablehlo.if"(%p) ({
      %w:2 = stablehlo.while(%j = %zero, %t = %s) : tensor<i64>, tensor<i64>
      cond {
        %d = stablehlo.compare LT, %j, %three : (tensor<i64>, tensor<i64>) -> tensor<i1>
        stablehlo.return %d : tensor<i1>
      } do {
        %k = stablehlo.add %j, %one : tensor<i64>
        %u = stablehlo.add %t, %k : tensor<i64>
        stablehlo.return %k, %u : tensor<i64>, tensor<i64>
      }
      stablehlo.return %w#1 : tensor<i64>
    }, {
      %x = stablehlo.convert %i : (tensor<i64>) -> tensor<i32>
      %idx = stablehlo.convert %x : tensor<i32>
      %y = "stablehlo.case"(%idx) ({
        %a = stablehlo.add %s, %one : tensor<i64>
        stablehlo.return %a : tensor<i64>
      }, {
        stablehlo.return %s : tensor<i64>
      }, {
        %b = stablehlo.multiply %s, %three : tensor<i64>
        stablehlo.return %b : tensor<i64>
      }) : (tensor<i32>) -> tensor<i64>
      stablehlo.return %y : tensor<i64>
    }) : (tensor<i1>) -> tensor<i64>
    %n = stablehlo.add %i, %one : tensor<i64>
    stablehlo.return %n, %v : tensor<i64>, tensor<i64>
  }
  check.expect_eq_const %r#1, dense<21> : tensor<i64>
  func.return
}
}

// -----

// pad_negative_interior
module {
func.func @main() {
  %x = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r = stablehlo.pad %x, %z, low = [0, -1], high = [-1, 2], interior = [1, 1] : (tensor<2x3xi32>, tensor<i32>) -> tensor<2x6xi32>
  check.expect_eq_const %r, dense<[[0, 2, 0, 3, 0, 0], [0, 0, 0, 0, 0, 0]]> : tensor<2x6xi32>
  func.return
}
}

// -----

// partition_reduce_in_loop
module {
func.func @f(%x: tensor<1xi32>) -> tensor<1xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %w:2 = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, tensor<1xi32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %r = "stablehlo.all_reduce"(%s) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %t = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %t : tensor<i32>
    }) {replica_groups = dense<[[0]]> : tensor<1x1xi64>, channel_handle = #stablehlo.channel_handle<handle = 7, type = 0>} : (tensor<1xi32>) -> tensor<1xi32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %r : tensor<i32>, tensor<1xi32>
  }
  return %w#1 : tensor<1xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1]> : tensor<1xi32>
  %i1 = stablehlo.constant dense<[2]> : tensor<1xi32>
  %r:2 = "interpreter.run_parallel"(%i0, %i1) {programs=[[@f, @f]]} : (tensor<1xi32>, tensor<1xi32>) -> (tensor<1xi32>, tensor<1xi32>)
  check.expect_eq_const %r#0, dense<[12]> : tensor<1xi32>
  check.expect_eq_const %r#1, dense<[12]> : tensor<1xi32>
  func.return
}
}

// -----

// permute_partial
module {
func.func @f(%x: tensor<1xi32>) -> tensor<1xi32> {
  %r = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 2], [2, 1]]> : tensor<2x2xi64>} : (tensor<1xi32>) -> tensor<1xi32>
  return %r : tensor<1xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1]> : tensor<1xi32>
  %i1 = stablehlo.constant dense<[2]> : tensor<1xi32>
  %i2 = stablehlo.constant dense<[3]> : tensor<1xi32>
  %r:3 = "interpreter.run_parallel"(%i0, %i1, %i2) {programs=[[@f], [@f], [@f]]} : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>)
  check.expect_eq_const %r#0, dense<[0]> : tensor<1xi32>
  check.expect_eq_const %r#1, dense<[3]> : tensor<1xi32>
  check.expect_eq_const %r#2, dense<[1]> : tensor<1xi32>
  func.return
}
}

// -----

// reduce_argmax_region
module {
func.func @main() {
  %x = stablehlo.constant dense<[[1.0, 7.0, 3.0], [9.0, 2.0, 9.0]]> : tensor<2x3xf32>
  %i = stablehlo.iota dim = 1 : tensor<2x3xi32>
  %m = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.reduce(%x init: %m), (%i init: %z) across dimensions = [1] : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
   reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<i32>, %d: tensor<i32>) {
    %ge = stablehlo.compare GE, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %v = stablehlo.select %ge, %a, %c : tensor<i1>, tensor<f32>
    %w = stablehlo.select %ge, %b, %d : tensor<i1>, tensor<i32>
    stablehlo.return %v, %w : tensor<f32>, tensor<i32>
  }
  check.expect_eq_const %r#0, dense<[7.0, 9.0]> : tensor<2xf32>
  check.expect_eq_const %r#1, dense<[1, 0]> : tensor<2xi32>
  func.return
}
}

// -----

// reduce_scatter_min_groups
module {
func.func @f(%x: tensor<1x4xi32>) -> tensor<1x2xi32> {
  %r = "stablehlo.reduce_scatter"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.minimum %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) {scatter_dimension = 1 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<1x4xi32>) -> tensor<1x2xi32>
  return %r : tensor<1x2xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[[1, 6, 3, 8]]> : tensor<1x4xi32>
  %i1 = stablehlo.constant dense<[[5, 2, 7, 4]]> : tensor<1x4xi32>
  %r:2 = "interpreter.run_parallel"(%i0, %i1) {programs=[[@f], [@f]]} : (tensor<1x4xi32>, tensor<1x4xi32>) -> (tensor<1x2xi32>, tensor<1x2xi32>)
  check.expect_eq_const %r#0, dense<[[3, 4]]> : tensor<1x2xi32>
  check.expect_eq_const %r#1, dense<[[1, 2]]> : tensor<1x2xi32>
  func.return
}
}

// -----

// reduce_window_dilated
module {
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r = "stablehlo.reduce_window"(%x, %z) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>, base_dilations = array<i64: 2>, window_dilations = array<i64: 2>, padding = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<4xi32>, tensor<i32>) -> tensor<3xi32>
  check.expect_eq_const %r, dense<[0, 0, 0]> : tensor<3xi32>
  func.return
}
}

// -----

// reduce_window_two
module {
func.func @main() {
  %x = stablehlo.constant dense<[[1, 5], [3, 4], [2, 9]]> : tensor<3x2xi32>
  %y = stablehlo.constant dense<[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]> : tensor<3x2xf32>
  %m = stablehlo.constant dense<-100> : tensor<i32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r:2 = "stablehlo.reduce_window"(%x, %y, %m, %z) ({
  ^bb0(%a: tensor<i32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<f32>):
    %s = stablehlo.maximum %a, %c : tensor<i32>
    %t = stablehlo.add %b, %d : tensor<f32>
    stablehlo.return %s, %t : tensor<i32>, tensor<f32>
  }) {window_dimensions = array<i64: 2, 1>, window_dilations = array<i64: 2, 1>} : (tensor<3x2xi32>, tensor<3x2xf32>, tensor<i32>, tensor<f32>) -> (tensor<1x2xi32>, tensor<1x2xf32>)
  check.expect_eq_const %r#0, dense<[[2, 9]]> : tensor<1x2xi32>
  check.expect_eq_const %r#1, dense<[[4.0, 4.0]]> : tensor<1x2xf32>
  func.return
}
}

// -----

// scatter_batching
module {
func.func @main() {
  %x = stablehlo.constant dense<0> : tensor<2x3xi32>
  %i = stablehlo.constant dense<[[[0], [2]], [[1], [1]]]> : tensor<2x2x1xi32>
  %u = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
  %r = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false} : (tensor<2x3xi32>, tensor<2x2x1xi32>, tensor<2x2xi32>) -> tensor<2x3xi32>
  check.expect_eq_const %r, dense<[[1, 0, 2], [0, 7, 0]]> : tensor<2x3xi32>
  func.return
}
}

// -----

// scatter_out_of_bounds
module {
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %i = stablehlo.constant dense<[[3], [-1], [1]]> : tensor<3x1xi32>
  %u = stablehlo.constant dense<[7, 8, 9]> : tensor<3xi32>
  %r = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    stablehlo.return %b : tensor<i32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<3xi32>, tensor<3x1xi32>, tensor<3xi32>) -> tensor<3xi32>
  check.expect_eq_const %r, dense<[1, 9, 3]> : tensor<3xi32>
  func.return
}
}

// -----

// scatter_two_inputs
module {
func.func @main() {
  %x = stablehlo.constant dense<[10, 20, 30]> : tensor<3xi32>
  %y = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %i = stablehlo.constant dense<[[2], [0]]> : tensor<2x1xi64>
  %u = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
  %v = stablehlo.constant dense<[0.5, 4.0]> : tensor<2xf32>
  %r:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) ({
  ^bb0(%a: tensor<i32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<f32>):
    %s = stablehlo.add %a, %c : tensor<i32>
    %m = stablehlo.multiply %b, %d : tensor<f32>
    stablehlo.return %s, %m : tensor<i32>, tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true} : (tensor<3xi32>, tensor<3xf32>, tensor<2x1xi64>, tensor<2xi32>, tensor<2xf32>) -> (tensor<3xi32>, tensor<3xf32>)
  check.expect_eq_const %r#0, dense<[16, 20, 35]> : tensor<3xi32>
  check.expect_eq_const %r#1, dense<[4.0, 2.0, 1.5]> : tensor<3xf32>
  func.return
}
}

// -----

// select_and_scatter_padded
module {
func.func @main() {
  %x = stablehlo.constant dense<[3, 1, 4, 1, 5]> : tensor<5xi32>
  %s = stablehlo.constant dense<[10, 20, 30]> : tensor<3xi32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r = "stablehlo.select_and_scatter"(%x, %s, %z) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.compare GE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) {window_dimensions = array<i64: 3>, window_strides = array<i64: 2>, padding = dense<[[1, 1]]> : tensor<1x2xi64>} : (tensor<5xi32>, tensor<3xi32>, tensor<i32>) -> tensor<5xi32>
  check.expect_eq_const %r, dense<[10, 0, 20, 0, 30]> : tensor<5xi32>
  func.return
}
}

// -----

// shifts_and_bits
module {
func.func @main() {
  %x = stablehlo.constant dense<[-8, 8, -1]> : tensor<3xi8>
  %s = stablehlo.constant dense<[1, 9, 7]> : tensor<3xi8>
  %a = stablehlo.shift_right_arithmetic %x, %s : tensor<3xi8>
  %b = stablehlo.shift_right_logical %x, %s : tensor<3xi8>
  %c = stablehlo.shift_left %x, %s : tensor<3xi8>
  %d = stablehlo.popcnt %x : tensor<3xi8>
  %e = stablehlo.count_leading_zeros %x : tensor<3xi8>
  check.expect_eq_const %a, dense<[-4, 0, -1]> : tensor<3xi8>
  check.expect_eq_const %b, dense<[124, 0, 1]> : tensor<3xi8>
  check.expect_eq_const %c, dense<[-16, 0, -128]> : tensor<3xi8>
  check.expect_eq_const %d, dense<[5, 1, 8]> : tensor<3xi8>
  check.expect_eq_const %e, dense<[0, 4, 0]> : tensor<3xi8>
  func.return
}
}

// -----

// sort_three_operands
module {
func.func @main() {
  %k = stablehlo.constant dense<[3, 1, 2, 1]> : tensor<4xi32>
  %a = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %b = stablehlo.constant dense<[10, 20, 30, 40]> : tensor<4xi64>
  %r:3 = "stablehlo.sort"(%k, %a, %b) ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>, %p: tensor<f32>, %q: tensor<f32>, %m: tensor<i64>, %n: tensor<i64>):
    %c = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<4xi32>, tensor<4xf32>, tensor<4xi64>) -> (tensor<4xi32>, tensor<4xf32>, tensor<4xi64>)
  check.expect_eq_const %r#0, dense<[1, 1, 2, 3]> : tensor<4xi32>
  check.expect_eq_const %r#1, dense<[2.0, 4.0, 3.0, 1.0]> : tensor<4xf32>
  check.expect_eq_const %r#2, dense<[20, 40, 30, 10]> : tensor<4xi64>
  func.return
}
}

// -----

// sort_two_keys
module {
func.func @main() {
  %k = stablehlo.constant dense<[2, 1, 2, 1]> : tensor<4xi32>
  %a = stablehlo.constant dense<[1.0, 2.0, 0.5, 4.0]> : tensor<4xf32>
  %r:2 = "stablehlo.sort"(%k, %a) ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>, %p: tensor<f32>, %q: tensor<f32>):
    %lt = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %eq = stablehlo.compare EQ, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %gt = stablehlo.compare GT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %and = stablehlo.and %eq, %gt : tensor<i1>
    %c = stablehlo.or %lt, %and : tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64, is_stable = false} : (tensor<4xi32>, tensor<4xf32>) -> (tensor<4xi32>, tensor<4xf32>)
  check.expect_eq_const %r#0, dense<[1, 1, 2, 2]> : tensor<4xi32>
  check.expect_eq_const %r#1, dense<[4.0, 2.0, 1.0, 0.5]> : tensor<4xf32>
  func.return
}
}

// -----

// variadic_all_reduce
module {
func.func @f(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = stablehlo.multiply %x, %x : tensor<2xi32>
  %r:2 = "stablehlo.all_reduce"(%x, %y) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
  %s = stablehlo.add %r#0, %r#1 : tensor<2xi32>
  return %s : tensor<2xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %i1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
  %r:2 = "interpreter.run_parallel"(%i0, %i1) {programs=[[@f], [@f]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
  check.expect_eq_const %r#0, dense<[14, 26]> : tensor<2xi32>
  check.expect_eq_const %r#1, dense<[14, 26]> : tensor<2xi32>
  func.return
}
}

// -----

// variadic_all_to_all
module {
func.func @f(%x: tensor<2xi32>) -> tensor<4xi32> {
  %y = stablehlo.negate %x : tensor<2xi32>
  %r:2 = "stablehlo.all_to_all"(%x, %y) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
  %s = stablehlo.concatenate %r#0, %r#1, dim = 0 : (tensor<2xi32>, tensor<2xi32>) -> tensor<4xi32>
  return %s : tensor<4xi32>
}
func.func @main() {
  %i0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %i1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
  %r:2 = "interpreter.run_parallel"(%i0, %i1) {programs=[[@f], [@f]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<4xi32>, tensor<4xi32>)
  check.expect_eq_const %r#0, dense<[1, 3, -1, -3]> : tensor<4xi32>
  check.expect_eq_const %r#1, dense<[2, 4, -2, -4]> : tensor<4xi32>
  func.return
}
}
