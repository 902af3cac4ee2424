// Control flow whose meaning straight lines have.

func.func private @pick(%p: tensor<i1>, %x: tensor<2xi32>) -> (tensor<2xi32>, tensor<f32>) {
  %r:2 = "stablehlo.if"(%p) ({
    %y = stablehlo.add %x, %x : tensor<2xi32>
    %c = stablehlo.constant dense<1.0> : tensor<f32>
    stablehlo.return %y, %c : tensor<2xi32>, tensor<f32>
  }, {
    %c = stablehlo.constant dense<2.0> : tensor<f32>
    stablehlo.return %x, %c : tensor<2xi32>, tensor<f32>
  }) : (tensor<i1>) -> (tensor<2xi32>, tensor<f32>)
  return %r#0, %r#1 : tensor<2xi32>, tensor<f32>
}
func.func private @numbered(%i: tensor<i32>) -> tensor<i32> {
  %a = stablehlo.constant dense<10> : tensor<i32>
  %b = stablehlo.constant dense<20> : tensor<i32>
  %r = "stablehlo.case"(%i) ({
    stablehlo.return %a : tensor<i32>
  }, {
    stablehlo.return %b : tensor<i32>
  }, {
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
  return %r : tensor<i32>
}
func.func public @main() {
  // Numbers that the importer does not know.
  %x = stablehlo.iota dim = 0 : tensor<2xi32>
  %s0 = stablehlo.slice %x [0:1] : (tensor<2xi32>) -> tensor<1xi32>
  %zero = stablehlo.reshape %s0 : (tensor<1xi32>) -> tensor<i32>
  %s1 = stablehlo.slice %x [1:2] : (tensor<2xi32>) -> tensor<1xi32>
  %one = stablehlo.reshape %s1 : (tensor<1xi32>) -> tensor<i32>
  %yes = stablehlo.compare LT, %zero, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %no = stablehlo.compare GT, %zero, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r0:2 = call @pick(%yes, %x) : (tensor<i1>, tensor<2xi32>) -> (tensor<2xi32>, tensor<f32>)
  check.expect_eq_const %r0#0, dense<[0, 2]> : tensor<2xi32>
  check.expect_eq_const %r0#1, dense<1.0> : tensor<f32>
  %r1:2 = call @pick(%no, %x) : (tensor<i1>, tensor<2xi32>) -> (tensor<2xi32>, tensor<f32>)
  check.expect_eq_const %r1#0, dense<[0, 1]> : tensor<2xi32>
  check.expect_eq_const %r1#1, dense<2.0> : tensor<f32>
  %minus = stablehlo.negate %one : tensor<i32>
  %n0 = call @numbered(%zero) : (tensor<i32>) -> tensor<i32>
  check.expect_eq_const %n0, dense<10> : tensor<i32>
  %n1 = call @numbered(%one) : (tensor<i32>) -> tensor<i32>
  check.expect_eq_const %n1, dense<20> : tensor<i32>
  %n2 = call @numbered(%minus) : (tensor<i32>) -> tensor<i32>
  check.expect_eq_const %n2, dense<30> : tensor<i32>
  %known = stablehlo.constant dense<1> : tensor<i32>
  %n3 = call @numbered(%known) : (tensor<i32>) -> tensor<i32>
  check.expect_eq_const %n3, dense<20> : tensor<i32>
  return
}

// -----

// Powers of two by a loop of known length, which reads and writes slices at its counter.
func.func @rounds() {
  %first = stablehlo.constant dense<1> : tensor<1xi64>
  %powers = stablehlo.constant dense<0> : tensor<5xi64>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.constant dense<5> : tensor<i32>
  %r:3 = stablehlo.while(%k = %i, %p = %first, %all = %powers) : tensor<i32>, tensor<1xi64>, tensor<5xi64>
  cond {
    %more = stablehlo.compare LT, %k, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %put = stablehlo.dynamic_update_slice %all, %p, %k : (tensor<5xi64>, tensor<1xi64>, tensor<i32>) -> tensor<5xi64>
    %got = stablehlo.dynamic_slice %put, %k, sizes = [1] : (tensor<5xi64>, tensor<i32>) -> tensor<1xi64>
    %twice = stablehlo.add %got, %p : tensor<1xi64>
    %next = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %next, %twice, %put : tensor<i32>, tensor<1xi64>, tensor<5xi64>
  }
  check.expect_eq_const %r#0, dense<5> : tensor<i32>
  check.expect_eq_const %r#1, dense<32> : tensor<1xi64>
  check.expect_eq_const %r#2, dense<[1, 2, 4, 8, 16]> : tensor<5xi64>
  func.return
}
