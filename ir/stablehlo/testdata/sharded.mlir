// Parts of a sum that the text says to be such are reduced once.
//--- part1.mlir

sdy.mesh @m = <["x"=2]>
func.func @f(%arg0: tensor<2x4xi32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>}, %arg1: tensor<4x2xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> (tensor<2x2xi32> {sdy.sharding = #sdy.sharding<@m, [{}, {}]>}) {
 %d = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] {sdy.sharding = #sdy.sharding_per_value<[<@m, [{}, {}], unreduced={"x"}>]>} : (tensor<2x4xi32>, tensor<4x2xi32>) -> tensor<2x2xi32>
 %e = stablehlo.add %d, %d {sdy.sharding = #sdy.sharding_per_value<[<@m, [{}, {}], unreduced={"x"}>]>} : tensor<2x2xi32>
 %0 = sdy.all_reduce {"x"} %e out_sharding=<@m, [{}, {}]> : tensor<2x2xi32>
 return %0 : tensor<2x2xi32>
}

//--- part2.mlir

func.func @main() {
 %a0 = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
 %a1 = stablehlo.constant dense<[[5, 6], [7, 8]]> : tensor<2x2xi32>
 %res:2 = "interpreter.run_parallel"(%a0, %a0, %a1, %a1) {programs = [[@f, @f]]} : (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>) -> (tensor<2x2xi32>, tensor<2x2xi32>)
 %e0 = stablehlo.constant dense<[[148, 176], [212, 256]]> : tensor<2x2xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2x2xi32>, tensor<2x2xi32>) -> ()
 %e1 = stablehlo.constant dense<[[148, 176], [212, 256]]> : tensor<2x2xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2x2xi32>, tensor<2x2xi32>) -> ()
 return
}

// -----

// What is replicated becomes parts of a sum, and is what it was.
//--- part1.mlir

sdy.mesh @m = <["x"=2]>
func.func @f(%arg0: tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) -> (tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) {
 %0 = sdy.replicated_to_unreduced {"x"} %arg0 out_sharding=<@m, [{}], unreduced={"x"}> : tensor<4xi32>
 %1 = sdy.all_reduce {"x"} %0 out_sharding=<@m, [{}]> : tensor<4xi32>
 return %1 : tensor<4xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
 %s1 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
 %res:2 = "interpreter.run_parallel"(%s0, %s1) {programs = [[@f, @f]]} : (tensor<4xi32>, tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>)
 %e0 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<4xi32>, tensor<4xi32>) -> ()
 %e1 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<4xi32>, tensor<4xi32>) -> ()
 return
}

// -----

// Pieces become parts of a sum.
//--- part1.mlir

sdy.mesh @m = <["x"=2]>
func.func @f(%arg0: tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> (tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) {
 %0 = sdy.sharded_to_unreduced [{"x"}] %arg0 out_sharding=<@m, [{}], unreduced={"x"}> : tensor<4xi32>
 %1 = sdy.all_reduce {"x"} %0 out_sharding=<@m, [{}]> : tensor<4xi32>
 return %1 : tensor<4xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %s1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 %res:2 = "interpreter.run_parallel"(%s0, %s1) {programs = [[@f, @f]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<4xi32>, tensor<4xi32>)
 %e0 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<4xi32>, tensor<4xi32>) -> ()
 %e1 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<4xi32>, tensor<4xi32>) -> ()
 return
}

// -----

// A manual computation in another.
//--- part1.mlir

