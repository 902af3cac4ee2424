// Two replicas of two partitions each.

module @groups {
  func.func @collectives(%x: tensor<2xi32>) -> (tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi1>) {
    %s = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %0 = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %0 : tensor<i32>
    }) : (tensor<2xi32>) -> tensor<2xi32>
    %g = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 3], [2, 1]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<2xi32>) -> tensor<4xi32>
    %r = "stablehlo.reduce_scatter"(%x) <{scatter_dimension = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %0 = stablehlo.maximum %a, %b : tensor<i32>
      stablehlo.return %0 : tensor<i32>
    }) : (tensor<2xi32>) -> tensor<1xi32>
    %t = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}> : (tensor<2xi32>) -> tensor<2xi32>
    %p = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2xi32>) -> tensor<2xi32>
    %zero = stablehlo.constant dense<4> : tensor<2xi32>
    %c = stablehlo.compare GE, %x, %zero : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %any = "stablehlo.all_reduce"(%c) <{replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> ({
    ^bb0(%a: tensor<i1>, %b: tensor<i1>):
      %0 = stablehlo.or %a, %b : tensor<i1>
      stablehlo.return %0 : tensor<i1>
    }) : (tensor<2xi1>) -> tensor<2xi1>
    return %s, %g, %r, %t, %p, %any : tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi1>
  }
  func.func @main() {
    %0 = stablehlo.constant dense<[0, 1]> : tensor<2xi32>
    %1 = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
    %2 = stablehlo.constant dense<[4, 5]> : tensor<2xi32>
    %3 = stablehlo.constant dense<[6, 7]> : tensor<2xi32>
    %r:24 = "interpreter.run_parallel"(%0, %1, %2, %3) {
      programs = [[@collectives, @collectives], [@collectives, @collectives]]
    } : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi1>, tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi1>, tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi1>, tensor<2xi32>, tensor<4xi32>, tensor<1xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi1>)
    check.expect_eq_const %r#0, dense<[4, 6]> : tensor<2xi32>
    check.expect_eq_const %r#18, dense<[8, 10]> : tensor<2xi32>
    check.expect_eq_const %r#1, dense<[0, 1, 6, 7]> : tensor<4xi32>
    check.expect_eq_const %r#7, dense<[4, 5, 2, 3]> : tensor<4xi32>
    check.expect_eq_const %r#2, dense<[2]> : tensor<1xi32>
    check.expect_eq_const %r#20, dense<[7]> : tensor<1xi32>
    check.expect_eq_const %r#3, dense<[3, 1]> : tensor<2xi32>
    check.expect_eq_const %r#9, dense<[2, 0]> : tensor<2xi32>
    check.expect_eq_const %r#4, dense<[0, 0]> : tensor<2xi32>
    check.expect_eq_const %r#22, dense<[2, 3]> : tensor<2xi32>
    check.expect_eq_const %r#5, dense<[false, false]> : tensor<2xi1>
    check.expect_eq_const %r#23, dense<[true, true]> : tensor<2xi1>
    // What stands behind the ranks is a stage of its own.
    %sum = stablehlo.add %r#0, %r#18 : tensor<2xi32>
    check.expect_eq_const %sum, dense<[12, 16]> : tensor<2xi32>
    func.return
  }
}

// -----

module @ids {
  func.func @id() -> (tensor<ui32>, tensor<ui32>) {
    %r = stablehlo.replica_id : tensor<ui32>
    %p = stablehlo.partition_id : tensor<ui32>
    return %r, %p : tensor<ui32>, tensor<ui32>
  }
  func.func @main() {
    %r:8 = "interpreter.run_parallel"() {programs = [[@id, @id], [@id, @id]]} : () -> (tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>, tensor<ui32>)
    check.expect_eq_const %r#2, dense<0> : tensor<ui32>
    check.expect_eq_const %r#3, dense<1> : tensor<ui32>
    check.expect_eq_const %r#4, dense<1> : tensor<ui32>
    check.expect_eq_const %r#5, dense<0> : tensor<ui32>
    func.return
  }
}

// -----

