// Random programs, with results that the definitions in the specification's text give, computed
// in another language.

// f16 e6m9
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0000003C00BC003800B8003E004100C1FF7BFFFB010001800004007C00FC00803248C392090E152A0112FF9F33136549EB2E064A5597FD26CC6B96D0D88DF82CBA642A82D002F4540C4B4E330D4D231B0CCF1FDBB8B2BD5CF032290CE7435B11D81B3DD60F438CAA879EAEDC8957FE6B"> : tensor<56xf16>
  %r0 = stablehlo.reduce_precision %a0, format = e6m9 : tensor<56xf16>
  %e0 = stablehlo.constant dense<"0x0000003C00BC003800B8003E004100C1007C00FC000000800004007C00FC00803248C492080E142A001200A034136449EC2E064A5497FC26CC6B96D0D88DF82CBA642A82D002F4540C4B4E330C4D241B0CCF20DBB8B2BC5CF032280CE8435C11D81B3CD610438CAA889EAEDC8857FE6B"> : tensor<56xf16>
  stablehlo.custom_call @check.expect_close(%r0, %e0) {has_side_effect = true, max_ulp_difference = 0 : ui64} : (tensor<56xf16>, tensor<56xf16>) -> ()
  return
}
}

// -----

// f8E4M3FNUZ i32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x01927921102AB4D66F155D58"> : tensor<3x4xf8E4M3FNUZ>
  %r0 = stablehlo.bitcast_convert %a0 : (tensor<3x4xf8E4M3FNUZ>) -> tensor<3xi32>
  %e0 = stablehlo.constant dense<"0x01927921102AB4D66F155D58"> : tensor<3xi32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xi32>, tensor<3xi32>) -> ()
  return
}
}

// -----

// i64 f8E4M3
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x4D0A9047554D1522970B3799A4A201952F97BBA871C9BA71"> : tensor<3xi64>
  %r0 = stablehlo.bitcast_convert %a0 : (tensor<3xi64>) -> tensor<3x8xf8E4M3>
  %e0 = stablehlo.constant dense<"0x4D0A9047554D1522970B3799A4A201952F97BBA871C9BA71"> : tensor<3x8xf8E4M3>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x8xf8E4M3>, tensor<3x8xf8E4M3>) -> ()
  return
}
}

// -----

// f32 bf16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xFD1ABC74FE89EC801BCEF16F"> : tensor<3xf32>
  %r0 = stablehlo.bitcast_convert %a0 : (tensor<3xf32>) -> tensor<3x2xbf16>
  %e0 = stablehlo.constant dense<"0xFD1ABC74FE89EC801BCEF16F"> : tensor<3x2xbf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x2xbf16>, tensor<3x2xbf16>) -> ()
  return
}
}

// -----

// f8E4M3FN to ui16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x003830B03C427E0181087F80532B4A59545B5164535F55"> : tensor<23xf8E4M3FN>
  %r0 = stablehlo.convert %a0 : (tensor<23xf8E4M3FN>) -> tensor<23xui16>
  %e0 = stablehlo.constant dense<"0x000001000000000001000200C001000000000000000000000B000000050012000C001600090030000B001E000D00"> : tensor<23xui16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<23xui16>, tensor<23xui16>) -> ()
  return
}
}

// -----

// f8E4M3 to f32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0038B830B03C42C277F70181087C78F88048614B5FDB3BD1DF69CA4AD7D3DA5AD0C346DC49"> : tensor<37xf8E4M3>
  %r0 = stablehlo.convert %a0 : (tensor<37xf8E4M3>) -> tensor<37xf32>
  %e0 = stablehlo.constant dense<"0x000000000000803F000080BF0000003F000000BF0000C03F00002040000020C000007043000070C30000003B000000BB0000803C0000C07F0000807F000080FF0000008000008040000010420000B0400000F0410000B0C10000B03F000010C10000F0C1000090420000A0C00000A040000070C1000030C10000A0C10000A041000000C1000030C0000060400000C0C100009040"> : tensor<37xf32>
  stablehlo.custom_call @check.expect_close(%r0, %e0) {has_side_effect = true, max_ulp_difference = 0 : ui64} : (tensor<37xf32>, tensor<37xf32>) -> ()
  return
}
}

// -----

// f8E4M3FN to f64
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0038B830B03C42C27EFE0181087F80532B4A59D8545BC9E3DCD8DA51D86453DDCB5F55"> : tensor<35xf8E4M3FN>
  %r0 = stablehlo.convert %a0 : (tensor<35xf8E4M3FN>) -> tensor<35xf64>
  %e0 = stablehlo.constant dense<"0x0000000000000000000000000000F03F000000000000F0BF000000000000E03F000000000000E0BF000000000000F83F000000000000044000000000000004C00000000000007C400000000000007CC0000000000000603F00000000000060BF000000000000903F000000000000F87F00000000000000800000000000002640000000000000D63F0000000000001440000000000000324000000000000030C00000000000002840000000000000364000000000000012C000000000000046C000000000000038C000000000000030C000000000000034C0000000000000224000000000000030C0000000000000484000000000000026400000000000003AC000000000000016C00000000000003E400000000000002A40"> : tensor<35xf64>
  stablehlo.custom_call @check.expect_close(%r0, %e0) {has_side_effect = true, max_ulp_difference = 0 : ui64} : (tensor<35xf64>, tensor<35xf64>) -> ()
  return
}
}

// -----

// maximum f32 [3, 0, 2] []
module {
func.func @main() {
  %a0 = stablehlo.constant dense<> : tensor<3x0x2xf32>
  %a1 = stablehlo.constant dense<"0x000040C0"> : tensor<f32>
  %r0 = "stablehlo.reduce"(%a0, %a1) <{dimensions = array<i64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %z = stablehlo.maximum %x, %y : tensor<f32>
    stablehlo.return %z : tensor<f32>
  }) : (tensor<3x0x2xf32>, tensor<f32>) -> tensor<3x0x2xf32>
  %e0 = stablehlo.constant dense<> : tensor<3x0x2xf32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x0x2xf32>, tensor<3x0x2xf32>) -> ()
  return
}
}

// -----

// multiply i8 [2, 3, 4] [0, 2]
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0405FC02FC06FF00FDFCFC02030006FB060606FD070000FC"> : tensor<2x3x4xi8>
  %a1 = stablehlo.constant dense<"0xFC"> : tensor<i8>
  %r0 = "stablehlo.reduce"(%a0, %a1) <{dimensions = array<i64: 0, 2>}> ({
  ^bb0(%x: tensor<i8>, %y: tensor<i8>):
    %z = stablehlo.multiply %x, %y : tensor<i8>
    stablehlo.return %z : tensor<i8>
  }) : (tensor<2x3x4xi8>, tensor<i8>) -> tensor<3xi8>
  %e0 = stablehlo.constant dense<"0x000000"> : tensor<3xi8>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xi8>, tensor<3xi8>) -> ()
  return
}
}