sdy.mesh @m = <["x"=2, "y"=2]>
func.func @f(%arg0: tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y"}]>}) -> (tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x"}, {?}]>] out_shardings=[<@m, [{"x"}, {?}]>] manual_axes={"x"} (%a: tensor<2x4xi32>) {
  %1 = sdy.manual_computation(%a) in_shardings=[<@m, [{}, {"y"}]>] out_shardings=[<@m, [{}, {"y"}]>] manual_axes={"y"} (%b: tensor<2x2xi32>) {
   %c = stablehlo.reverse %b, dims = [0, 1] : tensor<2x2xi32>
   sdy.return %c : tensor<2x2xi32>
  } : (tensor<2x4xi32>) -> tensor<2x4xi32>
  %2 = stablehlo.add %1, %a : tensor<2x4xi32>
  sdy.return %2 : tensor<2x4xi32>
 } : (tensor<4x4xi32>) -> tensor<4x4xi32>
 return %0 : tensor<4x4xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
 %s1 = stablehlo.constant dense<[[5, 6], [7, 8]]> : tensor<2x2xi32>
 %s2 = stablehlo.constant dense<[[9, 10], [11, 12]]> : tensor<2x2xi32>
 %s3 = stablehlo.constant dense<[[13, 14], [15, 16]]> : tensor<2x2xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>) -> (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>)
 %e0 = stablehlo.constant dense<[[5, 5], [5, 5]]> : tensor<2x2xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2x2xi32>, tensor<2x2xi32>) -> ()
 %e1 = stablehlo.constant dense<[[13, 13], [13, 13]]> : tensor<2x2xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2x2xi32>, tensor<2x2xi32>) -> ()
 %e2 = stablehlo.constant dense<[[21, 21], [21, 21]]> : tensor<2x2xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<2x2xi32>, tensor<2x2xi32>) -> ()
 %e3 = stablehlo.constant dense<[[29, 29], [29, 29]]> : tensor<2x2xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<2x2xi32>, tensor<2x2xi32>) -> ()
 return
}

// -----

// A manual computation along one axis, whose body is sharded along the other.
//--- part1.mlir

sdy.mesh @m = <["x"=2, "y"=2]>
func.func @f(%arg0: tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"y"}, {"x"}]>}, %arg1: tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> (tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"y"}, {}]>}) {
 %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@m, [{?}, {"x"}]>, <@m, [{"x"}, {?}]>] out_shardings=[<@m, [{?}, {?}]>] manual_axes={"x"} (%a: tensor<4x2xi32>, %b: tensor<2x4xi32>) {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x2xi32>, tensor<2x4xi32>) -> tensor<4x4xi32>
  %r = "stablehlo.all_reduce"(%d) ({
   ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %m = stablehlo.add %p, %q : tensor<i32>
    stablehlo.return %m : tensor<i32>
   }) {replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<4x4xi32>) -> tensor<4x4xi32>
  sdy.return %r : tensor<4x4xi32>
 } : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
 return %0 : tensor<4x4xi32>
}
func.func @sequential_f(%arg0: tensor<4x4xi32>, %arg1: tensor<4x4xi32>) -> tensor<4x4xi32> {
  %d = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
  return %d : tensor<4x4xi32>
}

//--- part2.mlir

func.func @main() {
 %i = stablehlo.iota dim = 0 : tensor<16xi32>
 %v = stablehlo.reshape %i : (tensor<16xi32>) -> tensor<4x4xi32>
 %seq = func.call @sequential_f(%v, %v) : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
 %a0 = stablehlo.slice %v [0:2, 0:2] : (tensor<4x4xi32>) -> tensor<2x2xi32>
 %b0 = stablehlo.slice %v [0:2, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 %a1 = stablehlo.slice %v [2:4, 0:2] : (tensor<4x4xi32>) -> tensor<2x2xi32>
 %b1 = stablehlo.slice %v [0:2, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 %a2 = stablehlo.slice %v [0:2, 2:4] : (tensor<4x4xi32>) -> tensor<2x2xi32>
 %b2 = stablehlo.slice %v [2:4, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 %a3 = stablehlo.slice %v [2:4, 2:4] : (tensor<4x4xi32>) -> tensor<2x2xi32>
 %b3 = stablehlo.slice %v [2:4, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 %res:4 = "interpreter.run_parallel"(%a0, %b0, %a1, %b1, %a2, %b2, %a3, %b3) {programs = [[@f, @f, @f, @f]]} : (tensor<2x2xi32>, tensor<2x4xi32>, tensor<2x2xi32>, tensor<2x4xi32>, tensor<2x2xi32>, tensor<2x4xi32>, tensor<2x2xi32>, tensor<2x4xi32>) -> (tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>)
 %e0 = stablehlo.slice %seq [0:2, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2x4xi32>, tensor<2x4xi32>) -> ()
 %e1 = stablehlo.slice %seq [2:4, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2x4xi32>, tensor<2x4xi32>) -> ()
 %e2 = stablehlo.slice %seq [0:2, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<2x4xi32>, tensor<2x4xi32>) -> ()
 %e3 = stablehlo.slice %seq [2:4, 0:4] : (tensor<4x4xi32>) -> tensor<2x4xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<2x4xi32>, tensor<2x4xi32>) -> ()
 return
}

// -----

// Broadcasts from the first rank of each group.
//--- part1.mlir

sdy.mesh @m = <["x"=2, "y"=2]>
func.func @f(%arg0: tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x", "y"}]>}) -> (tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x", "y"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x", "y"}]>] out_shardings=[<@m, [{"x", "y"}]>] manual_axes={"x", "y"} (%a: tensor<2xi32>) {
 %r = "stablehlo.collective_broadcast"(%a) {replica_groups = dense<[[2, 1], [0, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<2xi32>) -> tensor<2xi32>
  sdy.return %r : tensor<2xi32>
 } : (tensor<8xi32>) -> tensor<8xi32>
 return %0 : tensor<8xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %s1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 %s2 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
 %s3 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
 %e0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e1 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e2 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e3 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<2xi32>, tensor<2xi32>) -> ()
 return
}

// -----

// A permutation in which a rank gets nothing.
//--- part1.mlir

sdy.mesh @m = <["x"=4]>
func.func @f(%arg0: tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> (tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"} (%a: tensor<2xi32>) {
 %r = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 3]]> : tensor<3x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<2xi32>) -> tensor<2xi32>
  sdy.return %r : tensor<2xi32>
 } : (tensor<8xi32>) -> tensor<8xi32>
 return %0 : tensor<8xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %s1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 %s2 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
 %s3 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
 %e0 = stablehlo.constant dense<[0, 0]> : tensor<2xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e1 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e2 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e3 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<2xi32>, tensor<2xi32>) -> ()
 return
}