// Groups of different sizes.
module @ragged {
  func.func @sum(%x: tensor<2xi32>) -> tensor<2xi32> {
    %s = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[1, -1], [0, 2], [-1, -1]]> : tensor<3x2xi64>}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %0 = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %0 : tensor<i32>
    }) : (tensor<2xi32>) -> tensor<2xi32>
    return %s : tensor<2xi32>
  }
  func.func @main() {
    %0 = stablehlo.constant dense<[0, 1]> : tensor<2xi32>
    %1 = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
    %2 = stablehlo.constant dense<[4, 5]> : tensor<2xi32>
    %r:3 = "interpreter.run_parallel"(%0, %1, %2) {programs = [[@sum], [@sum], [@sum]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
    check.expect_eq_const %r#0, dense<[4, 6]> : tensor<2xi32>
    check.expect_eq_const %r#1, dense<[2, 3]> : tensor<2xi32>
    check.expect_eq_const %r#2, dense<[4, 6]> : tensor<2xi32>
    func.return
  }
}

// -----

// Processes that are in no group get zeros.
module @some_get_zeros {
  func.func @collective_broadcast(%operand : tensor<1x2xi64>) -> tensor<1x2xi64> {
    %result = "stablehlo.collective_broadcast"(%operand) {
      replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>
    } : (tensor<1x2xi64>) -> tensor<1x2xi64>
    return %result : tensor<1x2xi64>
  }
  func.func @main() {
    %0 = stablehlo.constant dense<[[1, 2]]> : tensor<1x2xi64>
    %1 = stablehlo.constant dense<[[3, 4]]> : tensor<1x2xi64>
    %2 = stablehlo.constant dense<[[5, 6]]> : tensor<1x2xi64>
    %3 = stablehlo.constant dense<[[7, 8]]> : tensor<1x2xi64>
    %results:4 = "interpreter.run_parallel"(%0, %1, %2, %3) {
      programs=[[@collective_broadcast], [@collective_broadcast], [@collective_broadcast], [@collective_broadcast]]
    } : (tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>) -> (tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>, tensor<1x2xi64>)
    check.expect_eq_const %results#0, dense<[[0, 0]]> : tensor<1x2xi64>
    check.expect_eq_const %results#1, dense<[[5, 6]]> : tensor<1x2xi64>
    check.expect_eq_const %results#2, dense<[[5, 6]]> : tensor<1x2xi64>
    check.expect_eq_const %results#3, dense<[[0, 0]]> : tensor<1x2xi64>
    func.return
  }
}

// -----

// all_reduce i8 and replica
module {
func.func @f(%x: tensor<2x4xi8>) -> tensor<2x4xi8> {
  %r = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<i8>, %y: tensor<i8>):
    %z = stablehlo.and %x, %y : tensor<i8>
    stablehlo.return %z : tensor<i8>
  }) : (tensor<2x4xi8>) -> tensor<2x4xi8>
  return %r : tensor<2x4xi8>
}
func.func @main() {
  %a0 = stablehlo.constant dense<"0x01FB020706070501"> : tensor<2x4xi8>
  %a1 = stablehlo.constant dense<"0x04FD00FF05FF06FD"> : tensor<2x4xi8>
  %a2 = stablehlo.constant dense<"0x06FF05030306FC00"> : tensor<2x4xi8>
  %a3 = stablehlo.constant dense<"0x0404FF01FBFBFC06"> : tensor<2x4xi8>
  %r:4 = "interpreter.run_parallel"(%a0, %a1, %a2, %a3) {programs=[[@f, @f], [@f, @f]]} : (tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>) -> (tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>, tensor<2x4xi8>)
  check.expect_eq_const %r#0, dense<"0x00FB000302060400"> : tensor<2x4xi8>
  check.expect_eq_const %r#1, dense<"0x0404000101FB0404"> : tensor<2x4xi8>
  check.expect_eq_const %r#2, dense<"0x00FB000302060400"> : tensor<2x4xi8>
  check.expect_eq_const %r#3, dense<"0x0404000101FB0404"> : tensor<2x4xi8>
  return
}
}

// -----