// -----

// minimum f64 [1, 1] []
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x000000000000F0BF"> : tensor<1x1xf64>
  %a1 = stablehlo.constant dense<"0x000000000000F07F"> : tensor<f64>
  %r0 = "stablehlo.reduce"(%a0, %a1) <{dimensions = array<i64>}> ({
  ^bb0(%x: tensor<f64>, %y: tensor<f64>):
    %z = stablehlo.minimum %x, %y : tensor<f64>
    stablehlo.return %z : tensor<f64>
  }) : (tensor<1x1xf64>, tensor<f64>) -> tensor<1x1xf64>
  %e0 = stablehlo.constant dense<"0x000000000000F0BF"> : tensor<1x1xf64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x1xf64>, tensor<1x1xf64>) -> ()
  return
}
}

// -----

// multiply f16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0044000000C200400040003C003C000000C4003C00C200BC00440000004200C400C200C200BC004400BC00440042003C00C2003C00C200BC00C400C400000000"> : tensor<2x4x4x1xf16>
  %a1 = stablehlo.constant dense<"0x0000"> : tensor<f16>
  %r0 = "stablehlo.reduce_window"(%a0, %a1) <{window_dimensions = array<i64: 1, 2, 3, 1>, window_strides = array<i64: 3, 2, 3, 2>, base_dilations = array<i64: 2, 1, 2, 2>, window_dilations = array<i64: 2, 2, 2, 1>, padding = dense<[[2, 0], [0, 2], [1, 1], [2, -1]]> : tensor<4x2xi64>}> ({
  ^bb0(%x: tensor<f16>, %y: tensor<f16>):
    %z = stablehlo.multiply %x, %y : tensor<f16>
    stablehlo.return %z : tensor<f16>
  }) : (tensor<2x4x4x1xf16>, tensor<f16>) -> tensor<2x2x2x1xf16>
  %e0 = stablehlo.constant dense<"0x00000000000000000000000000000000"> : tensor<2x2x2x1xf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x2x2x1xf16>, tensor<2x2x2x1xf16>) -> ()
  return
}
}

// -----

// add ui8
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x000100030501050502010304040703070400050404040202"> : tensor<3x4x2xui8>
  %a1 = stablehlo.constant dense<"0x00"> : tensor<ui8>
  %r0 = "stablehlo.reduce_window"(%a0, %a1) <{window_dimensions = array<i64: 3, 1, 3>, window_strides = array<i64: 3, 2, 2>, base_dilations = array<i64: 2, 2, 1>, window_dilations = array<i64: 1, 2, 2>, padding = dense<[[0, 2], [2, 0], [1, 1]]> : tensor<3x2xi64>}> ({
  ^bb0(%x: tensor<ui8>, %y: tensor<ui8>):
    %z = stablehlo.add %x, %y : tensor<ui8>
    stablehlo.return %z : tensor<ui8>
  }) : (tensor<3x4x2xui8>, tensor<ui8>) -> tensor<2x5x0xui8>
  %e0 = stablehlo.constant dense<> : tensor<2x5x0xui8>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x5x0xui8>, tensor<2x5x0xui8>) -> ()
  return
}
}

// -----

// minimum i64
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0600000000000000FDFFFFFFFFFFFFFF020000000000000005000000000000000100000000000000070000000000000003000000000000000000000000000000"> : tensor<8xi64>
  %a1 = stablehlo.constant dense<"0xFFFFFFFFFFFFFF7F"> : tensor<i64>
  %r0 = "stablehlo.reduce_window"(%a0, %a1) <{window_dimensions = array<i64: 3>, window_strides = array<i64: 1>, base_dilations = array<i64: 1>, window_dilations = array<i64: 1>, padding = dense<[[0, -1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<i64>, %y: tensor<i64>):
    %z = stablehlo.minimum %x, %y : tensor<i64>
    stablehlo.return %z : tensor<i64>
  }) : (tensor<8xi64>, tensor<i64>) -> tensor<5xi64>
  %e0 = stablehlo.constant dense<"0xFDFFFFFFFFFFFFFFFDFFFFFFFFFFFFFF010000000000000001000000000000000100000000000000"> : tensor<5xi64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<5xi64>, tensor<5xi64>) -> ()
  return
}
}

// -----

// dynamic_iota f8E4M3
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x030000000000000004000000000000000200000000000000"> : tensor<3xi64>
  %r0 = stablehlo.dynamic_iota %a0, dim = 2 : (tensor<3xi64>) -> tensor<3x4x2xf8E4M3>
  %e0 = stablehlo.constant dense<"0x003800380038003800380038003800380038003800380038"> : tensor<3x4x2xf8E4M3>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x4x2xf8E4M3>, tensor<3x4x2xf8E4M3>) -> ()
  return
}
}

// -----

// dynamic_slice f8E5M2 i16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x4440C4BCBC3C4200C03C3CC4C24440403C42003CBCC0424400C442004442"> : tensor<5x6xf8E5M2>
  %a1 = stablehlo.constant dense<"0x0500"> : tensor<i16>
  %a2 = stablehlo.constant dense<"0x0900"> : tensor<i16>
  %r0 = stablehlo.dynamic_slice %a0, %a1, %a2, sizes = [3, 4] : (tensor<5x6xf8E5M2>, tensor<i16>, tensor<i16>) -> tensor<3x4xf8E5M2>
  %e0 = stablehlo.constant dense<"0x40403C42BCC0424442004442"> : tensor<3x4xf8E5M2>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x4xf8E5M2>, tensor<3x4xf8E5M2>) -> ()
  return
}
}

// -----

// transpose bf16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x404080BF80BF803F803F00404040000080BF803F404000C000C080BF404040C080C040400040000080C080C000008040"> : tensor<3x4x2xbf16>
  %r0 = stablehlo.transpose %a0, dims = [0, 1, 2] : (tensor<3x4x2xbf16>) -> tensor<3x4x2xbf16>
  %e0 = stablehlo.constant dense<"0x404080BF80BF803F803F00404040000080BF803F404000C000C080BF404040C080C040400040000080C080C000008040"> : tensor<3x4x2xbf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x4x2xbf16>, tensor<3x4x2xbf16>) -> ()
  return
}
}

// -----

// pad f8E5M2FNUZ
module {
func.func @main() {
  %a0 = stablehlo.constant dense<> : tensor<0x3xf8E5M2FNUZ>
  %a1 = stablehlo.constant dense<"0xC0"> : tensor<f8E5M2FNUZ>
  %r0 = stablehlo.pad %a0, %a1, low = [-1, -2], high = [1, 2], interior = [1, 0] : (tensor<0x3xf8E5M2FNUZ>, tensor<f8E5M2FNUZ>) -> tensor<0x3xf8E5M2FNUZ>
  %e0 = stablehlo.constant dense<> : tensor<0x3xf8E5M2FNUZ>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<0x3xf8E5M2FNUZ>, tensor<0x3xf8E5M2FNUZ>) -> ()
  return
}
}