// -----

// Pieces change dimensions.
//--- part1.mlir

sdy.mesh @m = <["x"=4]>
func.func @f(%arg0: tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> (tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x"}, {}]>] out_shardings=[<@m, [{}, {"x"}]>] manual_axes={"x"} (%a: tensor<1x4xi32>) {
 %r = "stablehlo.all_to_all"(%a) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<1x4xi32>) -> tensor<4x1xi32>
  sdy.return %r : tensor<4x1xi32>
 } : (tensor<4x4xi32>) -> tensor<4x4xi32>
 return %0 : tensor<4x4xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[[0, 1, 2, 3]]> : tensor<1x4xi32>
 %s1 = stablehlo.constant dense<[[4, 5, 6, 7]]> : tensor<1x4xi32>
 %s2 = stablehlo.constant dense<[[8, 9, 10, 11]]> : tensor<1x4xi32>
 %s3 = stablehlo.constant dense<[[12, 13, 14, 15]]> : tensor<1x4xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>) -> (tensor<4x1xi32>, tensor<4x1xi32>, tensor<4x1xi32>, tensor<4x1xi32>)
 %e0 = stablehlo.constant dense<[[0], [4], [8], [12]]> : tensor<4x1xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<4x1xi32>, tensor<4x1xi32>) -> ()
 %e1 = stablehlo.constant dense<[[1], [5], [9], [13]]> : tensor<4x1xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<4x1xi32>, tensor<4x1xi32>) -> ()
 %e2 = stablehlo.constant dense<[[2], [6], [10], [14]]> : tensor<4x1xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<4x1xi32>, tensor<4x1xi32>) -> ()
 %e3 = stablehlo.constant dense<[[3], [7], [11], [15]]> : tensor<4x1xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<4x1xi32>, tensor<4x1xi32>) -> ()
 return
}

// -----

// A maximum over half of the ranks.
//--- part1.mlir

sdy.mesh @m = <["x"=2, "y"=2]>
func.func @f(%arg0: tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x", "y"}]>}) -> (tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x", "y"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x", "y"} (%a: tensor<2xi32>) {
 %r = "stablehlo.all_reduce"(%a) ({
 ^bb0(%p: tensor<i32>, %q: tensor<i32>):
  %m = stablehlo.maximum %p, %q : tensor<i32>
  stablehlo.return %m : tensor<i32>
 }) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<2xi32>) -> tensor<2xi32>
  sdy.return %r : tensor<2xi32>
 } : (tensor<8xi32>) -> tensor<4xi32>
 return %0 : tensor<4xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %s1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 %s2 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
 %s3 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
 %e0 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e2 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e3 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<2xi32>, tensor<2xi32>) -> ()
 return
}

// -----

// A sum of which each rank has a piece.
//--- part1.mlir

