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