// -----

// reverse i64
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x06000000000000000100000000000000050000000000000007000000000000000200000000000000FCFFFFFFFFFFFFFFFCFFFFFFFFFFFFFF"> : tensor<7xi64>
  %r0 = stablehlo.reverse %a0, dims = [] : tensor<7xi64>
  %e0 = stablehlo.constant dense<"0x06000000000000000100000000000000050000000000000007000000000000000200000000000000FCFFFFFFFFFFFFFFFCFFFFFFFFFFFFFF"> : tensor<7xi64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<7xi64>, tensor<7xi64>) -> ()
  return
}
}

// -----

// dynamic_iota ui16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x05000000000000000600000000000000"> : tensor<2xi64>
  %r0 = stablehlo.dynamic_iota %a0, dim = 1 : (tensor<2xi64>) -> tensor<5x6xui16>
  %e0 = stablehlo.constant dense<"0x000001000200030004000500000001000200030004000500000001000200030004000500000001000200030004000500000001000200030004000500"> : tensor<5x6xui16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<5x6xui16>, tensor<5x6xui16>) -> ()
  return
}
}

// -----

// select f8E5M2FNUZ
module {
func.func @main() {
  %a0 = stablehlo.constant dense<true> : tensor<i1>
  %a1 = stablehlo.constant dense<"0x000044C0C8C6C600C8C6C046C0C848484044C8484040C440"> : tensor<3x4x2xf8E5M2FNUZ>
  %a2 = stablehlo.constant dense<"0x44C60000C600C4C040444844C6C446404640C4C0C0C848C6"> : tensor<3x4x2xf8E5M2FNUZ>
  %r0 = stablehlo.select %a0, %a1, %a2 : tensor<i1>, tensor<3x4x2xf8E5M2FNUZ>
  %e0 = stablehlo.constant dense<"0x000044C0C8C6C600C8C6C046C0C848484044C8484040C440"> : tensor<3x4x2xf8E5M2FNUZ>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x4x2xf8E5M2FNUZ>, tensor<3x4x2xf8E5M2FNUZ>) -> ()
  return
}
}

// -----

// transpose i64
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x06000000000000000100000000000000050000000000000007000000000000000200000000000000FCFFFFFFFFFFFFFFFCFFFFFFFFFFFFFF"> : tensor<7xi64>
  %r0 = stablehlo.transpose %a0, dims = [0] : (tensor<7xi64>) -> tensor<7xi64>
  %e0 = stablehlo.constant dense<"0x06000000000000000100000000000000050000000000000007000000000000000200000000000000FCFFFFFFFFFFFFFFFCFFFFFFFFFFFFFF"> : tensor<7xi64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<7xi64>, tensor<7xi64>) -> ()
  return
}
}

// -----

// GT f16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x003C00BC004000C4003C00C400C200C400C0"> : tensor<9xf16>
  %i = stablehlo.iota dim = 0 : tensor<9xi32>
  %r0, %r1 = "stablehlo.sort"(%a0, %i) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%x: tensor<f16>, %y: tensor<f16>, %u: tensor<i32>, %v: tensor<i32>):
    %z = stablehlo.compare GT, %x, %y : (tensor<f16>, tensor<f16>) -> tensor<i1>
    stablehlo.return %z : tensor<i1>
  }) : (tensor<9xf16>, tensor<9xi32>) -> (tensor<9xf16>, tensor<9xi32>)
  %e0 = stablehlo.constant dense<"0x0040003C003C00BC00C000C200C400C400C4"> : tensor<9xf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<9xf16>, tensor<9xf16>) -> ()
  %e1 = stablehlo.constant dense<"0x020000000000000004000000010000000800000006000000030000000500000007000000"> : tensor<9xi32>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<9xi32>, tensor<9xi32>) -> ()
  return
}
}

// -----

// GT i1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<[false, false, false, true, true, false, false, false, true]> : tensor<9xi1>
  %i = stablehlo.iota dim = 0 : tensor<9xi32>
  %r0, %r1 = "stablehlo.sort"(%a0, %i) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%x: tensor<i1>, %y: tensor<i1>, %u: tensor<i32>, %v: tensor<i32>):
    %z = stablehlo.compare GT, %x, %y : (tensor<i1>, tensor<i1>) -> tensor<i1>
    stablehlo.return %z : tensor<i1>
  }) : (tensor<9xi1>, tensor<9xi32>) -> (tensor<9xi1>, tensor<9xi32>)
  %e0 = stablehlo.constant dense<[true, true, true, false, false, false, false, false, false]> : tensor<9xi1>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<9xi1>, tensor<9xi1>) -> ()
  %e1 = stablehlo.constant dense<"0x030000000400000008000000000000000100000002000000050000000600000007000000"> : tensor<9xi32>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<9xi32>, tensor<9xi32>) -> ()
  return
}
}

// -----

// i16 i64
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x04000700FDFFFDFF0500"> : tensor<1x5x1xi16>
  %a1 = stablehlo.constant dense<"0x0100000000000000FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF01000000000000000600000000000000"> : tensor<1x5xi64>
  %r0 = "stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], operand_batching_dims = [1], start_indices_batching_dims = [1], start_index_map = [0], index_vector_dim = 0>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<1x5x1xi16>, tensor<1x5xi64>) -> tensor<5x1x1xi16>
  %e0 = stablehlo.constant dense<"0x04000700FDFFFDFF0500"> : tensor<5x1x1xi16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<5x1x1xi16>, tensor<5x1x1xi16>) -> ()
  return
}
}

// -----

// f8E5M2 i64
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x44C4C23C40C4"> : tensor<2x3xf8E5M2>
  %a1 = stablehlo.constant dense<"0xFFFFFFFFFFFFFFFFFEFFFFFFFFFFFFFF"> : tensor<1x2x1xi64>
  %r0 = "stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], operand_batching_dims = [0], start_indices_batching_dims = [1], start_index_map = [1], index_vector_dim = 0>, indices_are_sorted = false, slice_sizes = array<i64: 1, 3>}> : (tensor<2x3xf8E5M2>, tensor<1x2x1xi64>) -> tensor<2x1x3xf8E5M2>
  %e0 = stablehlo.constant dense<"0x44C4C23C40C4"> : tensor<2x1x3xf8E5M2>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x1x3xf8E5M2>, tensor<2x1x3xf8E5M2>) -> ()
  return
}
}

// -----