// broadcast bf16 replica
module {
func.func @f(%x: tensor<4x4xbf16>) -> tensor<4x4xbf16> {
  %r = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[1]]> : tensor<1x1xi64>}> : (tensor<4x4xbf16>) -> tensor<4x4xbf16>
  return %r : tensor<4x4xbf16>
}
func.func @main() {
  %a0 = stablehlo.constant dense<"0x803F80C080C080C00000804080BF40C080C000400040404080BF40C080BF8040"> : tensor<4x4xbf16>
  %a1 = stablehlo.constant dense<"0x0040803F8040803F80C080BF00400000000080C000C0804080408040404040C0"> : tensor<4x4xbf16>
  %a2 = stablehlo.constant dense<"0x80BF803F40C080BF40C08040803F803F00C0000000C000400040804080400040"> : tensor<4x4xbf16>
  %a3 = stablehlo.constant dense<"0x80C080BF80404040404080C00040000000C080C080BF0040004080BF404080C0"> : tensor<4x4xbf16>
  %r:4 = "interpreter.run_parallel"(%a0, %a1, %a2, %a3) {programs=[[@f, @f], [@f, @f]]} : (tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>)
  check.expect_eq_const %r#0, dense<"0x0000000000000000000000000000000000000000000000000000000000000000"> : tensor<4x4xbf16>
  check.expect_eq_const %r#1, dense<"0x0000000000000000000000000000000000000000000000000000000000000000"> : tensor<4x4xbf16>
  check.expect_eq_const %r#2, dense<"0x80BF803F40C080BF40C08040803F803F00C0000000C000400040804080400040"> : tensor<4x4xbf16>
  check.expect_eq_const %r#3, dense<"0x80C080BF80404040404080C00040000000C080C080BF0040004080BF404080C0"> : tensor<4x4xbf16>
  return
}
}

// -----

// reduce_scatter i1 and flat
module {
func.func @f(%x: tensor<2x4xi1>) -> tensor<2x2xi1> {
  %r = "stablehlo.reduce_scatter"(%x) <{scatter_dimension = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids, replica_groups = dense<[[1, 2], [3, 0]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<i1>, %y: tensor<i1>):
    %z = stablehlo.and %x, %y : tensor<i1>
    stablehlo.return %z : tensor<i1>
  }) : (tensor<2x4xi1>) -> tensor<2x2xi1>
  return %r : tensor<2x2xi1>
}
func.func @main() {
  %a0 = stablehlo.constant dense<[[true, true, false, true], [false, true, false, false]]> : tensor<2x4xi1>
  %a1 = stablehlo.constant dense<[[false, true, false, false], [true, true, false, false]]> : tensor<2x4xi1>
  %a2 = stablehlo.constant dense<[[true, true, true, true], [true, false, true, false]]> : tensor<2x4xi1>
  %a3 = stablehlo.constant dense<[[false, true, true, false], [true, false, false, false]]> : tensor<2x4xi1>
  %r:4 = "interpreter.run_parallel"(%a0, %a1, %a2, %a3) {programs=[[@f, @f], [@f, @f]]} : (tensor<2x4xi1>, tensor<2x4xi1>, tensor<2x4xi1>, tensor<2x4xi1>) -> (tensor<2x2xi1>, tensor<2x2xi1>, tensor<2x2xi1>, tensor<2x2xi1>)
  check.expect_eq_const %r#0, dense<[[false, false], [false, false]]> : tensor<2x2xi1>
  check.expect_eq_const %r#1, dense<[[false, true], [true, false]]> : tensor<2x2xi1>
  check.expect_eq_const %r#2, dense<[[false, false], [false, false]]> : tensor<2x2xi1>
  check.expect_eq_const %r#3, dense<[[false, true], [false, false]]> : tensor<2x2xi1>
  return
}
}

// -----

