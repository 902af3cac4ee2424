package equiv_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// equationCase shows an equation: before equals after by it and not without it, and does
// not equal wrong. T is an element type, N and M are sizes; 4N is their multiple.
type equationCase struct {
	name                 string
	types                string // element types, by spaces
	input                string // of T, [N,M] each
	before, after, wrong string // what the function does; it returns %y
	result               string // its type
	loose                bool   // floats are reassociated
	exactInts            bool   // and integers need no permission for that
}

const allFloats, someInts = "f32 bf16 f16 f64", "i32 i64"

var equationCases = []equationCase{
	{name: "move-of-itself", types: allFloats, input: "T[N,M]", result: "T[M]",
		before: "%p = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%q = permute %p {dims=[1, 0]} : T[N,M]\n%y = sum %q {dims=[0]} : T[M]",
		after:  "%y = sum %x {dims=[0]} : T[M]",
		wrong:  "%n = neg %x : T[N,M]\n%y = sum %n {dims=[0]} : T[M]"},
	{name: "move-of-constant", types: allFloats, input: "T[N,M]", result: "T[N,M]",
		before: "%f = full {value=2.0} : T[4N,M]\n%s = shard %f on @all {dim=0} : T[N,M]\n%y = add %x, %s : T[N,M]",
		after:  "%s = full {value=2.0} : T[N,M]\n%y = add %x, %s : T[N,M]",
		wrong:  "%s = full {value=3.0} : T[N,M]\n%y = add %x, %s : T[N,M]"},
	{name: "move-of-move", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[4N,M]",
		before: "%c = all_gather %x on @row {dim=0} : async T[2N,M]\n%w = wait_tensor %c : T[2N,M]\n%d = all_gather %w on @column {dim=0} : async T[4N,M]\n%y = wait_tensor %d : T[4N,M]",
		after:  "%c = all_gather %x on @all {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]",
		wrong:  "%c = all_gather %x on @back {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]"},
	{name: "move-of-pointwise", types: allFloats, input: "T[N,M]", result: "T[4N,M]",
		before: "%c = all_gather %x on @all {dim=0} : async T[4N,M]\n%w = wait_tensor %c : T[4N,M]\n%y = tanh %w : T[4N,M]",
		after:  "%t = tanh %x : T[N,M]\n%c = all_gather %t on @all {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]",
		wrong:  "%t = sigmoid %x : T[N,M]\n%c = all_gather %t on @all {dim=0} : async T[4N,M]\n%y = wait_tensor %c : T[4N,M]"},
	{name: "move-of-reduce", types: allFloats + " " + someInts, input: "T[4N,M]", result: "T[N,M]",
		before: "%c = all_reduce.sum %x on @row : async T[4N,M]\n%w = wait_tensor %c : T[4N,M]\n%y = slice %w {dim=0, start=0, end=N} : T[N,M]",
		after:  "%s = slice %x {dim=0, start=0, end=N} : T[N,M]\n%c = all_reduce.sum %s on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%s = slice %x {dim=0, start=N, end=2N} : T[N,M]\n%c = all_reduce.sum %s on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "arithmetic-of-constants", types: someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%a = full {value=3} : T[N,M]\n%b = full {value=2} : T[N,M]\n%l = lt %a, %b : bool[N,M]\n%s = sub %b, %a : T[N,M]\n%c = clamp %s {max=9, min=-1} : T[N,M]\n%m = mul %c {scalar=-2} : T[N,M]\n%w = where %l, %x, %m : T[N,M]\n%y = add %w, %x : T[N,M]",
		after:  "%w = full {value=2} : T[N,M]\n%y = add %w, %x : T[N,M]",
		wrong:  "%w = full {value=-2} : T[N,M]\n%y = add %w, %x : T[N,M]"},
	{name: "there-and-back", types: "u64", input: "T[N,M]", result: "T[N,M]", // -1 is not less than 0 here, but the largest number
		before: "%a = full {value=-1} : T[N,M]\n%v = convert %a : i64[N,M]\n%w = convert %v : T[N,M]\n%b = full {value=0} : T[N,M]\n%l = lt %w, %b : bool[N,M]\n%y = where %l, %x, %w : T[N,M]",
		after:  "%w = full {value=-1} : T[N,M]\n%b = full {value=0} : T[N,M]\n%l = lt %w, %b : bool[N,M]\n%y = where %l, %x, %w : T[N,M]",
		wrong:  "%y = neg %x : T[N,M]"},
	{name: "move-of-parts", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%f = neg %x : T[N,M]\n%c = cat %f, %x {dim=0} : T[2N,M]\n%d = cat %x, %c {dim=0} : T[3N,M]\n%s = slice_scatter %d, %x {dim=0, start=0, end=N} : T[3N,M]\n%y = slice %s {dim=0, start=N, end=2N} : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%y = alias %x : T[N,M]"},
	{name: "reduce-of-move", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[2N,M]",
		before: "%c = all_gather %x on @row {dim=0} : async T[2N,M]\n%w = wait_tensor %c : T[2N,M]\n%d = all_reduce.sum %w on @column : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]",
		after:  "%c = all_reduce.sum %x on @column : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_gather %w on @row {dim=0} : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_gather %w on @column {dim=0} : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]"},
	{name: "reduce-over-equal", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @row : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		after:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @column : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @all : async T[N,M]\n%y = wait_tensor %d : T[N,M]"},
	{name: "reduce-of-one", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.sum %x on @one : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]"},
	{name: "reduce-of-equal", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @row : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		after:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = mul %w {scalar=2} : T[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = mul %w {scalar=4} : T[N,M]"},
	{name: "reduce-of-reduce", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%c = all_reduce.sum %x on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_reduce.sum %w on @column : async T[N,M]\n%y = wait_tensor %d : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "reduce-of-monotone", types: "f32 bf16 f16", input: "T[N,M]", result: "f64[N,M]",
		before: "%v = convert %x : f64[N,M]\n%c = all_reduce.min %v on @all : async f64[N,M]\n%y = wait_tensor %c : f64[N,M]",
		after:  "%c = all_reduce.min %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : f64[N,M]",
		wrong:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : f64[N,M]"},
	{name: "reduce-of-linear", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%v = neg %x : T[N,M]\n%c = all_reduce.sum %v on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = neg %w : T[N,M]"},
	{name: "average-is-quotient", types: "f32 f64", input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.avg %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = div %w {scalar=4.0} : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = div %w {scalar=2.0} : T[N,M]"},
	{name: "average-is-quotient", types: "i64 u64", input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.avg %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = trunc_divide %w {scalar=4} : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = trunc_divide %w {scalar=2} : T[N,M]"},
	{name: "average-is-quotient", types: "i8 u8 i16 u16 i32 u32", input: "T[4N,M]", result: "T[N,M]",
		before: "%c = reduce_scatter.avg %x on @all {dim=0} : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%v = convert %x : i64[4N,M]\n%c = reduce_scatter.sum %v on @all {dim=0} : async i64[N,M]\n%w = wait_tensor %c : i64[N,M]\n%q = trunc_divide %w {scalar=4} : i64[N,M]\n%y = convert %q : T[N,M]",
		wrong:  "%c = reduce_scatter.sum %x on @all {dim=0} : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = trunc_divide %w {scalar=4} : T[N,M]"},
	{name: "sum-in-narrow", types: "bf16 f16", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : f32[N,M]\n%c = all_reduce.sum %v on @all : async f32[N,M]\n%w = wait_tensor %c : f32[N,M]\n%y = convert %w : T[N,M]",
		after:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "sum-in-narrow", types: "f8e4m3fn f8e5m2 f16", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : f32[N,M]\n%c = all_reduce.product %v on @all : async f32[N,M]\n%w = wait_tensor %c : f32[N,M]\n%y = convert %w : T[N,M]",
		after:  "%c = all_reduce.product %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "wrap-before", types: "i16 u16 i8 u8", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : i32[N,M]\n%c = all_reduce.product %v on @all : async i32[N,M]\n%w = wait_tensor %c : i32[N,M]\n%y = convert %w : T[N,M]",
		after:  "%c = all_reduce.product %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%c = all_reduce.sum %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "sum-in-narrow", types: "f8e5m2 f16", input: "T[4N,s]", result: "T[N,s]",
		before: "%v = convert %x : f32[4N,s]\n%c = reduce_scatter.sum %v on @all {dim=0} : async f32[N,s]\n%w = wait_tensor %c : f32[N,s]\n%y = convert %w : T[N,s]",
		after:  "%c = reduce_scatter.sum %x on @all {dim=0} : async T[N,s]\n%y = wait_tensor %c : T[N,s]",
		wrong:  "%c = reduce_scatter.min %x on @all {dim=0} : async T[N,s]\n%y = wait_tensor %c : T[N,s]"},
	{name: "wrap-before", types: "i16 u8", input: "T[4N,s]", result: "T[N,s]",
		before: "%v = convert %x : i32[4N,s]\n%c = reduce_scatter.sum %v on @all {dim=0} : async i32[N,s]\n%w = wait_tensor %c : i32[N,s]\n%y = convert %w : T[N,s]",
		after:  "%c = reduce_scatter.sum %x on @all {dim=0} : async T[N,s]\n%y = wait_tensor %c : T[N,s]",
		wrong:  "%c = reduce_scatter.max %x on @all {dim=0} : async T[N,s]\n%y = wait_tensor %c : T[N,s]"},
	{name: "wrap-before", types: "i32 u32", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : i64[N,M]\n%m = mul %v {scalar=3} : i64[N,M]\n%y = convert %m : T[N,M]",
		after:  "%y = mul %x {scalar=3} : T[N,M]",
		wrong:  "%v = convert %x : i16[N,M]\n%m = mul %v {scalar=3} : i16[N,M]\n%y = convert %m : T[N,M]"},
	{name: "reduce-of-monotone", types: "u64", input: "T[4N,M]", result: "T[N,M]",
		before: "%i = convert %x : i64[4N,M]\n%v = bitwise_xor %i {scalar=-9223372036854775808} : i64[4N,M]\n%c = reduce_scatter.min %v on @all {dim=0} : async i64[N,M]\n%w = wait_tensor %c : i64[N,M]\n%z = bitwise_xor %w {scalar=-9223372036854775808} : i64[N,M]\n%y = convert %z : T[N,M]",
		after:  "%c = reduce_scatter.min %x on @all {dim=0} : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%i = convert %x : i64[4N,M]\n%c = reduce_scatter.min %i on @all {dim=0} : async i64[N,M]\n%w = wait_tensor %c : i64[N,M]\n%y = convert %w : T[N,M]"},
	{name: "reduce-of-monotone", types: "i64", input: "T[N,M]", result: "u64[N,M]",
		before: "%v = bitwise_xor %x {scalar=-9223372036854775808} : T[N,M]\n%c = all_reduce.max %v on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%z = bitwise_xor %w {scalar=-9223372036854775808} : T[N,M]\n%y = convert %z : u64[N,M]",
		after:  "%u = convert %x : u64[N,M]\n%c = all_reduce.max %u on @all : async u64[N,M]\n%y = wait_tensor %c : u64[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : u64[N,M]"},
	{name: "reduce-of-monotone", types: "i16 u16", input: "T[N,M]", result: "i32[N,M]",
		before: "%v = convert %x : i32[N,M]\n%c = all_reduce.min %v on @all : async i32[N,M]\n%y = wait_tensor %c : i32[N,M]",
		after:  "%c = all_reduce.min %x on @all : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : i32[N,M]",
		wrong:  "%v = convert %x : i8[N,M]\n%c = all_reduce.min %v on @all : async i8[N,M]\n%w = wait_tensor %c : i8[N,M]\n%y = convert %w : i32[N,M]"},
	{name: "reduce-of-monotone", types: "i16 u16", input: "T[N,M]", result: "i32[N,M]",
		before: "%v = convert %x : i32[N,M]\n%p = collective_permute %v on @all {pairs=[0, 1, 1, 2]} : async i32[N,M]\n%q = wait_tensor %p : i32[N,M]\n%c = all_reduce.min %q on @row : async i32[N,M]\n%y = wait_tensor %c : i32[N,M]",
		after:  "%p = collective_permute %x on @all {pairs=[0, 1, 1, 2]} : async T[N,M]\n%q = wait_tensor %p : T[N,M]\n%c = all_reduce.min %q on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : i32[N,M]",
		wrong:  "%p = collective_permute %x on @all {pairs=[0, 1, 1, 0]} : async T[N,M]\n%q = wait_tensor %p : T[N,M]\n%c = all_reduce.min %q on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : i32[N,M]"},
	{name: "sum-in-narrow", types: "f8e5m2fnuz bf16", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : f32[N,M]\n%p = collective_permute %v on @all {pairs=[0, 1, 1, 2]} : async f32[N,M]\n%q = wait_tensor %p : f32[N,M]\n%c = all_reduce.sum %q on @all : async f32[N,M]\n%w = wait_tensor %c : f32[N,M]\n%y = convert %w : T[N,M]",
		after:  "%p = collective_permute %x on @all {pairs=[0, 1, 1, 2]} : async T[N,M]\n%q = wait_tensor %p : T[N,M]\n%c = all_reduce.sum %q on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%p = collective_permute %x on @all {pairs=[0, 1, 1, 2]} : async T[N,M]\n%q = wait_tensor %p : T[N,M]\n%c = all_reduce.sum %q on @row : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "there-and-back", types: "i16 u32", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : i32[N,M]\n%f = bitwise_xor %v {scalar=-2147483648} : i32[N,M]\n%g = bitwise_xor %f {scalar=-2147483648} : i32[N,M]\n%w = convert %g : T[N,M]\n%y = neg %w : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%v = convert %x : i8[N,M]\n%w = convert %v : T[N,M]\n%y = neg %w : T[N,M]"},
	{name: "reduce-of-bools", types: "bool", input: "T[N,M]", result: "T[N,M]",
		before: "%c = all_reduce.product %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%c = all_reduce.min %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		wrong:  "%c = all_reduce.max %x on @all : async T[N,M]\n%y = wait_tensor %c : T[N,M]"},
	{name: "transposed-matmul", types: allFloats + " " + someInts, input: "T[4N,M]", result: "T[4N,N]",
		before: "%t = permute %x {dims=[1, 0]} : T[M,4N:1,M]\n%c = neg %t : T[M,4N]\n%m = matmul %x, %c : T[4N,4N]\n%s = slice %m {dim=1, start=N, end=2N} : T[4N,N:4N,1]\n%y = neg %s : T[4N,N]",
		after:  "%t = permute %x {dims=[1, 0]} : T[M,4N:1,M]\n%c = neg %x : T[4N,M]\n%m = matmul %c, %t : T[4N,4N]\n%s = slice %m {dim=0, start=N, end=2N} : T[N,4N]\n%p = permute %s {dims=[1, 0]} : T[4N,N:1,4N]\n%y = neg %p : T[4N,N]",
		wrong:  "%t = permute %x {dims=[1, 0]} : T[M,4N:1,M]\n%c = cumsum %x {dim=0} : T[4N,M]\n%m = matmul %c, %t : T[4N,4N]\n%s = slice %m {dim=0, start=N, end=2N} : T[N,4N]\n%p = permute %s {dims=[1, 0]} : T[4N,N:1,4N]\n%y = neg %p : T[4N,N]"},
	{name: "transposed-matmul", types: allFloats + " " + someInts, input: "T[s,N]", result: "T[s,s]",
		before: "%c = neg %x : T[s,N]\n%t = permute %c {dims=[1, 0]} : T[N,s:1,N]\n%m = matmul %x, %t : T[s,s]\n%p = permute %m {dims=[1, 0]} : T[s,s:1,s]\n%y = neg %p : T[s,s]",
		after:  "%t = permute %x {dims=[1, 0]} : T[N,s:1,N]\n%c = neg %x : T[s,N]\n%m = matmul %c, %t : T[s,s]\n%y = neg %m : T[s,s]",
		wrong:  "%t = permute %x {dims=[1, 0]} : T[N,s:1,N]\n%c = neg %x : T[s,N]\n%m = matmul %t, %c : T[N,N]\n%q = matmul %c, %m : T[s,N]\n%y = matmul %q, %t : T[s,s]"},
	{name: "shuffle-undone", types: allFloats, input: "T[s,s]", result: "T[s,s]",
		before: "%p = permute %x {dims=[1, 0]} : T[s,s:1,s]\n%q = permute %p {dims=[1, 0]} : T[s,s]\n%y = neg %q : T[s,s]",
		after:  "%y = neg %x : T[s,s]",
		wrong:  "%p = permute %x {dims=[1, 0]} : T[s,s:1,s]\n%y = neg %p : T[s,s]"},
	{name: "symmetric-matmul", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,N]",
		before: "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%m = matmul %x, %t : T[N,N]\n%p = permute %m {dims=[1, 0]} : T[N,N:1,N]\n%y = neg %p : T[N,N]",
		after:  "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%m = matmul %x, %t : T[N,N]\n%y = neg %m : T[N,N]",
		wrong:  "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%c = cumsum %t {dim=0} : T[M,N]\n%m = matmul %x, %c : T[N,N]\n%y = neg %m : T[N,N]"},
	{name: "matmul-of-nothing", types: allFloats, input: "T[N,M]", result: "T[N,N]",
		before: "%e = full {value=2.0} : T[N,0]\n%t = full {value=2.0} : T[0,N]\n%m = matmul %e, %t : T[N,N]\n%y = neg %m : T[N,N]",
		after:  "%m = full {value=0.0} : T[N,N]\n%y = neg %m : T[N,N]",
		wrong:  "%m = full {value=1.0} : T[N,N]\n%y = neg %m : T[N,N]"},
	{name: "matmul-of-widened", types: "bf16 f16", input: "T[N,M]", result: "f32[N,N]",
		before: "%v = convert %x : f32[N,M]\n%t = permute %v {dims=[1, 0]} : f32[M,N:1,M]\n%y = matmul %v, %t : f32[N,N]",
		after:  "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%y = matmul %x, %t : f32[N,N]",
		wrong:  "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%m = matmul %x, %t : T[N,N]\n%y = convert %m : f32[N,N]"},
	{name: "matmul-of-widened", types: "bf16 f16", input: "T[N,M]", result: "f32[N,N]",
		before: "%v = convert %x : f32[N,M]\n%c = collective_permute %v on @all {pairs=[0, 1, 1, 2]} : async f32[N,M]\n%w = wait_tensor %c : f32[N,M]\n%t = permute %v {dims=[1, 0]} : f32[M,N:1,M]\n%y = matmul %w, %t : f32[N,N]",
		after:  "%c = collective_permute %x on @all {pairs=[0, 1, 1, 2]} : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%y = matmul %w, %t : f32[N,N]",
		wrong:  "%c = collective_permute %x on @all {pairs=[0, 2, 1, 3]} : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%y = matmul %w, %t : f32[N,N]"},
	{name: "matmul-rounds", types: "bf16 f16", input: "T[N,M]", result: "T[N,N]",
		before: "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%m = matmul %x, %t : f32[N,N]\n%y = convert %m : T[N,N]",
		after:  "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%y = matmul %x, %t : T[N,N]",
		wrong:  "%t = permute %x {dims=[1, 0]} : T[M,N:1,M]\n%m = matmul %x, %t : f32[N,N]\n%n = neg %m : f32[N,N]\n%y = convert %n : T[N,N]"},
	{name: "matmul-rounds", types: "bf16 f16", input: "T[s,N]", result: "T[s,s:1,s]",
		before: "%t = permute %x {dims=[1, 0]} : T[N,s:1,N]\n%m = matmul %x, %t : f32[s,s]\n%p = permute %m {dims=[1, 0]} : f32[s,s:1,s]\n%y = convert %p : T[s,s:1,s]",
		after:  "%t = permute %x {dims=[1, 0]} : T[N,s:1,N]\n%m = matmul %x, %t : T[s,s]\n%y = permute %m {dims=[1, 0]} : T[s,s:1,s]",
		wrong:  "%t = permute %x {dims=[1, 0]} : T[N,s:1,N]\n%m = matmul %x, %t : f32[s,s]\n%n = neg %m : f32[s,s]\n%p = permute %n {dims=[1, 0]} : f32[s,s:1,s]\n%y = convert %p : T[s,s:1,s]"},
	{name: "there-and-back", types: "bf16 f16 f32", input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : f64[N,M]\n%w = convert %v : T[N,M]\n%y = neg %w : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%v = convert %x : i32[N,M]\n%w = convert %v : T[N,M]\n%y = neg %w : T[N,M]"},
	{name: "cat-of-parts", types: allFloats, input: "T[4N,M]", result: "T[4N,M]",
		before: "%t = permute %x {dims=[1, 0]} : T[M,4N:1,M]\n%p = matmul %x, %t : T[4N,4N]\n%q = matmul %p, %x : T[4N,M]\n%y = softmax %q {dim=1} : T[4N,M]",
		after: "%t = permute %x {dims=[1, 0]} : T[M,4N:1,M]\n%a = slice %x {dim=0, start=0, end=N} : T[N,M]\n%b = slice %x {dim=0, start=N, end=4N} : T[3N,M]\n%p = matmul %a, %t : T[N,4N]\n%q = matmul %b, %t : T[3N,4N]\n" +
			"%c = matmul %p, %x : T[N,M]\n%d = matmul %q, %x : T[3N,M]\n%e = softmax %c {dim=1} : T[N,M]\n%f = softmax %d {dim=1} : T[3N,M]\n%y = cat %e, %f {dim=0} : T[4N,M]",
		wrong: "%t = permute %x {dims=[1, 0]} : T[M,4N:1,M]\n%a = slice %x {dim=0, start=0, end=N} : T[N,M]\n%b = slice %x {dim=0, start=N, end=4N} : T[3N,M]\n%p = matmul %a, %t : T[N,4N]\n%q = matmul %b, %t : T[3N,4N]\n" +
			"%c = matmul %p, %x : T[N,M]\n%d = matmul %q, %x : T[3N,M]\n%e = softmax %c {dim=1} : T[N,M]\n%f = softmax %d {dim=1} : T[3N,M]\n%y = cat %f, %e {dim=0} : T[4N,M]"},
	{name: "part-is-all", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%f = neg %x : T[N,M]\n%s = slice_scatter %f, %x {dim=0} : T[N,M]\n%y = neg %s : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%f = neg %x : T[N,M]\n%y = neg %f : T[N,M]"},
	{name: "part-is-all", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%e = slice %x {dim=0, start=1, end=1} : T[0,M]\n%f = neg %x : T[N,M]\n%s = slice_scatter %f, %e {dim=0, start=1, end=1} : T[N,M]\n%y = neg %s : T[N,M]",
		after:  "%f = neg %x : T[N,M]\n%y = neg %f : T[N,M]",
		wrong:  "%y = abs %x : T[N,M]"},
	{name: "convert-to-same", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[N,M]",
		before: "%v = convert %x : T[N,M]\n%y = neg %v : T[N,M]",
		after:  "%y = neg %x : T[N,M]",
		wrong:  "%v = neg %x : T[N,M]\n%y = neg %v : T[N,M]"},
	{name: "convert-of-choice", types: "bf16 f16 f32", input: "T[N,M]", result: "f64[N,M]",
		before: "%c = collective_permute %x on @all {pairs=[0, 1, 1, 2]} : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%y = convert %w : f64[N,M]",
		after:  "%v = convert %x : f64[N,M]\n%c = collective_permute %v on @all {pairs=[0, 1, 1, 2]} : async f64[N,M]\n%y = wait_tensor %c : f64[N,M]",
		wrong:  "%v = convert %x : f64[N,M]\n%c = collective_permute %v on @all {pairs=[0, 2, 1, 3]} : async f64[N,M]\n%y = wait_tensor %c : f64[N,M]"},
	{name: "factor-of-factor", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%v = mul %x {scalar=3} : T[N,M]\n%y = mul %v {scalar=5} : T[N,M]",
		after:  "%y = mul %x {scalar=15} : T[N,M]",
		wrong:  "%y = mul %x {scalar=8} : T[N,M]"},
	{name: "factor-of-sum", types: "f64 " + someInts, input: "T[N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%v = neg %x : T[N,M]\n%y = mul %v {scalar=3} : T[N,M]",
		after:  "%v = mul %x {scalar=3} : T[N,M]\n%y = neg %v : T[N,M]",
		wrong:  "%y = mul %x {scalar=3} : T[N,M]"},
	{name: "lookup-at-known", types: allFloats, input: "T[4N,M]", result: "T[N,M]",
		before: "%i = iota {start=N} : i64[N]\n%y = embedding %x, %i : T[N,M]",
		after:  "%s = slice %x {dim=0, start=N, end=2N} : T[N,M]\n%y = clone %s : T[N,M]",
		wrong:  "%s = slice %x {dim=0, start=0, end=N} : T[N,M]\n%y = clone %s : T[N,M]"},
	{name: "move-of-lookup", types: allFloats, input: "T[4N,M]", result: "T[N,M]",
		before: "%h = iota {step=1} : i64[2N]\n%i = rand : f32[2N]\n%j = mul %i {scalar=3.0} : f32[2N]\n%k = convert %j : i64[2N]\n%e = embedding %x, %k : T[2N,M]\n%y = slice %e {dim=0, start=0, end=N} : T[N,M]",
		after:  "%i = rand : f32[2N]\n%j = mul %i {scalar=3.0} : f32[2N]\n%k = convert %j : i64[2N]\n%s = slice %k {dim=0, start=0, end=N} : i64[N]\n%y = embedding %x, %s : T[N,M]",
		wrong:  "%i = rand : f32[2N]\n%j = mul %i {scalar=3.0} : f32[2N]\n%k = convert %j : i64[2N]\n%s = slice %k {dim=0, start=N, end=2N} : i64[N]\n%y = embedding %x, %s : T[N,M]"},
	{name: "shuffle-of-constant", types: allFloats, input: "T[2N,s]", result: "T[N,s]",
		before: "%p = slice %x {dim=0, start=0, end=N} : T[N,s]\n%f = full {value=2.0} : T[2N,s]\n%q = slice %f {dim=0, start=0, end=N} : T[N,s]\n%y = add %p, %q : T[N,s]",
		after:  "%p = slice %x {dim=0, start=0, end=N} : T[N,s]\n%f = full {value=2.0} : T[N,s]\n%y = add %p, %f : T[N,s]",
		wrong:  "%p = slice %x {dim=0, start=0, end=N} : T[N,s]\n%f = full {value=3.0} : T[N,s]\n%y = add %p, %f : T[N,s]"},
	{name: "shuffle-of-pointwise", types: allFloats, input: "T[2N,s]", result: "T[N,s]",
		before: "%t = tanh %x : T[2N,s]\n%p = slice %t {dim=0, start=0, end=N} : T[N,s]\n%y = clone %p : T[N,s]",
		after:  "%p = slice %x {dim=0, start=0, end=N} : T[N,s]\n%y = tanh %p : T[N,s]",
		wrong:  "%p = slice %x {dim=0, start=0, end=N} : T[N,s]\n%y = sigmoid %p : T[N,s]"},
	{name: "shuffle-undone", types: allFloats, input: "T[4*s,N]", result: "T[4*s,N]",
		before: "%c = all_reduce.max %x on @all : async T[4*s,N]\n%w = wait_tensor %c : T[4*s,N]\n%h = shard %w on @row {dim=0} : T[2*s,N]\n%g = all_gather %h on @row {dim=0} : async T[4*s,N]\n%v = wait_tensor %g : T[4*s,N]\n%y = neg %v : T[4*s,N]",
		after:  "%c = all_reduce.max %x on @all : async T[4*s,N]\n%w = wait_tensor %c : T[4*s,N]\n%y = neg %w : T[4*s,N]",
		wrong:  "%h = shard %x on @row {dim=0} : T[2*s,N]\n%g = all_gather %h on @row {dim=0} : async T[4*s,N]\n%v = wait_tensor %g : T[4*s,N]\n%c = all_reduce.max %v on @column : async T[4*s,N]\n%w = wait_tensor %c : T[4*s,N]\n%y = neg %w : T[4*s,N]"},
	{name: "reduce-of-shuffle", types: allFloats + " " + someInts, input: "T[2N,s]", result: "T[N,s]",
		before: "%p = slice %x {dim=0, start=0, end=N} : T[N,s]\n%c = all_reduce.sum %p on @row : async T[N,s]\n%y = wait_tensor %c : T[N,s]",
		after:  "%c = all_reduce.sum %x on @row : async T[2N,s]\n%w = wait_tensor %c : T[2N,s]\n%p = slice %w {dim=0, start=0, end=N} : T[N,s]\n%y = clone %p : T[N,s]",
		wrong:  "%c = all_reduce.sum %x on @column : async T[2N,s]\n%w = wait_tensor %c : T[2N,s]\n%p = slice %w {dim=0, start=0, end=N} : T[N,s]\n%y = clone %p : T[N,s]"},
	{name: "reduce-of-moved", types: allFloats + " " + someInts, input: "T[N,M]", result: "T[2N,M]",
		before: "%n = neg %x : T[N,M]\n%c = all_gather %x, %n on @row {dim=0} : async(T[2N,M], T[2N,M])\n%w:2 = wait_tensor %c : T[2N,M], T[2N,M]\n%m = mul %w#0, %w#1 : T[2N,M]\n%d = all_reduce.sum %m on @column : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]",
		after:  "%n = neg %x : T[N,M]\n%m = mul %x, %n : T[N,M]\n%c = all_reduce.sum %m on @column : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_gather %w on @row {dim=0} : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]",
		wrong:  "%n = neg %x : T[N,M]\n%m = mul %x, %n : T[N,M]\n%c = all_reduce.sum %m on @row : async T[N,M]\n%w = wait_tensor %c : T[N,M]\n%d = all_gather %w on @column {dim=0} : async T[2N,M]\n%y = wait_tensor %d : T[2N,M]"},
	{name: "equal-elements", types: allFloats + " " + someInts, input: "T[4N,4M]", result: "T[N,2M]",
		before: "%h = shard %x on @row {dim=1} : T[4N,2M]\n%c = reduce_scatter.max %h on @column {dim=0} : async T[2N,2M]\n%w = wait_tensor %c : T[2N,2M]\n%d = reduce_scatter.max %w on @row {dim=0} : async T[N,2M]\n%y = wait_tensor %d : T[N,2M]",
		after:  "%h = shard %x on @row {dim=1} : T[4N,2M]\n%c = all_reduce.max %h on @all : async T[4N,2M]\n%w = wait_tensor %c : T[4N,2M]\n%i = shard %w on @column {dim=0} : T[2N,2M]\n%y = shard %i on @row {dim=0} : T[N,2M]",
		wrong:  "%h = shard %x on @row {dim=1} : T[4N,2M]\n%c = all_reduce.max %h on @all : async T[4N,2M]\n%w = wait_tensor %c : T[4N,2M]\n%i = shard %w on @row {dim=0} : T[2N,2M]\n%y = shard %i on @column {dim=0} : T[N,2M]"},
	{name: "rows-of-owners", types: "f32 bf16 f16 f64", input: "T[N,M]", result: "T[2N,M]",
		before: "%r = rand : f32[2N]\n%rc = all_reduce.max %r on @all : async f32[2N]\n%rw = wait_tensor %rc : f32[2N]\n%rs = mul %rw {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%c = all_gather %x on @all {dim=0} : async T[4N,M]\n%w = wait_tensor %c : T[4N,M]\n%y = embedding %w, %ids : T[2N,M]",
		after:  "%r = rand : f32[2N]\n%rc = all_reduce.max %r on @all : async f32[2N]\n%rw = wait_tensor %rc : f32[2N]\n%rs = mul %rw {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @all {dim=0} : i64[1]\n%from = sub %ids, %first : i64[2N]\n%at = clamp %from {max=N-1, min=0} : i64[2N]\n%mine = eq %from, %at : bool[2N]\n%e = embedding %x, %at : T[2N,M]\n%u = unsqueeze %mine {dim=1} : bool[2N,1]\n%z = full {value=-0.0} : T[]\n%w = where %u, %e, %z : T[2N,M]\n%c = all_reduce.sum %w on @all : async T[2N,M]\n%y = wait_tensor %c : T[2N,M]",
		wrong:  "%r = rand : f32[2N]\n%rc = all_reduce.max %r on @all : async f32[2N]\n%rw = wait_tensor %rc : f32[2N]\n%rs = mul %rw {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @back {dim=0} : i64[1]\n%from = sub %ids, %first : i64[2N]\n%at = clamp %from {max=N-1, min=0} : i64[2N]\n%mine = eq %from, %at : bool[2N]\n%e = embedding %x, %at : T[2N,M]\n%u = unsqueeze %mine {dim=1} : bool[2N,1]\n%z = full {value=-0.0} : T[]\n%w = where %u, %e, %z : T[2N,M]\n%c = all_reduce.sum %w on @all : async T[2N,M]\n%y = wait_tensor %c : T[2N,M]"},
	{name: "sum-of-combined-rows", types: "f32 f64", input: "T[2N,M]", result: "T[N,M]",
		before: "%r = rand : f32[2N]\n%rs = mul %r {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%zero = full {value=0.0} : T[4N,M]\n%put = index_put %zero, %x, %ids {accumulate=true, dims=[0]} : T[4N,M]\n%c = reduce_scatter.sum %put on @all {dim=0} : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%r = rand : f32[2N]\n%rs = mul %r {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%n = lt %ids {scalar=0} : bool[2N]\n%m = add %ids {scalar=4N} : i64[2N]\n%p = where %n, %m, %ids : i64[2N]\n%line = unsqueeze %p {dim=0} : i64[1,2N]\n%stand = unsqueeze %p {dim=1} : i64[2N,1]\n%same = eq %stand, %line : bool[2N,2N]\n%lead = argmax %same {dim=1} : i64[2N]\n%count = iota : i64[2N]\n%leads = eq %lead, %count : bool[2N]\n%no = full {value=-1} : i64[]\n%ps = where %leads, %p, %no : i64[2N]\n%mb = full {value=0.0} : T[2N,M]\n%mine0 = index_put %mb, %x, %lead {accumulate=true, dims=[0]} : T[2N,M]\n%gp = all_gather %ps on @all {dim=0} : async i64[8N]\n%gr = all_gather %mine0 on @all {dim=0} : async T[8N,M]\n%wp = wait_tensor %gp : i64[8N]\n%wr = wait_tensor %gr : T[8N,M]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @all {dim=0} : i64[1]\n%from = sub %wp, %first : i64[8N]\n%at = clamp %from {max=N-1, min=0} : i64[8N]\n%mine = eq %from, %at : bool[8N]\n%u = unsqueeze %mine {dim=1} : bool[8N,1]\n%none = full {value=-0.0} : T[]\n%add = where %u, %wr, %none : T[8N,M]\n%base = full {value=0.0} : T[N,M]\n%y = index_put %base, %add, %at {accumulate=true, dims=[0]} : T[N,M]",
		wrong:  "%r = rand : f32[2N]\n%rs = mul %r {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%n = lt %ids {scalar=0} : bool[2N]\n%m = add %ids {scalar=4N} : i64[2N]\n%p = where %n, %m, %ids : i64[2N]\n%line = unsqueeze %p {dim=0} : i64[1,2N]\n%stand = unsqueeze %p {dim=1} : i64[2N,1]\n%same = eq %stand, %line : bool[2N,2N]\n%lead = argmax %same {dim=1} : i64[2N]\n%count = iota : i64[2N]\n%leads = eq %lead, %count : bool[2N]\n%no = full {value=-1} : i64[]\n%ps = where %leads, %ids, %ids : i64[2N]\n%mb = full {value=0.0} : T[2N,M]\n%mine0 = index_put %mb, %x, %lead {accumulate=true, dims=[0]} : T[2N,M]\n%gp = all_gather %ps on @all {dim=0} : async i64[8N]\n%gr = all_gather %mine0 on @all {dim=0} : async T[8N,M]\n%wp = wait_tensor %gp : i64[8N]\n%wr = wait_tensor %gr : T[8N,M]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @all {dim=0} : i64[1]\n%from = sub %wp, %first : i64[8N]\n%at = clamp %from {max=N-1, min=0} : i64[8N]\n%mine = eq %from, %at : bool[8N]\n%u = unsqueeze %mine {dim=1} : bool[8N,1]\n%none = full {value=-0.0} : T[]\n%add = where %u, %wr, %none : T[8N,M]\n%base = full {value=0.0} : T[N,M]\n%y = index_put %base, %add, %at {accumulate=true, dims=[0]} : T[N,M]"},
	{name: "sum-of-combined-rows-pointwise", types: "f32 f64", input: "T[N,M]", result: "T[N,M]",
		before: "%r = rand : f32[N]\n%rs = mul %r {scalar=4N} : f32[N]\n%ids = convert %rs : i64[N]\n%zero = full {value=0.0} : T[4N,M]\n%put = index_put %zero, %x, %ids {accumulate=true, dims=[0]} : T[4N,M]\n%c = reduce_scatter.sum %put on @all {dim=0} : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%r = rand : f32[N]\n%rs = mul %r {scalar=4N} : f32[N]\n%ids = convert %rs : i64[N]\n%n = lt %ids {scalar=0} : bool[N]\n%m = add %ids {scalar=4N} : i64[N]\n%p = where %n, %m, %ids : i64[N]\n%line = unsqueeze %p {dim=0} : i64[1,N]\n%stand = unsqueeze %p {dim=1} : i64[N,1]\n%same = eq %stand, %line : bool[N,N]\n%lead = argmax %same {dim=1} : i64[N]\n%count = iota : i64[N]\n%leads = eq %lead, %count : bool[N]\n%no = full {value=-1} : i64[]\n%ps = where %leads, %p, %no : i64[N]\n%mb = full {value=0.0} : T[N,M]\n%mine0 = index_put %mb, %x, %lead {accumulate=true, dims=[0]} : T[N,M]\n%gp = all_gather %ps on @all {dim=0} : async i64[4N]\n%gr = all_gather %mine0 on @all {dim=0} : async T[4N,M]\n%wp = wait_tensor %gp : i64[4N]\n%wr = wait_tensor %gr : T[4N,M]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @all {dim=0} : i64[1]\n%from = sub %wp, %first : i64[4N]\n%at = clamp %from {max=N-1, min=0} : i64[4N]\n%mine = eq %from, %at : bool[4N]\n%from2 = view %at : i64[4,N]\n%runs = iota {step=N} : i64[4]\n%begin = unsqueeze %runs {dim=1} : i64[4,1]\n%byrank = add %from2, %begin : i64[4,N]\n%flat = view %byrank : i64[4N]\n%any = iota : i64[4N]\n%rows = where %mine, %flat, %any : i64[4N]\n%number = iota : i64[4N]\n%next = add %number {scalar=1} : i64[4N]\n%nil = full {value=0} : i64[]\n%place = where %mine, %next, %nil : i64[4N]\n%none = full {value=-1} : i64[4N]\n%of = index_put %none, %place, %rows {accumulate=true, dims=[0]} : i64[4N]\n%zero = full {value=0.0} : T[]\n%s0 = slice %of {dim=0, start=0, end=N} : i64[N]\n%h0 = ge %s0 {scalar=0} : bool[N]\n%c0 = clamp %s0 {min=0} : i64[N]\n%e0 = embedding %wr, %c0 : T[N,M]\n%u0 = unsqueeze %h0 {dim=1} : bool[N,1]\n%w0 = where %u0, %e0, %zero : T[N,M]\n%s1 = slice %of {dim=0, start=N, end=2N} : i64[N]\n%h1 = ge %s1 {scalar=0} : bool[N]\n%c1 = clamp %s1 {min=0} : i64[N]\n%e1 = embedding %wr, %c1 : T[N,M]\n%u1 = unsqueeze %h1 {dim=1} : bool[N,1]\n%w1 = where %u1, %e1, %zero : T[N,M]\n%a1 = add %w0, %w1 : T[N,M]\n%s2 = slice %of {dim=0, start=2N, end=3N} : i64[N]\n%h2 = ge %s2 {scalar=0} : bool[N]\n%c2 = clamp %s2 {min=0} : i64[N]\n%e2 = embedding %wr, %c2 : T[N,M]\n%u2 = unsqueeze %h2 {dim=1} : bool[N,1]\n%w2 = where %u2, %e2, %zero : T[N,M]\n%a2 = add %a1, %w2 : T[N,M]\n%s3 = slice %of {dim=0, start=3N, end=4N} : i64[N]\n%h3 = ge %s3 {scalar=0} : bool[N]\n%c3 = clamp %s3 {min=0} : i64[N]\n%e3 = embedding %wr, %c3 : T[N,M]\n%u3 = unsqueeze %h3 {dim=1} : bool[N,1]\n%w3 = where %u3, %e3, %zero : T[N,M]\n%y = add %a2, %w3 : T[N,M]",
		wrong:  "%r = rand : f32[N]\n%rs = mul %r {scalar=4N} : f32[N]\n%ids = convert %rs : i64[N]\n%n = lt %ids {scalar=0} : bool[N]\n%m = add %ids {scalar=4N} : i64[N]\n%p = where %n, %m, %ids : i64[N]\n%line = unsqueeze %p {dim=0} : i64[1,N]\n%stand = unsqueeze %p {dim=1} : i64[N,1]\n%same = eq %stand, %line : bool[N,N]\n%lead = argmax %same {dim=1} : i64[N]\n%count = iota : i64[N]\n%leads = eq %lead, %count : bool[N]\n%no = full {value=-1} : i64[]\n%ps = where %leads, %p, %no : i64[N]\n%mb = full {value=0.0} : T[N,M]\n%mine0 = index_put %mb, %x, %lead {accumulate=true, dims=[0]} : T[N,M]\n%gp = all_gather %ps on @all {dim=0} : async i64[4N]\n%gr = all_gather %mine0 on @all {dim=0} : async T[4N,M]\n%wp = wait_tensor %gp : i64[4N]\n%wr = wait_tensor %gr : T[4N,M]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @all {dim=0} : i64[1]\n%from = sub %wp, %first : i64[4N]\n%at = clamp %from {max=N-1, min=0} : i64[4N]\n%mine = eq %from, %at : bool[4N]\n%from2 = view %at : i64[4,N]\n%runs = iota {step=N} : i64[4]\n%begin = unsqueeze %runs {dim=1} : i64[4,1]\n%byrank = add %from2, %begin : i64[4,N]\n%flat = view %byrank : i64[4N]\n%any = iota : i64[4N]\n%rows = where %mine, %flat, %any : i64[4N]\n%number = iota : i64[4N]\n%next = add %number {scalar=1} : i64[4N]\n%nil = full {value=0} : i64[]\n%place = where %mine, %next, %nil : i64[4N]\n%none = full {value=-1} : i64[4N]\n%of = index_put %none, %place, %rows {accumulate=true, dims=[0]} : i64[4N]\n%zero = full {value=1.0} : T[]\n%s0 = slice %of {dim=0, start=0, end=N} : i64[N]\n%h0 = ge %s0 {scalar=0} : bool[N]\n%c0 = clamp %s0 {min=0} : i64[N]\n%e0 = embedding %wr, %c0 : T[N,M]\n%u0 = unsqueeze %h0 {dim=1} : bool[N,1]\n%w0 = where %u0, %e0, %zero : T[N,M]\n%s1 = slice %of {dim=0, start=N, end=2N} : i64[N]\n%h1 = ge %s1 {scalar=0} : bool[N]\n%c1 = clamp %s1 {min=0} : i64[N]\n%e1 = embedding %wr, %c1 : T[N,M]\n%u1 = unsqueeze %h1 {dim=1} : bool[N,1]\n%w1 = where %u1, %e1, %zero : T[N,M]\n%a1 = add %w0, %w1 : T[N,M]\n%s2 = slice %of {dim=0, start=2N, end=3N} : i64[N]\n%h2 = ge %s2 {scalar=0} : bool[N]\n%c2 = clamp %s2 {min=0} : i64[N]\n%e2 = embedding %wr, %c2 : T[N,M]\n%u2 = unsqueeze %h2 {dim=1} : bool[N,1]\n%w2 = where %u2, %e2, %zero : T[N,M]\n%a2 = add %a1, %w2 : T[N,M]\n%s3 = slice %of {dim=0, start=3N, end=4N} : i64[N]\n%h3 = ge %s3 {scalar=0} : bool[N]\n%c3 = clamp %s3 {min=0} : i64[N]\n%e3 = embedding %wr, %c3 : T[N,M]\n%u3 = unsqueeze %h3 {dim=1} : bool[N,1]\n%w3 = where %u3, %e3, %zero : T[N,M]\n%y = add %a2, %w3 : T[N,M]"},
	{name: "sum-of-added-rows", types: "f64 " + someInts, input: "T[2N,M]", result: "T[N,M]", loose: true, exactInts: true,
		before: "%r = rand : f32[2N]\n%rs = mul %r {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%zero = full {value=0.0} : T[4N,M]\n%put = index_put %zero, %x, %ids {accumulate=true, dims=[0]} : T[4N,M]\n%c = reduce_scatter.sum %put on @all {dim=0} : async T[N,M]\n%y = wait_tensor %c : T[N,M]",
		after:  "%r = rand : f32[2N]\n%rs = mul %r {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%n = lt %ids {scalar=0} : bool[2N]\n%m = add %ids {scalar=4N} : i64[2N]\n%p = where %n, %m, %ids : i64[2N]\n%gp = all_gather %p on @all {dim=0} : async i64[8N]\n%gr = all_gather %x on @all {dim=0} : async T[8N,M]\n%wp = wait_tensor %gp : i64[8N]\n%wr = wait_tensor %gr : T[8N,M]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @all {dim=0} : i64[1]\n%from = sub %wp, %first : i64[8N]\n%at = clamp %from {max=N-1, min=0} : i64[8N]\n%mine = eq %from, %at : bool[8N]\n%u = unsqueeze %mine {dim=1} : bool[8N,1]\n%none = full {value=0.0} : T[]\n%add = where %u, %wr, %none : T[8N,M]\n%base = full {value=0.0} : T[N,M]\n%y = index_put %base, %add, %at {accumulate=true, dims=[0]} : T[N,M]",
		wrong:  "%r = rand : f32[2N]\n%rs = mul %r {scalar=4N} : f32[2N]\n%ids = convert %rs : i64[2N]\n%n = lt %ids {scalar=0} : bool[2N]\n%m = add %ids {scalar=4N} : i64[2N]\n%p = where %n, %m, %ids : i64[2N]\n%gp = all_gather %p on @all {dim=0} : async i64[8N]\n%gr = all_gather %x on @all {dim=0} : async T[8N,M]\n%wp = wait_tensor %gp : i64[8N]\n%wr = wait_tensor %gr : T[8N,M]\n%i = iota {step=N} : i64[4]\n%first = shard %i on @all {dim=0} : i64[1]\n%from = sub %wp, %first : i64[8N]\n%at = clamp %from {max=N-1, min=0} : i64[8N]\n%mine = eq %from, %at : bool[8N]\n%u = unsqueeze %mine {dim=1} : bool[8N,1]\n%none = full {value=0.0} : T[]\n%add = where %u, %none, %wr : T[8N,M]\n%base = full {value=0.0} : T[N,M]\n%y = index_put %base, %add, %at {accumulate=true, dims=[0]} : T[N,M]"},
}

// program is a case's function for one element type and sizes.
func (c equationCase) program(t *testing.T, body, dt string, n, m int) *ir.Func {
	t.Helper()
	text := "world 4\nsym s hint 3 max 5\ngroup @all = [[0, 1, 2, 3]]\ngroup @row = [[0, 1], [2, 3]]\ngroup @column = [[0, 2], [1, 3]]\ngroup @back = [[3, 2, 1, 0]]\ngroup @one = [[0], [1], [2], [3]]\n" +
		"func @f(%x: " + c.input + ") -> (" + c.result + ") {\n" + body + "\nreturn %y\n}\n"
	text = strings.ReplaceAll(text, "T[", dt+"[")
	text = strings.NewReplacer("8N", fmt.Sprint(8*n), "=N-1", fmt.Sprint("=", n-1), "4N", fmt.Sprint(4*n), "3N", fmt.Sprint(3*n), "4M", fmt.Sprint(4*m), "2M", fmt.Sprint(2*m), "2N", fmt.Sprint(2*n), "=N", fmt.Sprint("=", n), "[N", fmt.Sprint("[", n), ",M", fmt.Sprint(",", m), "[M", fmt.Sprint("[", m), ",N", fmt.Sprint(",", n)).Replace(text)
	module, err := ir.Parse(c.name, text)
	if err == nil {
		err = module.Verify()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, text)
	}
	return module.Funcs()[0]
}

// byElements is the equation for small tensors.
const byElements = "equal-elements"

// Every case is proved by its equation, not without it, and its wrong twin never; and
// both sides give the same numbers on all ranks, bit by bit where the equation is
// exact, with signed zeros, infinities and NaN among the inputs.
func TestEquations(t *testing.T) {
	shown := map[string]bool{}
	for _, c := range equationCases {
		shown[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			for i, dt := range strings.Fields(c.types) {
				for seed := range uint64(6) {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					n, m := 2+r.IntN(4), 2+r.IntN(3)
					before, after, wrong := c.program(t, c.before, dt, n, m), c.program(t, c.after, dt, n, m), c.program(t, c.wrong, dt, n, m)
					o := equiv.Options{Reassociate: c.loose && !(c.exactInts && dt[0] == 'i')}
					if c.name != byElements { // which would show most others on small tensors, too
						o.Without = []string{byElements}
					}
					if _, err := equiv.Check(before, after, o); err != nil {
						t.Fatalf("%s[%d,%d]: %v", dt, n, m, err)
					}
					if _, err := equiv.Check(before, wrong, o); err == nil {
						t.Fatalf("%s[%d,%d]: what is wrong is proved", dt, n, m)
					}
					o.Without = append(o.Without, c.name)
					if _, err := equiv.Check(before, after, o); err == nil {
						t.Fatalf("%s[%d,%d]: proved without the equation", dt, n, m)
					}
					o = equiv.Options{}
					if _, err := equiv.Check(before, after, o); c.loose && dt[0] != 'i' && err == nil {
						t.Fatalf("%s[%d,%d]: proved although reassociation is not allowed", dt, n, m)
					}
					sameNumbers(t, before, after, seed, c.loose && dt[0] != 'i')
				}
			}
		})
	}
	for _, e := range equiv.Equations() {
		if e.Statement == "" || !shown[e.Name] {
			t.Errorf("no case shows equation %s", e.Name)
		}
	}
}

// Equal elements are found in large tensors, too: runs count as one.
func TestEqualElementsOfLarge(t *testing.T) {
	for _, c := range equationCases {
		if c.name != byElements {
			continue
		}
		before, after, wrong := c.program(t, c.before, "bf16", 2048, 1024), c.program(t, c.after, "bf16", 2048, 1024), c.program(t, c.wrong, "bf16", 2048, 1024)
		if _, err := equiv.Check(before, after, equiv.Options{}); err != nil {
			t.Error(err)
		}
		if _, err := equiv.Check(before, wrong, equiv.Options{}); err == nil {
			t.Error("what is wrong is proved")
		}
	}
}

// Which of a matmul and its transpose stands for both follows from the operands' normal forms: where
// these differ and the elements do not, lines are compared in either order.
func TestTurnedElements(t *testing.T) {
	c := equationCase{name: "turned", input: "T[N,M]", result: "T[N,N]"}
	program := func(a string) *ir.Func {
		return c.program(t, "%n = neg %x : T[N,M]\n%t = permute %n {dims=[1, 0]} : T[M,N:1,M]\n%i = iota : i64[M]\n%b = lt %i {scalar=9} : bool[M]\n%s = where %b, %x, %n : T[N,M]\n%y = matmul "+a+", %t : T[N,N]", "f32", 3, 2)
	}
	if _, err := equiv.Check(program("%s"), program("%x"), equiv.Options{}); err != nil {
		t.Error(err)
	}
	if _, err := equiv.Check(program("%s"), program("%n"), equiv.Options{}); err == nil {
		t.Error("another operand is proved to be equal")
	}
}

// Rows that are listed one by one may be columns of the transpose that stands for a matmul.
func TestListedColumns(t *testing.T) {
	const rows = "%p = permute %x {dims=[1, 0, 2]} : T[2,4,9999:9999,19998,1]\n%r = clone %p : T[2,4,9999]\n%v = view %r : T[8,9999]\n"
	program := func(w, body string) *ir.Func {
		text := "world 1\nfunc @f(%x: T[4,2,9999], %w: T[9999,W]) -> (T[8,W]) {\n" + rows + body + "  return %y\n}\n"
		return parsedLoop(t, strings.NewReplacer("T[", "f32[", "W", w).Replace(text))
	}
	for _, w := range []string{"1", "2", "3", "9"} {
		body, list := "", ""
		for k := range 4 {
			body += fmt.Sprintf("%%s%d = slice %%v {dim=0, end=%d, start=%d} : T[2,9999]\n%%m%d = matmul %%s%d, %%w : T[2,W]\n", k, 2*k+2, 2*k, k, k)
			list += fmt.Sprintf(", %%m%d", k)
		}
		for _, c := range []struct {
			list  string
			equal bool
		}{{list[2:], true}, {strings.NewReplacer("m1", "m2", "m2", "m1").Replace(list[2:]), false}} {
			parts := program(w, body+"%y = cat "+c.list+" {dim=0} : T[8,W]\n")
			_, err := equiv.Check(program(w, "%y = matmul %v, %w : T[8,W]\n"), parts, equiv.Options{Without: []string{byElements}})
			if (err == nil) != c.equal {
				t.Errorf("%s columns of %s: %v", w, c.list, err)
			}
		}
	}
}

// sameNumbers runs both on random inputs and on extremes.
func sameNumbers(t *testing.T, before, after *ir.Func, seed uint64, loose bool) {
	t.Helper()
	in, err := interp.RandomInputs(before, seed, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 17))
	if !loose {
		odd := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -1e-40, 6e4, -3}
		for rank := range in {
			for k, x := range in[rank] {
				if !x.DType.IsFloat() || seed%2 == 0 {
					continue
				}
				vals := x.Float64s()
				for i := range vals {
					vals[i] = odd[r.IntN(len(odd))]
				}
				if in[rank][k], err = interp.FromFloats(x.DType, vals, x.Shape...); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	run := func(f *ir.Func) [][]interp.Tensor {
		out, err := interp.Run(context.Background(), f, in, interp.Options{Poison: true, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want, got := run(before), run(after)
	for rank := range want {
		x, y := want[rank][0].Float64s(), got[rank][0].Float64s()
		for i := range x {
			same := math.Float64bits(x[i]) == math.Float64bits(y[i]) || math.IsNaN(x[i]) && math.IsNaN(y[i])
			if loose {
				same = math.Abs(x[i]-y[i]) <= 1e-12*(1+math.Abs(x[i]))
			}
			if !same {
				t.Fatalf("rank %d, element %d: %v and %v", rank, i, x[i], y[i])
			}
		}
	}
}

// With excess precision 16-bit floats may be float32 in between, and nothing else.
func TestExcessPrecision(t *testing.T) {
	c := equationCase{name: "excess precision", input: "T[N,M]", result: "T[M]"}
	for _, dt := range []string{"bf16", "f16"} {
		before := c.program(t, "%e = erf %x : T[N,M]\n%a = add %e, %x : T[N,M]\n%w = convert %a : f32[N,M]\n%s = sum %w {dims=[0]} : f32[M]\n%y = convert %s : T[M]", dt, 2, 3)
		for text, equal := range map[string]bool{
			"%e = erf %x : f32[N,M]\n%a = add %e, %x : f32[N,M]\n%y = sum %a {dims=[0]} : T[M]":                             true,
			"%e = erf %x : f32[N,M]\n%a = sub %e, %x : f32[N,M]\n%y = sum %a {dims=[0]} : T[M]":                             false,
			"%e = erf %x : f32[N,M]\n%i = convert %e : i32[N,M]\n%a = add %i, %x : f32[N,M]\n%y = sum %a {dims=[0]} : T[M]": false,
			"%e = erf %x : f32[N,M]\n%a = add %e, %x : f32[N,M]\n%z = bitcast %a : i32[N,M]\n%y = sum %z {dims=[0]} : T[M]": false,
		} {
			after := c.program(t, text, dt, 2, 3)
			if _, err := equiv.Check(before, after, equiv.Options{ExcessPrecision: true}); (err == nil) != equal {
				t.Errorf("%s: %s: %v", dt, text, err)
			}
			if _, err := equiv.Check(before, after, equiv.Options{Reassociate: true}); err == nil {
				t.Errorf("%s: proved although it keeps precision: %s", dt, text)
			}
		}
	}
}