// ui32 i32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x040000000200000004000000070000000400000001000000"> : tensor<2x1x3xui32>
  %a1 = stablehlo.constant dense<"0x040000000400000006000000FEFFFFFF"> : tensor<1x2x2xi32>
  %r0 = "stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], operand_batching_dims = [1], start_indices_batching_dims = [0], start_index_map = [2, 0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 3>}> : (tensor<2x1x3xui32>, tensor<1x2x2xi32>) -> tensor<1x3x2xui32>
  %e0 = stablehlo.constant dense<"0x070000000400000004000000020000000100000004000000"> : tensor<1x3x2xui32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x3x2xui32>, tensor<1x3x2xui32>) -> ()
  return
}
}

// -----

// i1 ui32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<[[[[true, false, false, false, false]], [[true, true, false, true, false]]], [[[false, true, false, false, true]], [[false, false, false, false, false]]]]> : tensor<2x2x1x5xi1>
  %a1 = stablehlo.constant dense<"0x00000000"> : tensor<1xui32>
  %r0 = "stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 2, 3], start_index_map = [3], index_vector_dim = 0>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 0, 1>}> : (tensor<2x2x1x5xi1>, tensor<1xui32>) -> tensor<1x1x0x1xi1>
  %e0 = stablehlo.constant dense<> : tensor<1x1x0x1xi1>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x1x0x1xi1>, tensor<1x1x0x1xi1>) -> ()
  return
}
}

// -----

// ui16 ui32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x050007000300030005000700070001000300070004000700"> : tensor<3x2x2xui16>
  %a1 = stablehlo.constant dense<"0x000000000100000004000000040000000200000002000000020000000200000006000000030000000000000004000000"> : tensor<2x3x2xui32>
  %r0 = "stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [1, 2], index_vector_dim = 0>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2, 2>}> : (tensor<3x2x2xui16>, tensor<2x3x2xui32>) -> tensor<3x2x2x2xui16>
  %e0 = stablehlo.constant dense<"0x050005000700070003000300030003000500050007000700030003000300030005000500070007000300030003000300"> : tensor<3x2x2x2xui16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x2x2x2xui16>, tensor<3x2x2x2xui16>) -> ()
  return
}
}

// -----

// ui8 i16 or 1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0501030607030403020702020507070502000204"> : tensor<1x2x5x2xui8>
  %a1 = stablehlo.constant dense<"0x010003000400FFFFFFFF00000200FFFF"> : tensor<4x2xi16>
  %a2 = stablehlo.constant dense<"0x0406000403070606"> : tensor<1x4x2x1xui8>
  %r0 = "stablehlo.scatter"(%a0, %a1, %a2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 3], inserted_window_dims = [1], input_batching_dims = [3], scatter_indices_batching_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%x: tensor<ui8>, %y: tensor<ui8>):
    %z = stablehlo.or %x, %y : tensor<ui8>
    stablehlo.return %z : tensor<ui8>
  }) : (tensor<1x2x5x2xui8>, tensor<4x2xi16>, tensor<1x4x2x1xui8>) -> tensor<1x2x5x2xui8>
  %e0 = stablehlo.constant dense<"0x0507030607030403020702020507070502000204"> : tensor<1x2x5x2xui8>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x2x5x2xui8>, tensor<1x2x5x2xui8>) -> ()
  return
}
}

// -----

// f16 ui32 multiply 1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0000"> : tensor<1xf16>
  %a1 = stablehlo.constant dense<"0x02000000010000000400000004000000"> : tensor<1x4x1xui32>
  %a2 = stablehlo.constant dense<"0x000000C4003C00BC"> : tensor<1x4xf16>
  %r0 = "stablehlo.scatter"(%a0, %a1, %a2) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%x: tensor<f16>, %y: tensor<f16>):
    %z = stablehlo.multiply %x, %y : tensor<f16>
    stablehlo.return %z : tensor<f16>
  }) : (tensor<1xf16>, tensor<1x4x1xui32>, tensor<1x4xf16>) -> tensor<1xf16>
  %e0 = stablehlo.constant dense<"0x0000"> : tensor<1xf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1xf16>, tensor<1xf16>) -> ()
  return
}
}

// -----

// f8E5M2 ui16 assign 1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x420000C4C400C0C2C0C0"> : tensor<2x1x1x5xf8E5M2>
  %a1 = stablehlo.constant dense<"0x02000000"> : tensor<2xui16>
  %a2 = stablehlo.constant dense<"0xBCBCBCBCBCBCBCBC"> : tensor<2x1x1x4xf8E5M2>
  %r0 = "stablehlo.scatter"(%a0, %a1, %a2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1, 2, 3], scatter_dims_to_operand_dims = [2, 0], index_vector_dim = 0>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%x: tensor<f8E5M2>, %y: tensor<f8E5M2>):
    stablehlo.return %y : tensor<f8E5M2>
  }) : (tensor<2x1x1x5xf8E5M2>, tensor<2xui16>, tensor<2x1x1x4xf8E5M2>) -> tensor<2x1x1x5xf8E5M2>
  %e0 = stablehlo.constant dense<"0x420000C4C400C0C2C0C0"> : tensor<2x1x1x5xf8E5M2>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x1x1x5xf8E5M2>, tensor<2x1x1x5xf8E5M2>) -> ()
  return
}
}

// -----

// f16 ui64 maximum 1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x003C00C000400042"> : tensor<2x2xf16>
  %a1 = stablehlo.constant dense<"0x00000000000000000300000000000000"> : tensor<1x2xui64>
  %a2 = stablehlo.constant dense<"0x00BC"> : tensor<1x1xf16>
  %r0 = "stablehlo.scatter"(%a0, %a1, %a2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%x: tensor<f16>, %y: tensor<f16>):
    %z = stablehlo.maximum %x, %y : tensor<f16>
    stablehlo.return %z : tensor<f16>
  }) : (tensor<2x2xf16>, tensor<1x2xui64>, tensor<1x1xf16>) -> tensor<2x2xf16>
  %e0 = stablehlo.constant dense<"0x003C00C000400042"> : tensor<2x2xf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x2xf16>, tensor<2x2xf16>) -> ()
  return
}
}

// -----

// i32->i32 2d g1 bg1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xFEFFFFFF07000000FFFFFFFFFFFFFFFF06000000010000000600000001000000FCFFFFFFFDFFFFFF0500000006000000"> : tensor<3x4x1x1xi32>
  %a1 = stablehlo.constant dense<"0x01000000FBFFFFFF0400000004000000"> : tensor<2x1x1x2xi32>
  %r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [1, 0, f, b]x[o, 0, i, 1]->[1, b, f, 0], window = {stride = [2, 3], pad = [[-1, 2], [1, -1]], lhs_dilate = [1, 1], rhs_dilate = [1, 2], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<3x4x1x1xi32>, tensor<2x1x1x2xi32>) -> tensor<1x1x2x3xi32>
  %e0 = stablehlo.constant dense<"0xFBFFFFFFFBFFFFFF00000000040000000400000000000000"> : tensor<1x1x2x3xi32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x1x2x3xi32>, tensor<1x1x2x3xi32>) -> ()
  return
}
}

