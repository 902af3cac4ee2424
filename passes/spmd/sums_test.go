package spmd

import (
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

// What is made of a sum is made of its parts only where that is the same: not where integers would
// wrap around in a wider type or be cut off in each part, nor where a number is infinite or 0.
func TestPartsOfSums(t *testing.T) {
	const (
		large = "%l = mul %i {scalar=1000000007} : i32[8]\n  %y = add %l {scalar=7} : i32[8]\n  %s = sum %y {dims=[0], keepdim=true} : i32[1]\n  "
		odd   = "%y = mul %i {scalar=3} : i32[8]\n  %s = sum %y {dims=[0], keepdim=true} : i32[1]\n  "
		real  = "%y = convert %i : f32[8]\n  %z = sub %y {scalar=4.25} : f32[8]\n  %s = sum %z {dims=[0], keepdim=true} : f32[1]\n  "
	)
	for _, c := range []struct{ body, dt string }{
		{large + "%r = sum %s {dims=[0], keepdim=true} : i64[1]", "i64"},
		{large + "%r = mul %s {scalar=3} : i64[1]", "i64"},
		{large + "%w = sum %y {dims=[0], keepdim=true} : i64[1]\n  %r = add %s, %w : i64[1]", "i64"},
		{large + "%r = mul %s {scalar=0.5} : f32[1]", "f32"},
		{odd + "%r = mul %s {scalar=0.5} : i32[1]", "i32"},
		{odd + "%r = div %s {scalar=5} : i32[1]", "i32"},
		{odd + "%m = sum %i {dims=[0], keepdim=true} : i32[1]\n  %r = sub %s, %m {alpha=0.5} : i32[1]", "i32"},
		{real + "%r = mul %s {scalar=inf} : f32[1]", "f32"},
		{real + "%r = div %s {scalar=0.0} : f32[1]", "f32"},
	} {
		const at = `!{sharding=["<mesh<['x'=4]>, [{'x'}]>"]}`
		text := "world 4\n\nfunc @f(%x: f32[8] " + at + ") -> (" + c.dt + "[1]) {\n  %n = mul %x {scalar=0.0} : f32[8]\n  %c = convert %n : i32[8]\n  %j = iota {start=1} : i32[8]\n  %i = add %c, %j : i32[8]\n  " + c.body + "\n  return %r\n}"
		m, err := ir.Parse("f.ir", text)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := agree(m, 1, false, 1e-6); err != nil {
			t.Errorf("%v\n%s\n%s", err, text, out)
		}
	}
}

// A sum of parts in a wider type than they wrap around in is no proof.
func TestWiderParts(t *testing.T) {
	of := func(text string) *ir.Func {
		m, err := ir.Parse("f.ir", text)
		if err != nil {
			t.Fatal(err)
		}
		return m.Funcs()[0]
	}
	device := of("world 2\n\nfunc @f(%x: i32[8]) -> (i64[]) {\n  %s = sum %x {dims=[0], keepdim=true} : i32[1]\n  %r = sum %s {dims=[0]} : i64[]\n  return %r\n}")
	ranks := func(body string) *ir.Func {
		return of("world 2\ngroup @x = [[0, 1]]\n\nfunc @f(%x: i32[4]) -> (i64[]) {\n  %s = sum %x {dims=[0], keepdim=true} : i32[1]\n  " + body + "\n  return %r\n}")
	}
	o := mesh.Options{Mesh: placement.Mesh{Axes: []placement.Axis{{Name: "x", Size: 2}}}}
	if _, err := mesh.Check(device, ranks("%a = all_reduce.sum %s on @x : async i32[1]\n  %w = wait_tensor %a : i32[1]\n  %r = sum %w {dims=[0]} : i64[]"), o); err != nil {
		t.Error(err)
	}
	if _, err := mesh.Check(device, ranks("%w = sum %s {dims=[0]} : i64[]\n  %a = all_reduce.sum %w on @x : async i64[]\n  %r = wait_tensor %a : i64[]"), o); err == nil {
		t.Error("parts of a sum are proved to be one in a wider type")
	}
}