// reduce_scatter ui32 and flat
module {
func.func @f(%x: tensor<2x4xui32>) -> tensor<2x1xui32> {
  %r = "stablehlo.reduce_scatter"(%x) <{scatter_dimension = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
  ^bb0(%x: tensor<ui32>, %y: tensor<ui32>):
    %z = stablehlo.and %x, %y : tensor<ui32>
    stablehlo.return %z : tensor<ui32>
  }) : (tensor<2x4xui32>) -> tensor<2x1xui32>
  return %r : tensor<2x1xui32>
}
func.func @main() {
  %a0 = stablehlo.constant dense<"0x0000000006000000070000000600000001000000070000000600000002000000"> : tensor<2x4xui32>
  %a1 = stablehlo.constant dense<"0x0700000004000000010000000500000001000000070000000300000007000000"> : tensor<2x4xui32>
  %a2 = stablehlo.constant dense<"0x0600000002000000050000000600000006000000030000000000000004000000"> : tensor<2x4xui32>
  %a3 = stablehlo.constant dense<"0x0100000000000000000000000000000001000000070000000100000001000000"> : tensor<2x4xui32>
  %r:4 = "interpreter.run_parallel"(%a0, %a1, %a2, %a3) {programs=[[@f, @f, @f, @f]]} : (tensor<2x4xui32>, tensor<2x4xui32>, tensor<2x4xui32>, tensor<2x4xui32>) -> (tensor<2x1xui32>, tensor<2x1xui32>, tensor<2x1xui32>, tensor<2x1xui32>)
  check.expect_eq_const %r#0, dense<"0x0000000000000000"> : tensor<2x1xui32>
  check.expect_eq_const %r#1, dense<"0x0000000003000000"> : tensor<2x1xui32>
  check.expect_eq_const %r#2, dense<"0x0000000000000000"> : tensor<2x1xui32>
  check.expect_eq_const %r#3, dense<"0x0000000000000000"> : tensor<2x1xui32>
  return
}
}

// -----

// all_gather i32 both
module {
func.func @f(%x: tensor<2x4xi32>) -> tensor<4x4xi32> {
  %r = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[1], [0]]> : tensor<2x1xi64>}> : (tensor<2x4xi32>) -> tensor<4x4xi32>
  return %r : tensor<4x4xi32>
}
func.func @main() {
  %a0 = stablehlo.constant dense<"0xFEFFFFFF0200000000000000FBFFFFFF010000000500000006000000FCFFFFFF"> : tensor<2x4xi32>
  %a1 = stablehlo.constant dense<"0xFFFFFFFFFBFFFFFFFCFFFFFF01000000FBFFFFFF060000000600000006000000"> : tensor<2x4xi32>
  %a2 = stablehlo.constant dense<"0xFEFFFFFF00000000FCFFFFFFFEFFFFFF00000000020000000300000007000000"> : tensor<2x4xi32>
  %a3 = stablehlo.constant dense<"0x050000000100000002000000FDFFFFFFFBFFFFFF040000000400000007000000"> : tensor<2x4xi32>
  %r:4 = "interpreter.run_parallel"(%a0, %a1, %a2, %a3) {programs=[[@f, @f], [@f, @f]]} : (tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>) -> (tensor<4x4xi32>, tensor<4x4xi32>, tensor<4x4xi32>, tensor<4x4xi32>)
  check.expect_eq_const %r#0, dense<"0xFEFFFFFF0200000000000000FBFFFFFF010000000500000006000000FCFFFFFFFFFFFFFFFBFFFFFFFCFFFFFF01000000FBFFFFFF060000000600000006000000"> : tensor<4x4xi32>
  check.expect_eq_const %r#1, dense<"0xFEFFFFFF0200000000000000FBFFFFFF010000000500000006000000FCFFFFFFFFFFFFFFFBFFFFFFFCFFFFFF01000000FBFFFFFF060000000600000006000000"> : tensor<4x4xi32>
  check.expect_eq_const %r#2, dense<"0xFEFFFFFF00000000FCFFFFFFFEFFFFFF00000000020000000300000007000000050000000100000002000000FDFFFFFFFBFFFFFF040000000400000007000000"> : tensor<4x4xi32>
  check.expect_eq_const %r#3, dense<"0xFEFFFFFF00000000FCFFFFFFFEFFFFFF00000000020000000300000007000000050000000100000002000000FDFFFFFFFBFFFFFF040000000400000007000000"> : tensor<4x4xi32>
  return
}
}

// -----