sdy.mesh @m = <["x"=4]>
func.func @f(%arg0: tensor<16xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> (tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"} (%a: tensor<4xi32>) {
 %r = "stablehlo.reduce_scatter"(%a) ({
 ^bb0(%p: tensor<i32>, %q: tensor<i32>):
  %m = stablehlo.add %p, %q : tensor<i32>
  stablehlo.return %m : tensor<i32>
 }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<4xi32>) -> tensor<1xi32>
  sdy.return %r : tensor<1xi32>
 } : (tensor<16xi32>) -> tensor<4xi32>
 return %0 : tensor<4xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[0, 1, 2, 3]> : tensor<4xi32>
 %s1 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
 %s2 = stablehlo.constant dense<[2, 3, 4, 5]> : tensor<4xi32>
 %s3 = stablehlo.constant dense<[3, 4, 5, 6]> : tensor<4xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>)
 %e0 = stablehlo.constant dense<[6]> : tensor<1xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<1xi32>, tensor<1xi32>) -> ()
 %e1 = stablehlo.constant dense<[10]> : tensor<1xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<1xi32>, tensor<1xi32>) -> ()
 %e2 = stablehlo.constant dense<[14]> : tensor<1xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<1xi32>, tensor<1xi32>) -> ()
 %e3 = stablehlo.constant dense<[18]> : tensor<1xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<1xi32>, tensor<1xi32>) -> ()
 return
}

// -----

// Ranks know who they are.
//--- part1.mlir

sdy.mesh @m = <["x"=4]>
func.func @f(%arg0: tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> (tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"} (%a: tensor<2xi32>) {
 %p = stablehlo.partition_id : tensor<ui32>
 %i = stablehlo.convert %p : (tensor<ui32>) -> tensor<i32>
 %b = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<2xi32>
 %r = stablehlo.add %a, %b : tensor<2xi32>
  sdy.return %r : tensor<2xi32>
 } : (tensor<8xi32>) -> tensor<8xi32>
 return %0 : tensor<8xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %s1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 %s2 = stablehlo.constant dense<[5, 6]> : tensor<2xi32>
 %s3 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
 %e0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e1 = stablehlo.constant dense<[4, 5]> : tensor<2xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e2 = stablehlo.constant dense<[7, 8]> : tensor<2xi32>
 "check.expect_eq"(%res#2, %e2) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e3 = stablehlo.constant dense<[10, 11]> : tensor<2xi32>
 "check.expect_eq"(%res#3, %e3) : (tensor<2xi32>, tensor<2xi32>) -> ()
 return
}

// -----

// A manual computation that leaves an axis to the partitioner, as shard_map over some axes does:
// bodies of collectives say how their numbers lie, too.
//--- part1.mlir

sdy.mesh @m = <["a"=2, "b"=2]>
func.func @f(%arg0: tensor<4x2xi32> {sdy.sharding = #sdy.sharding<@m, [{"a"}, {"b"}]>}) -> (tensor<2x2xi32> {sdy.sharding = #sdy.sharding<@m, [{}, {"b"}]>}) {
 %0 = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"a", ?}, {?}]>] out_shardings=[<@m, [{?}, {?}]>] manual_axes={"a"} (%a: tensor<2x2xi32>) {
  %c = sdy.sharding_constraint %a <@m, [{?}, {?}]> : tensor<2x2xi32>
  %r = "stablehlo.all_reduce"(%c) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @m, axes = [#stablehlo.axis_ref<name = "a">]>, use_global_device_ids}> ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
   %s = stablehlo.add %x, %y : tensor<i32>
   %t = sdy.sharding_constraint %s <@m, []> : tensor<i32>
   stablehlo.return %t : tensor<i32>
  }) : (tensor<2x2xi32>) -> tensor<2x2xi32>
  sdy.return %r : tensor<2x2xi32>
 } : (tensor<4x2xi32>) -> tensor<2x2xi32>
 return %0 : tensor<2x2xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[[1], [3]]> : tensor<2x1xi32>
 %s1 = stablehlo.constant dense<[[2], [4]]> : tensor<2x1xi32>
 %s2 = stablehlo.constant dense<[[5], [7]]> : tensor<2x1xi32>
 %s3 = stablehlo.constant dense<[[6], [8]]> : tensor<2x1xi32>
 %res:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@f, @f, @f, @f]]} : (tensor<2x1xi32>, tensor<2x1xi32>, tensor<2x1xi32>, tensor<2x1xi32>) -> (tensor<2x1xi32>, tensor<2x1xi32>, tensor<2x1xi32>, tensor<2x1xi32>)
 %e0 = stablehlo.constant dense<[[6], [10]]> : tensor<2x1xi32>
 %e1 = stablehlo.constant dense<[[8], [12]]> : tensor<2x1xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2x1xi32>, tensor<2x1xi32>) -> ()
 "check.expect_eq"(%res#1, %e1) : (tensor<2x1xi32>, tensor<2x1xi32>) -> ()
 "check.expect_eq"(%res#2, %e0) : (tensor<2x1xi32>, tensor<2x1xi32>) -> ()
 "check.expect_eq"(%res#3, %e1) : (tensor<2x1xi32>, tensor<2x1xi32>) -> ()
 return
}

// -----

// A branch with a manual computation, which communicates, is a body of its own.
//--- part1.mlir

sdy.mesh @m = <["x"=2]>
func.func @f(%arg0: tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}, %arg1: tensor<i32>) -> (tensor<4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
 %c = stablehlo.constant dense<3> : tensor<i32>
 %p = stablehlo.compare LT, %arg1, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
 %0 = "stablehlo.if"(%p) ({
  %m = sdy.manual_computation(%arg0) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"} (%b: tensor<2xi32>) {
   %r = stablehlo.reverse %b, dims = [0] : tensor<2xi32>
   sdy.return %r : tensor<2xi32>
  } : (tensor<4xi32>) -> tensor<4xi32>
  stablehlo.return %m : tensor<4xi32>
 }, {
  stablehlo.return %arg0 : tensor<4xi32>
 }) : (tensor<i1>) -> tensor<4xi32>
 return %0 : tensor<4xi32>
}

