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

// -----

// A loop that does not run, and variables of bytes, truth values and no elements.
func.func private @f(%n: tensor<i32>, %p: tensor<i1>, %u: tensor<3xui8>, %z: tensor<0xf32>) -> (tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %0:4 = stablehlo.while(%i = %c0, %q = %p, %v = %u, %w = %z) : tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %r = stablehlo.not %q : tensor<i1>
    %x = stablehlo.add %v, %v : tensor<3xui8>
    stablehlo.return %j, %r, %x, %w : tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>
  }
  return %0#0, %0#1, %0#2, %0#3 : tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>
}
func.func @main() {
  %q = stablehlo.constant dense<[[7, 0], [3, 3]]> : tensor<2x2xi32>
  %q0 = stablehlo.reverse %q, dims = [0] : tensor<2x2xi32>
  %q1 = stablehlo.slice %q0 [0:1, 0:1] : (tensor<2x2xi32>) -> tensor<1x1xi32>
  %n = stablehlo.reshape %q1 : (tensor<1x1xi32>) -> tensor<i32>
  %q2 = stablehlo.slice %q0 [1:2, 1:2] : (tensor<2x2xi32>) -> tensor<1x1xi32>
  %n0 = stablehlo.reshape %q2 : (tensor<1x1xi32>) -> tensor<i32>
  %p = stablehlo.constant dense<true> : tensor<i1>
  %u = stablehlo.constant dense<[1, 40, 255]> : tensor<3xui8>
  %z = stablehlo.constant dense<> : tensor<0xf32>
  %r:4 = call @f(%n, %p, %u, %z) : (tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>) -> (tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>)
  check.expect_eq_const %r#0, dense<3> : tensor<i32>
  check.expect_eq_const %r#1, dense<false> : tensor<i1>
  check.expect_eq_const %r#2, dense<[8, 64, 248]> : tensor<3xui8>
  check.expect_eq_const %r#3, dense<> : tensor<0xf32>
  %s:4 = call @f(%n0, %p, %u, %z) : (tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>) -> (tensor<i32>, tensor<i1>, tensor<3xui8>, tensor<0xf32>)
  check.expect_eq_const %s#0, dense<0> : tensor<i32>
  check.expect_eq_const %s#2, dense<[1, 40, 255]> : tensor<3xui8>
  return
}

// -----

// Loops in loops that read from both around them.
func.func private @f(%n: tensor<i32>, %k: tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %b = stablehlo.add %k, %k : tensor<2xi32>
  %0:3 = stablehlo.while(%i = %c0, %x = %k, %y = %b) : tensor<i32>, tensor<2xi32>, tensor<2xi32>
  cond {
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %1:2 = stablehlo.while(%h = %c0, %t = %x) : tensor<i32>, tensor<2xi32>
    cond {
      %c = stablehlo.compare LE, %h, %i, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %h1 = stablehlo.add %h, %one : tensor<i32>
      %t1 = stablehlo.add %t, %k : tensor<2xi32>
      stablehlo.return %h1, %t1 : tensor<i32>, tensor<2xi32>
    }
    stablehlo.return %j, %y, %1#1 : tensor<i32>, tensor<2xi32>, tensor<2xi32>
  }
  return %0#1, %0#2 : tensor<2xi32>, tensor<2xi32>
}
func.func @main() {
  %q = stablehlo.constant dense<[[7, 0], [3, 3]]> : tensor<2x2xi32>
  %q0 = stablehlo.reverse %q, dims = [0] : tensor<2x2xi32>
  %q1 = stablehlo.slice %q0 [0:1, 0:1] : (tensor<2x2xi32>) -> tensor<1x1xi32>
  %n = stablehlo.reshape %q1 : (tensor<1x1xi32>) -> tensor<i32>
  %k = stablehlo.constant dense<[1, 10]> : tensor<2xi32>
  %r:2 = call @f(%n, %k) : (tensor<i32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
  // x=1,y=2 -> (2, 1+1=2) -> (2, 2+2=4) -> (4, 2+3=5)
  check.expect_eq_const %r#0, dense<[4, 40]> : tensor<2xi32>
  check.expect_eq_const %r#1, dense<[5, 50]> : tensor<2xi32>
  return
}

// -----

// A token is a variable of a loop.
func.func private @f(%n: tensor<i32>) -> tensor<i32> {
  %t = stablehlo.create_token : !stablehlo.token
  %0:2 = "stablehlo.while"(%n, %t) ({
  ^bb0(%i: tensor<i32>, %u: !stablehlo.token):
    %c0 = stablehlo.constant dense<100> : tensor<i32>
    %c = stablehlo.compare LT, %i, %c0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %u: !stablehlo.token):
    %j = stablehlo.add %i, %i : tensor<i32>
    %v = stablehlo.after_all %u : !stablehlo.token
    stablehlo.return %j, %v : tensor<i32>, !stablehlo.token
  }) : (tensor<i32>, !stablehlo.token) -> (tensor<i32>, !stablehlo.token)
  return %0#0 : tensor<i32>
}
func.func @main() {
  %q = stablehlo.constant dense<[[7, 0], [3, 3]]> : tensor<2x2xi32>
  %q0 = stablehlo.reverse %q, dims = [0] : tensor<2x2xi32>
  %q1 = stablehlo.slice %q0 [0:1, 0:1] : (tensor<2x2xi32>) -> tensor<1x1xi32>
  %n = stablehlo.reshape %q1 : (tensor<1x1xi32>) -> tensor<i32>
  %r = call @f(%n) : (tensor<i32>) -> tensor<i32>
  check.expect_eq_const %r, dense<192> : tensor<i32>
  return
}

// -----

// Tokens are results of branches, of those that are computed both and of others.
func.func private @f(%p: tensor<i1>, %x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %t = stablehlo.create_token : !stablehlo.token
  %r:2 = "stablehlo.if"(%p) ({
    %d = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    stablehlo.return %t, %d : !stablehlo.token, tensor<2x2xf32>
  }, {
    %u = stablehlo.after_all %t : !stablehlo.token
    stablehlo.return %u, %x : !stablehlo.token, tensor<2x2xf32>
  }) : (tensor<i1>) -> (!stablehlo.token, tensor<2x2xf32>)
  %s:2 = "stablehlo.if"(%p) ({
    stablehlo.return %x, %r#0 : tensor<2x2xf32>, !stablehlo.token
  }, {
    %n = stablehlo.negate %x : tensor<2x2xf32>
    stablehlo.return %n, %t : tensor<2x2xf32>, !stablehlo.token
  }) : (tensor<i1>) -> (tensor<2x2xf32>, !stablehlo.token)
  return %r#1, %s#0 : tensor<2x2xf32>, tensor<2x2xf32>
}
func.func @main() {
  %q = stablehlo.constant dense<[[true, true], [false, false]]> : tensor<2x2xi1>
  %q0 = stablehlo.reverse %q, dims = [0] : tensor<2x2xi1>
  %q1 = stablehlo.slice %q0 [0:1, 0:1] : (tensor<2x2xi1>) -> tensor<1x1xi1>
  %f = stablehlo.reshape %q1 : (tensor<1x1xi1>) -> tensor<i1>
  %x = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %a:2 = call @f(%f, %x) : (tensor<i1>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
  check.expect_eq_const %a#0, dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  check.expect_eq_const %a#1, dense<[[-1.0, -2.0], [-3.0, -4.0]]> : tensor<2x2xf32>
  return
}
