package simplify

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
)

func TestPastWrites(t *testing.T) {
	past := func(ctx *passes.Context, f *ir.Func) { simplify(ctx, f, &ir.Writes{}) }
	passestest.PastWrites(t, Pass(), past, []passestest.Write{
		{Rule: "pointwise-before-gather", Options: "", Text: `func @f(%x: f32[4]) -> (f32[4]) {
  %c = all_gather %x on @g {dim=0} : async f32[8]
  %w = wait_tensor %c : f32[8]
  %y = relu %w : f32[8]
  call %y {class="memory", effects=["writes"], target="inc"}
  %s = shard %y on @g {dim=0} : f32[4]
  return %s
}`},
		{Rule: "shard-of-gather", Options: "", Text: `func @f(%x: f32[4]) -> (f32[4]) {
  %r = relu %x : f32[4]
  %c = all_gather %r on @g {dim=0} : async f32[8]
  %w = wait_tensor %c : f32[8]
  call %w {class="memory", effects=["writes"], target="inc"}
  %s = shard %w on @g {dim=0} : f32[4]
  return %s
}`},
		{Rule: "shard-of-constant", Options: "", Text: `func @f() -> (f32[4]) {
  %z = full {value=0.0} : f32[8]
  call %z {class="memory", effects=["writes"], target="inc"}
  %s = shard %z on @g {dim=0} : f32[4]
  return %s
}`},
		{Rule: "gather-of-shard", Options: "{shard-before-pointwise=false}", Text: `func @f(%x: f32[8]) -> (f32[8]) {
  %a = all_reduce.sum %x on @g : async f32[8]
  %b = wait_tensor %a : f32[8]
  %n = neg %b : f32[8]
  %s = shard %n on @g {dim=0} : f32[4]
  call %s {class="memory", effects=["writes"], target="inc"}
  %c = all_gather %s on @g {dim=0} : async f32[8]
  %w = wait_tensor %c : f32[8]
  return %w
}`},
		{Rule: "own-slice", Options: "", Text: `func @f(%t: f32[4,2]) -> (f32[2,2]) {
  %i = iota : i64[4]
  %s = shard %i on @g {dim=0} : i64[2]
  call %s {class="memory", effects=["writes"], target="flip"}
  %e = index %t, %s {dims=[0]} : f32[2,2]
  return %e
}`},
		{Rule: "combine-before-reduce", Options: "", Text: `func @f(%v: f32[1,64], %i: i64[1]) -> (f32[128,64]) {
  %z = full {value=0.0} : f32[256,64]
  call %z {class="memory", effects=["writes"], target="inc"}
  %p = index_put %z, %v, %i {accumulate=true, dims=[0]} : f32[256,64]
  %c = reduce_scatter.sum %p on @g {dim=0} : async f32[128,64]
  %w = wait_tensor %c : f32[128,64]
  return %w
}`},
		{Rule: "scatter-add-before-reduce", Options: "{combine-before-reduce=false}", Text: `func @f(%v: i32[1,64], %i: i64[1]) -> (i32[128,64]) {
  %z = full {value=0.0} : i32[256,64]
  call %z {class="memory", effects=["writes"], target="inc"}
  %p = index_put %z, %v, %i {accumulate=true, dims=[0]} : i32[256,64]
  %c = reduce_scatter.sum %p on @g {dim=0} : async i32[128,64]
  %w = wait_tensor %c : i32[128,64]
  return %w
}`},
	})
}