// Integers of types in which not all devices reduce.
module @types {
  func.func @narrow(%x: tensor<2xui16>, %y: tensor<2xui32>, %z: tensor<2xui64>) -> (tensor<2xui16>, tensor<2xui16>, tensor<2xui32>, tensor<1xui64>) {
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<ui16>, %b: tensor<ui16>):
        %s = stablehlo.add %a, %b : tensor<ui16>
        stablehlo.return %s : tensor<ui16>
    }) : (tensor<2xui16>) -> tensor<2xui16>
    %1 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<ui16>, %b: tensor<ui16>):
        %s = stablehlo.maximum %a, %b : tensor<ui16>
        stablehlo.return %s : tensor<ui16>
    }) : (tensor<2xui16>) -> tensor<2xui16>
    %2 = "stablehlo.all_reduce"(%y) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<ui32>, %b: tensor<ui32>):
        %s = stablehlo.minimum %a, %b : tensor<ui32>
        stablehlo.return %s : tensor<ui32>
    }) : (tensor<2xui32>) -> tensor<2xui32>
    %3 = "stablehlo.reduce_scatter"(%z) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64}> ({
      ^bb0(%a: tensor<ui64>, %b: tensor<ui64>):
        %s = stablehlo.maximum %a, %b : tensor<ui64>
        stablehlo.return %s : tensor<ui64>
    }) : (tensor<2xui64>) -> tensor<1xui64>
    return %0, %1, %2, %3 : tensor<2xui16>, tensor<2xui16>, tensor<2xui32>, tensor<1xui64>
  }
  func.func public @main() {
    %x0 = stablehlo.constant dense<[65535, 1]> : tensor<2xui16>
    %x1 = stablehlo.constant dense<[2, 40000]> : tensor<2xui16>
    %y0 = stablehlo.constant dense<[4294967295, 1]> : tensor<2xui32>
    %y1 = stablehlo.constant dense<[2, 2147483648]> : tensor<2xui32>
    %z0 = stablehlo.constant dense<[18446744073709551615, 1]> : tensor<2xui64>
    %z1 = stablehlo.constant dense<[2, 9223372036854775808]> : tensor<2xui64>
    %r:8 = "interpreter.run_parallel"(%x0, %y0, %z0, %x1, %y1, %z1) {programs = [[@narrow], [@narrow]]} : (tensor<2xui16>, tensor<2xui32>, tensor<2xui64>, tensor<2xui16>, tensor<2xui32>, tensor<2xui64>) -> (tensor<2xui16>, tensor<2xui16>, tensor<2xui32>, tensor<1xui64>, tensor<2xui16>, tensor<2xui16>, tensor<2xui32>, tensor<1xui64>)
    check.expect_eq_const %r#0, dense<[1, 40001]> : tensor<2xui16>
    check.expect_eq_const %r#1, dense<[65535, 40000]> : tensor<2xui16>
    check.expect_eq_const %r#2, dense<[2, 1]> : tensor<2xui32>
    check.expect_eq_const %r#3, dense<[18446744073709551615]> : tensor<1xui64>
    check.expect_eq_const %r#7, dense<[9223372036854775808]> : tensor<1xui64>
    return
  }
}

// -----

// Ranks that run different programs.
module @different {
  func.func @twice(%x: tensor<2xi32>, %y: tensor<2xi32>) -> tensor<2xi32> {
    %r = stablehlo.add %x, %y : tensor<2xi32>
    return %r : tensor<2xi32>
  }
  func.func @first(%x: tensor<2xi32>) -> (tensor<1xi32>, tensor<2xi32>) {
    %r = stablehlo.slice %x [0:1] : (tensor<2xi32>) -> tensor<1xi32>
    return %r, %x : tensor<1xi32>, tensor<2xi32>
  }
  func.func public @main() {
    %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
    %1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
    %r:3 = "interpreter.run_parallel"(%0, %1, %1) {programs = [[@twice, @first]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<1xi32>, tensor<2xi32>)
    check.expect_eq_const %r#0, dense<[4, 6]> : tensor<2xi32>
    check.expect_eq_const %r#1, dense<[3]> : tensor<1xi32>
    check.expect_eq_const %r#2, dense<[3, 4]> : tensor<2xi32>
    return
  }
}