// -----

// ui32->ui32 1d g3 bg1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x070000000200000001000000030000000100000002000000010000000700000003000000040000000300000004000000040000000300000005000000000000000500000007000000020000000300000000000000030000000300000006000000"> : tensor<3x4x2xui32>
  %a1 = stablehlo.constant dense<"0x070000000300000000000000010000000600000001000000040000000200000005000000"> : tensor<3x1x3xui32>
  %r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [f, 0, b]x[o, i, 0]->[f, b, 0], window = {stride = [3], pad = [[0, 1]], lhs_dilate = [2], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<3x4x2xui32>, tensor<3x1x3xui32>) -> tensor<3x2x2xui32>
  %e0 = stablehlo.constant dense<"0x31000000030000000E00000006000000060000001800000008000000120000001E000000000000002B00000006000000"> : tensor<3x2x2xui32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x2x2xui32>, tensor<3x2x2xui32>) -> ()
  return
}
}

// -----

// i16->i16 2d g1 bg1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0600FEFF0300FFFF0100020001000100FEFF070000000700FFFFFBFFFFFFFFFFFEFFFFFFFFFF0400FDFF0300FDFFFDFF07000700FBFF06000100FDFF"> : tensor<3x2x1x5xi16>
  %a1 = stablehlo.constant dense<"0xFBFFFEFF00000300FEFF0100070004000600020001000400FEFF0600000001000000070005000500FDFF030002000600FBFF040006000100FBFFFDFF050002000100050000000000"> : tensor<3x2x2x3xi16>
  %r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [1, f, b, 0]x[0, i, o, 1]->[f, 0, b, 1], window = {stride = [1, 1], pad = [[1, 0], [-1, 2]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<3x2x1x5xi16>, tensor<3x2x2x3xi16>) -> tensor<2x4x1x2xi16>
  %e0 = stablehlo.constant dense<"0x3E00F8FF14002D00C0FFBFFF22004800E4FF0C003600190011000700C0FFF1FF"> : tensor<2x4x1x2xi16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x4x1x2xi16>, tensor<2x4x1x2xi16>) -> ()
  return
}
}

// -----

// f32->f64 1d g1 bg1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x000080BF000080BF00000040000000C000000000000080400000804000008040000080BF000080BF000080C00000404000004040000080BF0000803F00000040"> : tensor<2x4x2xf32>
  %a1 = stablehlo.constant dense<"0x000000C000000040000080C00000404000000040000000C0"> : tensor<3x2x1xf32>
  %r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [b, 0, f]x[0, i, o]->[0, f, b], window = {stride = [3], pad = [[1, -1]], lhs_dilate = [2], rhs_dilate = [1], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<2x4x2xf32>, tensor<3x2x1xf32>) -> tensor<2x1x2xf64>
  %e0 = stablehlo.constant dense<"0x000000000000F03F000000000000F03F000000000000304000000000000036C0"> : tensor<2x1x2xf64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x1x2xf64>, tensor<2x1x2xf64>) -> ()
  return
}
}

// -----

// bf16->bf16 1d g1 bg1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x40C0000080BF804080BF40C0"> : tensor<2x1x3xbf16>
  %a1 = stablehlo.constant dense<"0x0000803F00C0004080BF00C080BF80BF00C080C080C04040"> : tensor<2x2x3xbf16>
  %r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [f, b, 0]x[o, i, 0]->[0, f, b], window = {stride = [2], pad = [[0, 1]], lhs_dilate = [2], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<2x1x3xbf16>, tensor<2x2x3xbf16>) -> tensor<2x2x1xbf16>
  %e0 = stablehlo.constant dense<"0x204180C1C04040C0"> : tensor<2x2x1xbf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x2x1xbf16>, tensor<2x2x1xbf16>) -> ()
  return
}
}

// -----

// i64->i64 1d g1 bg1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xFCFFFFFFFFFFFFFF070000000000000004000000000000000700000000000000FCFFFFFFFFFFFFFFFBFFFFFFFFFFFFFF0100000000000000FDFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF0700000000000000FCFFFFFFFFFFFFFF0100000000000000"> : tensor<1x6x2xi64>
  %a1 = stablehlo.constant dense<"0xFBFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"> : tensor<1x2x1xi64>
  %r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [f, 0, b]x[o, 0, i]->[f, b, 0], window = {stride = [3], pad = [[0, -1]], lhs_dilate = [2], rhs_dilate = [2], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<1x6x2xi64>, tensor<1x2x1xi64>) -> tensor<1x2x3xi64>
  %e0 = stablehlo.constant dense<"0x10000000000000000000000000000000FCFFFFFFFFFFFFFFD6FFFFFFFFFFFFFF00000000000000000800000000000000"> : tensor<1x2x3xi64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x2x3xi64>, tensor<1x2x3xi64>) -> ()
  return
}
}

// -----

// ui8->ui8 3d g1 bg3
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x010607070705"> : tensor<6x1x1x1x1xui8>
  %a1 = stablehlo.constant dense<"0x060700010500050700040205060701070501030606010407000100060001030405040303"> : tensor<1x6x2x1x3xui8>
  %r0 = stablehlo.convolution(%a0, %a1) dim_numbers = [b, 1, 0, f, 2]x[0, o, 2, i, 1]->[2, 1, f, 0, b], window = {stride = [3, 2, 3], pad = [[0, 0], [2, 2], [1, 1]], lhs_dilate = [2, 1, 1], rhs_dilate = [2, 2, 2], reverse = [true, false, true]} {batch_group_count = 3 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<6x1x1x1x1xui8>, tensor<1x6x2x1x3xui8>) -> tensor<1x1x6x1x2xui8>
  %e0 = stablehlo.constant dense<"0x000000000000000000000000"> : tensor<1x1x6x1x2xui8>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x1x6x1x2xui8>, tensor<1x1x6x1x2xui8>) -> ()
  return
}
}

// -----

// ui8 i8 i32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x07040700"> : tensor<1x2x1x2xui8>
  %a1 = stablehlo.constant dense<"0xFD01"> : tensor<2x1x1xi8>
  %r0 = stablehlo.dot_general %a0, %a1, batching_dims = [2, 0] x [2, 1], contracting_dims = [3] x [0] : (tensor<1x2x1x2xui8>, tensor<2x1x1xi8>) -> tensor<1x1x2xi32>
  %e0 = stablehlo.constant dense<"0xEFFFFFFFEBFFFFFF"> : tensor<1x1x2xi32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x1x2xi32>, tensor<1x1x2xi32>) -> ()
  return
}
}

// -----

