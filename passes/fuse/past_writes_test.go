package fuse

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
)

func TestPastWrites(t *testing.T) {
	past := func(ctx *passes.Context, f *ir.Func) { copyCheap(ctx, f, &ir.Writes{}) }
	passestest.PastWrites(t, Pass(), past, []passestest.Write{
		{Rule: "copied", Text: `func @f(%x: f32[8]) -> (f32[8], f32[8]) {
  %z = full {value=0.0} : f32[8]
  %a = add %z, %x : f32[8]
  call %z {class="memory", effects=["writes"], target="inc"}
  %y = neg %z : f32[8]
  return %y, %a
}`},
		{Rule: "copied", Text: `func @f(%x: f32[8]) -> (f64[8], f64[8]) {
  %h = relu %x : f32[8]
  %c = convert %h : f64[8]
  %a = add %c, %c : f64[8]
  call %h {class="memory", effects=["writes"], target="inc"}
  %b = mul %c, %c : f64[8]
  return %a, %b
}`},
		{Rule: "copied", Text: `func @f(%x: f32[8]) -> (f64[8], f64[8]) {
  %c = convert %x : f64[8]
  %a = neg %c : f64[8]
  call %c {class="memory", effects=["writes"], target="inc"}
  %b = mul %c, %c : f64[8]
  return %a, %b
}`},
	})
}