//--- part2.mlir

func.func @main() {
 %s0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %s1 = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 %low = stablehlo.constant dense<2> : tensor<i32>
 %high = stablehlo.constant dense<3> : tensor<i32>
 %res:2 = "interpreter.run_parallel"(%s0, %low, %s1, %low) {programs = [[@f, @f]]} : (tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<i32>) -> (tensor<2xi32>, tensor<2xi32>)
 %e0 = stablehlo.constant dense<[2, 1]> : tensor<2xi32>
 "check.expect_eq"(%res#0, %e0) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %e1 = stablehlo.constant dense<[4, 3]> : tensor<2xi32>
 "check.expect_eq"(%res#1, %e1) : (tensor<2xi32>, tensor<2xi32>) -> ()
 %other:2 = "interpreter.run_parallel"(%s0, %high, %s1, %high) {programs = [[@f, @f]]} : (tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<i32>) -> (tensor<2xi32>, tensor<2xi32>)
 "check.expect_eq"(%other#0, %s0) : (tensor<2xi32>, tensor<2xi32>) -> ()
 "check.expect_eq"(%other#1, %s1) : (tensor<2xi32>, tensor<2xi32>) -> ()
 return
}

// -----

// Forms of older programs: a named computation, a constant of sdy, all_to_all of one pair of
// dimensions; the same function without its shardings on one rank.
//--- part1.mlir

sdy.mesh @m = <["x"=2, "y"=2]>
func.func @parallel_f(%arg0: tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x", "y"}, {}]>}) -> (tensor<4x4xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y"}]>}) {
 %c = sdy.constant dense<1> : tensor<4x4xi32>
 %0 = sdy.named_computation<"twice">(%arg0) out_shardings=[<@m, [{"x", "y"}, {}]>] (%a: tensor<4x4xi32>) {
  %2 = stablehlo.add %a, %a : tensor<4x4xi32>
  sdy.return %2 : tensor<4x4xi32>
 } : (tensor<4x4xi32>) -> tensor<4x4xi32>
 %1 = sdy.all_to_all {"y"} 0->1 %0 out_sharding=<@m, [{"x"}, {"y"}]> : tensor<4x4xi32>
 %3 = stablehlo.add %1, %c : tensor<4x4xi32>
 return %3 : tensor<4x4xi32>
}

//--- part2.mlir

func.func @main() {
 %g = stablehlo.iota dim = 0 : tensor<16xi32>
 %x = stablehlo.reshape %g : (tensor<16xi32>) -> tensor<4x4xi32>
 %s0 = stablehlo.slice %x [0:1, 0:4] : (tensor<4x4xi32>) -> tensor<1x4xi32>
 %s1 = stablehlo.slice %x [1:2, 0:4] : (tensor<4x4xi32>) -> tensor<1x4xi32>
 %s2 = stablehlo.slice %x [2:3, 0:4] : (tensor<4x4xi32>) -> tensor<1x4xi32>
 %s3 = stablehlo.slice %x [3:4, 0:4] : (tensor<4x4xi32>) -> tensor<1x4xi32>
 %r:4 = "interpreter.run_parallel"(%s0, %s1, %s2, %s3) {programs = [[@parallel_f, @parallel_f, @parallel_f, @parallel_f]]} : (tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>) -> (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>)
 %q = "interpreter.run_parallel"(%x) {programs = [[@sequential_f]]} : (tensor<4x4xi32>) -> tensor<4x4xi32>
 check.expect_eq_const %r#1, dense<[[5, 7], [13, 15]]> : tensor<2x2xi32>
 check.expect_eq_const %r#2, dense<[[17, 19], [25, 27]]> : tensor<2x2xi32>
 check.expect_eq_const %q, dense<[[1, 3, 5, 7], [9, 11, 13, 15], [17, 19, 21, 23], [25, 27, 29, 31]]> : tensor<4x4xi32>
 return
}

// -----

// Parts of a sum are parts of one behind what a sum goes through.
//--- part1.mlir

sdy.mesh @m = <["x"=2]>
func.func @f(%arg0: tensor<2x4xi32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>}, %arg1: tensor<4x2xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> (tensor<2x2xi64> {sdy.sharding = #sdy.sharding<@m, [{}, {}]>}) {
 %d = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<2x4xi32>, tensor<4x2xi32>) -> tensor<2x2xi32>
 %e = stablehlo.convert %d : (tensor<2x2xi32>) -> tensor<2x2xi64>
 %s = stablehlo.add %e, %e : tensor<2x2xi64>
 %t = stablehlo.transpose %s, dims = [1, 0] : (tensor<2x2xi64>) -> tensor<2x2xi64>
 %0 = sdy.all_reduce {"x"} %t out_sharding=<@m, [{}, {}]> : tensor<2x2xi64>
 return %0 : tensor<2x2xi64>
}

//--- part2.mlir

func.func @main() {
 %a0 = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
 %a1 = stablehlo.constant dense<[[5, 6], [7, 8]]> : tensor<2x2xi32>
 %res:2 = "interpreter.run_parallel"(%a0, %a0, %a1, %a1) {programs = [[@f, @f]]} : (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>) -> (tensor<2x2xi64>, tensor<2x2xi64>)
 check.expect_eq_const %res#0, dense<[[148, 212], [176, 256]]> : tensor<2x2xi64>
 check.expect_eq_const %res#1, dense<[[148, 212], [176, 256]]> : tensor<2x2xi64>
 return
}

// -----

// Copies are added up.
//--- part1.mlir

sdy.mesh @m = <["x"=2]>
func.func @f(%arg0: tensor<2xi32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) -> (tensor<2xi32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) {
 %n = stablehlo.negate %arg0 : tensor<2xi32>
 %0 = sdy.all_reduce {"x"} %n out_sharding=<@m, [{}]> : tensor<2xi32>
 return %0 : tensor<2xi32>
}

//--- part2.mlir

func.func @main() {
 %a = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %res:2 = "interpreter.run_parallel"(%a, %a) {programs = [[@f, @f]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
 check.expect_eq_const %res#0, dense<[-2, -4]> : tensor<2xi32>
 check.expect_eq_const %res#1, dense<[-2, -4]> : tensor<2xi32>
 return
}

// -----

// Shardings as they were before the dialect: of arguments, results and calls, by lists of devices, too.
//--- part1.mlir

func.func @f(%arg0: tensor<4x4xi32> {mhlo.sharding = "{devices=[2,2]<=[4]}"}, %arg1: tensor<4x2xi32> {mhlo.sharding = "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}"}, %arg2: tensor<2xi32> {mhlo.sharding = "{replicated}"}) -> (tensor<4x2xi32> {mhlo.sharding = "{devices=[4,1]0,2,1,3}"}) {
 %d = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<4x4xi32>, tensor<4x2xi32>) -> tensor<4x2xi32>
 %s = stablehlo.custom_call @Sharding(%d) {backend_config = "unspecified_dims=[1]", mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"} : (tensor<4x2xi32>) -> tensor<4x2xi32>
 %b = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<2xi32>) -> tensor<4x2xi32>
 %r = stablehlo.add %s, %b : tensor<4x2xi32>
 return %r : tensor<4x2xi32>
}

//--- part2.mlir

func.func @main() {
 %a0 = stablehlo.constant dense<[[1, 2], [5, 6]]> : tensor<2x2xi32>
 %a1 = stablehlo.constant dense<[[3, 4], [7, 8]]> : tensor<2x2xi32>
 %a2 = stablehlo.constant dense<[[0, 1], [0, 0]]> : tensor<2x2xi32>
 %a3 = stablehlo.constant dense<[[0, 0], [1, 0]]> : tensor<2x2xi32>
 %b0 = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
 %b1 = stablehlo.constant dense<[[5, 6], [7, 8]]> : tensor<2x2xi32>
 %c = stablehlo.constant dense<[100, 200]> : tensor<2xi32>
 %res:4 = "interpreter.run_parallel"(%a0, %b0, %c, %a1, %b1, %c, %a2, %b0, %c, %a3, %b1, %c) {programs = [[@f, @f, @f, @f]]} : (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2xi32>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2xi32>) -> (tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>)
 check.expect_eq_const %res#0, dense<[[150, 260]]> : tensor<1x2xi32>
 check.expect_eq_const %res#2, dense<[[214, 340]]> : tensor<1x2xi32>
 check.expect_eq_const %res#1, dense<[[103, 204]]> : tensor<1x2xi32>
 check.expect_eq_const %res#3, dense<[[105, 206]]> : tensor<1x2xi32>
 return
}

// -----

// Calls that go to each rank's piece of a tensor, and back.
//--- part1.mlir

func.func @f(%arg0: tensor<4xi32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> (tensor<4xi32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {
 %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<4xi32>) -> tensor<4xi32>
 %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<4xi32>) -> tensor<2xi32>
 %2 = call @body(%1) : (tensor<2xi32>) -> tensor<2xi32>
 %3 = stablehlo.custom_call @Sharding(%2) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<2xi32>) -> tensor<2xi32>
 %4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {backend_config = "", mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<2xi32>) -> tensor<4xi32>
 return %4 : tensor<4xi32>
}
func.func private @body(%a: tensor<2xi32>) -> tensor<2xi32> {
 %r = "stablehlo.collective_permute"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<2xi32>) -> tensor<2xi32>
 %s = stablehlo.reverse %r, dims = [0] : tensor<2xi32>
 return %s : tensor<2xi32>
}