// i8 i8 i32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x07FF02010205FEFE06"> : tensor<3x1x3xi8>
  %a1 = stablehlo.constant dense<"0x01FF0007FD00FD0400"> : tensor<3x3xi8>
  %r0 = stablehlo.dot_general %a0, %a1, batching_dims = [2] x [1], contracting_dims = [0] x [0] : (tensor<3x1x3xi8>, tensor<3x3xi8>) -> tensor<3x1xi32>
  %e0 = stablehlo.constant dense<"0x14000000F3FFFFFF00000000"> : tensor<3x1xi32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x1xi32>, tensor<3x1xi32>) -> ()
  return
}
}

// -----

// i16 i16 i32
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0100"> : tensor<i16>
  %a1 = stablehlo.constant dense<"0x0300"> : tensor<i16>
  %r0 = stablehlo.dot_general %a0, %a1, contracting_dims = [] x [] : (tensor<i16>, tensor<i16>) -> tensor<i32>
  %e0 = stablehlo.constant dense<"0x03000000"> : tensor<i32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<i32>, tensor<i32>) -> ()
  return
}
}

// -----

// f8E4M3FN f8E5M2 bf16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xC448C8C4C4C044C44040C438C838C044C0C84444C848C8C448C8C4"> : tensor<3x3x3xf8E4M3FN>
  %a1 = stablehlo.constant dense<"0x40C43C"> : tensor<3xf8E5M2>
  %r0 = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : (tensor<3x3x3xf8E4M3FN>, tensor<3xf8E5M2>) -> tensor<3x3xbf16>
  %e0 = stablehlo.constant dense<"0x104188410040B84140C1C040C0C09041803F"> : tensor<3x3xbf16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x3xbf16>, tensor<3x3xbf16>) -> ()
  return
}
}

// -----

// maximum f8E5M2FNUZ [2, 3, 4] [0, 1, 2]
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x46C6C6C8C800C04646484440C8004844C4C4C8C640C4C000"> : tensor<2x3x4xf8E5M2FNUZ>
  %a1 = stablehlo.constant dense<"0xFF"> : tensor<f8E5M2FNUZ>
  %r0 = "stablehlo.reduce"(%a0, %a1) <{dimensions = array<i64: 0, 1, 2>}> ({
  ^bb0(%x: tensor<f8E5M2FNUZ>, %y: tensor<f8E5M2FNUZ>):
    %z = stablehlo.maximum %x, %y : tensor<f8E5M2FNUZ>
    stablehlo.return %z : tensor<f8E5M2FNUZ>
  }) : (tensor<2x3x4xf8E5M2FNUZ>, tensor<f8E5M2FNUZ>) -> tensor<f8E5M2FNUZ>
  %e0 = stablehlo.constant dense<"0x48"> : tensor<f8E5M2FNUZ>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<f8E5M2FNUZ>, tensor<f8E5M2FNUZ>) -> ()
  return
}
}

// -----

// maximum f8E3M4 [1, 1] [0]
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xB0"> : tensor<1x1xf8E3M4>
  %a1 = stablehlo.constant dense<"0xB0"> : tensor<f8E3M4>
  %r0 = "stablehlo.reduce"(%a0, %a1) <{dimensions = array<i64: 0>}> ({
  ^bb0(%x: tensor<f8E3M4>, %y: tensor<f8E3M4>):
    %z = stablehlo.maximum %x, %y : tensor<f8E3M4>
    stablehlo.return %z : tensor<f8E3M4>
  }) : (tensor<1x1xf8E3M4>, tensor<f8E3M4>) -> tensor<1xf8E3M4>
  %e0 = stablehlo.constant dense<"0xB0"> : tensor<1xf8E3M4>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<1xf8E3M4>, tensor<1xf8E3M4>) -> ()
  return
}
}

// -----

// minimum f8E5M2FNUZ
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xC400404448C448C000C6464848C844C40046464600C600C8"> : tensor<3x4x2xf8E5M2FNUZ>
  %a1 = stablehlo.constant dense<"0x7F"> : tensor<f8E5M2FNUZ>
  %r0 = "stablehlo.reduce_window"(%a0, %a1) <{window_dimensions = array<i64: 1, 3, 2>, window_strides = array<i64: 2, 3, 3>, base_dilations = array<i64: 1, 2, 2>, window_dilations = array<i64: 1, 2, 1>, padding = dense<[[0, 0], [1, 2], [-1, 2]]> : tensor<3x2xi64>}> ({
  ^bb0(%x: tensor<f8E5M2FNUZ>, %y: tensor<f8E5M2FNUZ>):
    %z = stablehlo.minimum %x, %y : tensor<f8E5M2FNUZ>
    stablehlo.return %z : tensor<f8E5M2FNUZ>
  }) : (tensor<3x4x2xf8E5M2FNUZ>, tensor<f8E5M2FNUZ>) -> tensor<2x2x1xf8E5M2FNUZ>
  %e0 = stablehlo.constant dense<"0x7FC47FC8"> : tensor<2x2x1xf8E5M2FNUZ>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2x2x1xf8E5M2FNUZ>, tensor<2x2x1xf8E5M2FNUZ>) -> ()
  return
}
}

// -----

// maximum f8E5M2FNUZ
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xC0C64600C040C448"> : tensor<8xf8E5M2FNUZ>
  %a1 = stablehlo.constant dense<"0xFF"> : tensor<f8E5M2FNUZ>
  %r0 = "stablehlo.reduce_window"(%a0, %a1) <{window_dimensions = array<i64: 3>, window_strides = array<i64: 2>, base_dilations = array<i64: 2>, window_dilations = array<i64: 2>, padding = dense<[[-1, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f8E5M2FNUZ>, %y: tensor<f8E5M2FNUZ>):
    %z = stablehlo.maximum %x, %y : tensor<f8E5M2FNUZ>
    stablehlo.return %z : tensor<f8E5M2FNUZ>
  }) : (tensor<8xf8E5M2FNUZ>, tensor<f8E5M2FNUZ>) -> tensor<5xf8E5M2FNUZ>
  %e0 = stablehlo.constant dense<"0xFFFFFFFFFF"> : tensor<5xf8E5M2FNUZ>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<5xf8E5M2FNUZ>, tensor<5xf8E5M2FNUZ>) -> ()
  return
}
}

// -----

