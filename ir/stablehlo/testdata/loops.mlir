// Loops and branches that depend on numbers which only a run knows.

func.func private @unknown(%i: tensor<i32>) -> tensor<i32> {
  %x = stablehlo.iota dim = 0 : tensor<64xi32>
  %s = stablehlo.dynamic_slice %x, %i, sizes = [1] : (tensor<64xi32>, tensor<i32>) -> tensor<1xi32>
  %r = stablehlo.reshape %s : (tensor<1xi32>) -> tensor<i32>
  return %r : tensor<i32>
}

// Euclid's algorithm, which goes round until a remainder is 0.
func.func private @gcd(%a: tensor<i32>, %b: tensor<i32>) -> tensor<i32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%x = %a, %y = %b) : tensor<i32>, tensor<i32>
  cond {
    %more = stablehlo.compare NE, %y, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %rest = stablehlo.remainder %x, %y : tensor<i32>
    stablehlo.return %y, %rest : tensor<i32>, tensor<i32>
  }
  return %r#0 : tensor<i32>
}

// Powers of a matrix by squaring: a case in a loop, which reads what stands around both.
func.func private @power(%m: tensor<2x2xf32>, %n: tensor<i32>) -> tensor<2x2xf32> {
  %one = stablehlo.constant dense<[[1.0, 0.0], [0.0, 1.0]]> : tensor<2x2xf32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%k = %n, %p = %one, %q = %m) : tensor<i32>, tensor<2x2xf32>, tensor<2x2xf32>
  cond {
    %more = stablehlo.compare GT, %k, %c0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %odd = stablehlo.and %k, %c1 : tensor<i32>
    %next = "stablehlo.case"(%odd) ({
      stablehlo.return %p : tensor<2x2xf32>
    }, {
      %t = stablehlo.dot_general %p, %q, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      stablehlo.return %t : tensor<2x2xf32>
    }) : (tensor<i32>) -> tensor<2x2xf32>
    %square = stablehlo.dot_general %q, %q, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %half = stablehlo.shift_right_logical %k, %c1 : tensor<i32>
    stablehlo.return %half, %next, %square : tensor<i32>, tensor<2x2xf32>, tensor<2x2xf32>
  }
  return %r#1 : tensor<2x2xf32>
}

// A loop in a branch that may not be taken, and one in a loop.
func.func private @sums(%p: tensor<i1>, %n: tensor<i32>) -> tensor<i32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r = "stablehlo.if"(%p) ({
    %s:2 = stablehlo.while(%i = %n, %a = %c0) : tensor<i32>, tensor<i32>
    cond {
      %more = stablehlo.compare GT, %i, %c0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %t:2 = stablehlo.while(%j = %i, %b = %a) : tensor<i32>, tensor<i32>
      cond {
        %more = stablehlo.compare GT, %j, %c0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %k = stablehlo.subtract %j, %c1 : tensor<i32>
        %c = stablehlo.add %b, %i : tensor<i32>
        stablehlo.return %k, %c : tensor<i32>, tensor<i32>
      }
      %k = stablehlo.subtract %i, %c1 : tensor<i32>
      stablehlo.return %k, %t#1 : tensor<i32>, tensor<i32>
    }
    stablehlo.return %s#1 : tensor<i32>
  }, {
    stablehlo.return %n : tensor<i32>
  }) : (tensor<i1>) -> tensor<i32>
  return %r : tensor<i32>
}

func.func public @main() {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c5 = stablehlo.constant dense<5> : tensor<i32>
  %c42 = stablehlo.constant dense<42> : tensor<i32>
  %c56 = stablehlo.constant dense<56> : tensor<i32>
  %zero = call @unknown(%c0) : (tensor<i32>) -> tensor<i32>
  %five = call @unknown(%c5) : (tensor<i32>) -> tensor<i32>
  %a = call @unknown(%c42) : (tensor<i32>) -> tensor<i32>
  %b = call @unknown(%c56) : (tensor<i32>) -> tensor<i32>
  %g = call @gcd(%a, %b) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  check.expect_eq_const %g, dense<14> : tensor<i32>
  %same = call @gcd(%a, %zero) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  check.expect_eq_const %same, dense<42> : tensor<i32>
  %m = stablehlo.constant dense<[[1.0, 1.0], [1.0, 0.0]]> : tensor<2x2xf32>
  %fib = call @power(%m, %five) : (tensor<2x2xf32>, tensor<i32>) -> tensor<2x2xf32>
  check.expect_eq_const %fib, dense<[[8.0, 5.0], [5.0, 3.0]]> : tensor<2x2xf32>
  %yes = stablehlo.compare LT, %zero, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %no = stablehlo.compare GT, %zero, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %squares = call @sums(%yes, %five) : (tensor<i1>, tensor<i32>) -> tensor<i32>
  check.expect_eq_const %squares, dense<55> : tensor<i32>
  %not = call @sums(%no, %five) : (tensor<i1>, tensor<i32>) -> tensor<i32>
  check.expect_eq_const %not, dense<5> : tensor<i32>
  return
}