//--- part2.mlir

func.func @main() {
 %a = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
 %b = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
 %res:2 = "interpreter.run_parallel"(%a, %b) {programs = [[@f, @f]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
 check.expect_eq_const %res#0, dense<[4, 3]> : tensor<2xi32>
 check.expect_eq_const %res#1, dense<[2, 1]> : tensor<2xi32>
 return
}

// -----

// A sum is completed along one axis after the other.
//--- part1.mlir

sdy.mesh @m = <["x"=2, "y"=2]>
func.func @f(%arg0: tensor<1x4xi32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x", "y"}]>}, %arg1: tensor<4x1xi32> {sdy.sharding = #sdy.sharding<@m, [{"x", "y"}, {}]>}) -> (tensor<1x1xi32> {sdy.sharding = #sdy.sharding<@m, [{}, {}]>}) {
 %d = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<1x4xi32>, tensor<4x1xi32>) -> tensor<1x1xi32>
 %0 = sdy.all_reduce {"x"} %d out_sharding=<@m, [{}, {}]> : tensor<1x1xi32>
 %1 = sdy.all_reduce {"y"} %0 out_sharding=<@m, [{}, {}]> : tensor<1x1xi32>
 return %1 : tensor<1x1xi32>
}

//--- part2.mlir

func.func @main() {
 %a = stablehlo.constant dense<[[1]]> : tensor<1x1xi32>
 %b = stablehlo.constant dense<[[10]]> : tensor<1x1xi32>
 %c = stablehlo.constant dense<[[100]]> : tensor<1x1xi32>
 %d = stablehlo.constant dense<[[1000]]> : tensor<1x1xi32>
 %res:4 = "interpreter.run_parallel"(%a, %a, %a, %b, %a, %c, %a, %d) {programs = [[@f, @f, @f, @f]]} : (tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>) -> (tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>, tensor<1x1xi32>)
 check.expect_eq_const %res#0, dense<[[1111]]> : tensor<1x1xi32>
 check.expect_eq_const %res#3, dense<[[1111]]> : tensor<1x1xi32>
 return
}