// minimum f8E4M3FN
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x44444848B8440048C0C0000048C4C4C048C00000000048444840C0C838C44448"> : tensor<2x4x4x1xf8E4M3FN>
  %a1 = stablehlo.constant dense<"0x7E"> : tensor<f8E4M3FN>
  %r0 = "stablehlo.reduce_window"(%a0, %a1) <{window_dimensions = array<i64: 1, 2, 1, 2>, window_strides = array<i64: 1, 3, 1, 1>, base_dilations = array<i64: 2, 1, 2, 2>, window_dilations = array<i64: 2, 2, 1, 1>, padding = dense<[[-1, 1], [0, -1], [0, 0], [2, 1]]> : tensor<4x2xi64>}> ({
  ^bb0(%x: tensor<f8E4M3FN>, %y: tensor<f8E4M3FN>):
    %z = stablehlo.minimum %x, %y : tensor<f8E4M3FN>
    stablehlo.return %z : tensor<f8E4M3FN>
  }) : (tensor<2x4x4x1xf8E4M3FN>, tensor<f8E4M3FN>) -> tensor<3x1x7x3xf8E4M3FN>
  %e0 = stablehlo.constant dense<"0x7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E48487E7E7E7EC0C07E7E7E7EC0C07E7E7E7EC8C87E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E7E"> : tensor<3x1x7x3xf8E4M3FN>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3x1x7x3xf8E4M3FN>, tensor<3x1x7x3xf8E4M3FN>) -> ()
  return
}
}

// -----

// LE minimum f8E3M4
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x50D0C0C8C8C050C0C050B0D000B0D0B0B000C8D03048C0B0"> : tensor<4x6xf8E3M4>
  %a1 = stablehlo.constant dense<"0xC0D0B0C830"> : tensor<1x5xf8E3M4>
  %a2 = stablehlo.constant dense<"0xD0"> : tensor<f8E3M4>
  %r0 = "stablehlo.select_and_scatter"(%a0, %a1, %a2) <{window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 2, 1>, padding = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f8E3M4>, %y: tensor<f8E3M4>):
    %z = stablehlo.compare LE, %x, %y : (tensor<f8E3M4>, tensor<f8E3M4>) -> tensor<i1>
    stablehlo.return %z : tensor<i1>
  }, {
  ^bb0(%x: tensor<f8E3M4>, %y: tensor<f8E3M4>):
    %z = stablehlo.minimum %x, %y : tensor<f8E3M4>
    stablehlo.return %z : tensor<f8E3M4>
  }) : (tensor<4x6xf8E3M4>, tensor<1x5xf8E3M4>, tensor<f8E3M4>) -> tensor<4x6xf8E3M4>
  %e0 = stablehlo.constant dense<"0xD0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0D0"> : tensor<4x6xf8E3M4>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<4x6xf8E3M4>, tensor<4x6xf8E3M4>) -> ()
  return
}
}

// -----

// DEFAULT 3 i32 8
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xC4B603090333AB4213D562F01C152646CA36F5B1E07D80FC"> : tensor<3xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = DEFAULT : (tensor<3xui64>) -> (tensor<3xui64>, tensor<8xi32>)
  %e0 = stablehlo.constant dense<"0xC4B603090333AB4215D562F01C152646CA36F5B1E07D80FC"> : tensor<3xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xui64>, tensor<3xui64>) -> ()
  %e1 = stablehlo.constant dense<"0xA9BA6E902AF2AAD208AEA34AD8DEC6A79B92A0A64C2E74FE2D0E26CD4E66A241"> : tensor<8xi32>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<8xi32>, tensor<8xi32>) -> ()
  return
}
}

// -----

// THREE_FRY 2 i16 4
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x55288F544128566489BD695D4F99CB98"> : tensor<2xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xi16>)
  %e0 = stablehlo.constant dense<"0x55288F54412856648BBD695D4F99CB98"> : tensor<2xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2xui64>, tensor<2xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x1A0FC8C61558D729"> : tensor<4xi16>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<4xi16>, tensor<4xi16>) -> ()
  return
}
}

// -----

// PHILOX 2 ui32 2
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xE916F3C6EFFA28F87EC6B23BC7AF313D"> : tensor<2xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2xui32>)
  %e0 = stablehlo.constant dense<"0xE916F3C6EFFA28F87FC6B23BC7AF313D"> : tensor<2xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2xui64>, tensor<2xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x2167EEA872DE2654"> : tensor<2xui32>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<2xui32>, tensor<2xui32>) -> ()
  return
}
}

// -----

// DEFAULT 2 ui64 1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xACAC5DA68B79B7AB4E63EF1A5227CAE5"> : tensor<2xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<1xui64>)
  %e0 = stablehlo.constant dense<"0xACAC5DA68B79B7AB4F63EF1A5227CAE5"> : tensor<2xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2xui64>, tensor<2xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x9325A5096928E2CE"> : tensor<1xui64>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<1xui64>, tensor<1xui64>) -> ()
  return
}
}

// -----

// DEFAULT 3 i32 2
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xBF26A72882E40772BD31489ADE53883E0F3E4864DFEBC42F"> : tensor<3xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = DEFAULT : (tensor<3xui64>) -> (tensor<3xui64>, tensor<2xi32>)
  %e0 = stablehlo.constant dense<"0xBF26A72882E40772BE31489ADE53883E0F3E4864DFEBC42F"> : tensor<3xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xui64>, tensor<3xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x741BA41C6A95D70B"> : tensor<2xi32>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<2xi32>, tensor<2xi32>) -> ()
  return
}
}

// -----

// DEFAULT 3 i64 5
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xEB7A73ADD0076762EABBD8C5EE68774DE359D1EE2AFECCCC"> : tensor<3xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = DEFAULT : (tensor<3xui64>) -> (tensor<3xui64>, tensor<5xi64>)
  %e0 = stablehlo.constant dense<"0xEB7A73ADD0076762EDBBD8C5EE68774DE359D1EE2AFECCCC"> : tensor<3xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xui64>, tensor<3xui64>) -> ()
  %e1 = stablehlo.constant dense<"0xB61C8CDCBA153F64906C9F53DCC9FFD2EFC0C674B449E14DB0861CFFC7869806A14EA8CFBE37C442"> : tensor<5xi64>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<5xi64>, tensor<5xi64>) -> ()
  return
}
}

// -----

// PHILOX 2 i8 2
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xA98B27760374F84EA9DC8DB70194BBD1"> : tensor<2xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2xi8>)
  %e0 = stablehlo.constant dense<"0xA98B27760374F84EAADC8DB70194BBD1"> : tensor<2xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2xui64>, tensor<2xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x6085"> : tensor<2xi8>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<2xi8>, tensor<2xi8>) -> ()
  return
}
}

// -----

// PHILOX 3 i8 5
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xCABDDE521276DF45EA3BB3FBA331A21B9D6CE8CB6A9CA28C"> : tensor<3xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<5xi8>)
  %e0 = stablehlo.constant dense<"0xCABDDE521276DF45EC3BB3FBA331A21B9D6CE8CB6A9CA28C"> : tensor<3xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xui64>, tensor<3xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x095FA8A799"> : tensor<5xi8>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<5xi8>, tensor<5xi8>) -> ()
  return
}
}

// -----

// DEFAULT 2 i64 5
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xECE8C1125298D85E845CFC690B96486A"> : tensor<2xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5xi64>)
  %e0 = stablehlo.constant dense<"0xECE8C1125298D85E875CFC690B96486A"> : tensor<2xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2xui64>, tensor<2xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x5F82428E18040AB5FEE15EB0470113F6F66A2CB4196EFCB7816779E00ABAEFC33E4F5DD5570EE8A2"> : tensor<5xi64>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<5xi64>, tensor<5xi64>) -> ()
  return
}
}

// -----

// DEFAULT 2 ui16 2
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x810149E6FBBDDE19344B4F53B3C6BE3E"> : tensor<2xui64>
  %r0, %r1 = stablehlo.rng_bit_generator %a0, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2xui16>)
  %e0 = stablehlo.constant dense<"0x810149E6FBBDDE19354B4F53B3C6BE3E"> : tensor<2xui64>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<2xui64>, tensor<2xui64>) -> ()
  %e1 = stablehlo.constant dense<"0x22F87D11"> : tensor<2xui16>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<2xui16>, tensor<2xui16>) -> ()
  return
}
}

// -----

// case i16 2
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0xFEFF03000300"> : tensor<3xi16>
  %a1 = stablehlo.constant dense<"0x03000300FEFF"> : tensor<3xi16>
  %a2 = stablehlo.constant dense<"0x02000000"> : tensor<i32>
  %r0, %r1 = "stablehlo.case"(%a2) ({
    %u = stablehlo.add %a0, %a1 : tensor<3xi16>
    stablehlo.return %u, %a1 : tensor<3xi16>, tensor<3xi16>
  }, {
    %u = stablehlo.subtract %a0, %a1 : tensor<3xi16>
    stablehlo.return %u, %a0 : tensor<3xi16>, tensor<3xi16>
  }, {
    %u = stablehlo.multiply %a0, %a1 : tensor<3xi16>
    stablehlo.return %a1, %u : tensor<3xi16>, tensor<3xi16>
  }) : (tensor<i32>) -> (tensor<3xi16>, tensor<3xi16>)
  %e0 = stablehlo.constant dense<"0x03000300FEFF"> : tensor<3xi16>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xi16>, tensor<3xi16>) -> ()
  %e1 = stablehlo.constant dense<"0xFAFF0900FAFF"> : tensor<3xi16>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<3xi16>, tensor<3xi16>) -> ()
  return
}
}

// -----

// case f32 -1
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x000080C0000040C000004040"> : tensor<3xf32>
  %a1 = stablehlo.constant dense<"0x00004040000040C0000080C0"> : tensor<3xf32>
  %a2 = stablehlo.constant dense<"0xFFFFFFFF"> : tensor<i32>
  %r0, %r1 = "stablehlo.case"(%a2) ({
    %u = stablehlo.add %a0, %a1 : tensor<3xf32>
    stablehlo.return %u, %a1 : tensor<3xf32>, tensor<3xf32>
  }, {
    %u = stablehlo.subtract %a0, %a1 : tensor<3xf32>
    stablehlo.return %u, %a0 : tensor<3xf32>, tensor<3xf32>
  }, {
    %u = stablehlo.multiply %a0, %a1 : tensor<3xf32>
    stablehlo.return %a1, %u : tensor<3xf32>, tensor<3xf32>
  }) : (tensor<i32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = stablehlo.constant dense<"0x00004040000040C0000080C0"> : tensor<3xf32>
  stablehlo.custom_call @check.expect_eq(%r0, %e0) {has_side_effect = true} : (tensor<3xf32>, tensor<3xf32>) -> ()
  %e1 = stablehlo.constant dense<"0x000040C100001041000040C1"> : tensor<3xf32>
  stablehlo.custom_call @check.expect_eq(%r1, %e1) {has_side_effect = true} : (tensor<3xf32>, tensor<3xf32>) -> ()
  return
}
}

// -----

// trsm f16
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x8844"> : tensor<1x1xf16>
  %a1 = stablehlo.constant dense<"0x173E7B3D52BD"> : tensor<1x3xf16>
  %r0 = "stablehlo.triangular_solve"(%a0, %a1) <{left_side = true, lower = false, unit_diagonal = true, transpose_a = #stablehlo<transpose TRANSPOSE>}> : (tensor<1x1xf16>, tensor<1x3xf16>) -> tensor<1x3xf16>
  %e0 = stablehlo.constant dense<"0x173E7B3D52BD"> : tensor<1x3xf16>
  stablehlo.custom_call @check.expect_almost_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x3xf16>, tensor<1x3xf16>) -> ()
  return
}
}

// -----

// trsm f64
module {
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0B3CEFD7719E1040"> : tensor<1x1xf64>
  %a1 = stablehlo.constant dense<"0xF6DCA2760B32D23F6400D4AE4AF4ED3F"> : tensor<1x2xf64>
  %r0 = "stablehlo.triangular_solve"(%a0, %a1) <{left_side = true, lower = true, unit_diagonal = true, transpose_a = #stablehlo<transpose TRANSPOSE>}> : (tensor<1x1xf64>, tensor<1x2xf64>) -> tensor<1x2xf64>
  %e0 = stablehlo.constant dense<"0xF6DCA2760B32D23F6400D4AE4AF4ED3F"> : tensor<1x2xf64>
  stablehlo.custom_call @check.expect_almost_eq(%r0, %e0) {has_side_effect = true} : (tensor<1x2xf64>, tensor<1x2xf64>) -> ()
  return
}
}

// -----

// Floats of random bits have those that integers of their width get.
func.func @main() {
  %s = stablehlo.constant dense<[1, 2]> : tensor<2xui64>
  %a, %f = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xf32>)
  %b, %u = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)
  %v = stablehlo.bitcast_convert %f : (tensor<3xf32>) -> tensor<3xui32>
  check.expect_eq %v, %u : tensor<3xui32>
  check.expect_eq %a, %b : tensor<2xui64>
  func.return
}

// -----

// JAX's generator as it calls it on GPUs: the known answers of Threefry-2x32 of 20 rounds.
func.func @main() {
  %k0 = stablehlo.constant dense<[0, 4294967295, 320440878]> : tensor<3xui32>
  %k1 = stablehlo.constant dense<[0, 4294967295, 57701188]> : tensor<3xui32>
  %x0 = stablehlo.constant dense<[0, 4294967295, 608135816]> : tensor<3xui32>
  %x1 = stablehlo.constant dense<[0, 4294967295, 2242054355]> : tensor<3xui32>
  %r:2 = stablehlo.custom_call @cu_threefry2x32_ffi(%k0, %k1, %x0, %x1) {api_version = 4 : i32, mhlo.backend_config = {}} : (tensor<3xui32>, tensor<3xui32>, tensor<3xui32>, tensor<3xui32>) -> (tensor<3xui32>, tensor<3xui32>)
  check.expect_eq_const %r#0, dense<[1797259609, 481924860, 3297917596]> : tensor<3xui32>
  check.expect_eq_const %r#1, dense<[2579123966, 3137350631, 1212020640]> : tensor<3xui32>
  func.return
}
