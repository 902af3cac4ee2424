package progen

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// What passes do not serve of legal programs they say in typed errors; what a program asks
// of them in vain is no such thing.
func TestRefused(t *testing.T) {
	const joint = "world 2\ngroup @g = [[0, 1]]\nfunc @f(%x: f32[4], %t: f32[4] !{role=\"tangent\"}) -> "
	for _, c := range []struct {
		name, passes, text string
		refused            bool
	}{
		{"cap", "overlap{cap=8}", "world 1\nfunc @f(%x: f32[4]) -> (f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n", true},
		{"arena", "plan-memory{capacity=8}", "world 1\nfunc @f(%x: f32[4]) -> (f32[4]) {\n  %y = neg %x : f32[4]\n  %z = exp %y : f32[4]\n  return %z\n}\n", true},
		{"edges", "partition", joint + "(f32[4], f32[4]) {\n  %a = neg %x : f32[4]\n  %b = neg %t : f32[4] after %a\n  return %a, %b\n}\n", true},
		{"donated", "partition", strings.Replace(joint, "f32[4],", "f32[4] {donate=0},", 1) + "(f32[4], f32[4]) {\n  %a = neg %x : f32[4]\n  %b = mul %t, %x : f32[4]\n  return %a, %b\n}\n", true},
		{"overwritten", "partition", joint + "(f32[4], f32[4]) {\n  %b = mul %x, %t : f32[4]\n  call %x {effects=[\"writes\"], target=\"inc\"}\n  %a = neg %x : f32[4]\n  return %a, %b\n}\n", true},
		{"asked", "partition", joint + "(f32[4], f32[4]) {\n  %a = neg %x : f32[4]\n  %b = neg %t : f32[4]\n  return %a, %b !{forward=2}\n}\n", false},
	} {
		m, err := ir.Parse("case.ir", c.text)
		if err == nil {
			err = m.Verify()
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		p, err := standard.Table().Parse(c.passes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&passes.Manager{}).Run(m, p)
		if err == nil || refused(err) != c.refused {
			t.Errorf("%s: refused %v, want %v: %v", c.name, refused(err), c.refused, err)
		}
	}
}

// What does not end is found.
func TestHang(t *testing.T) {
	end := make(chan bool)
	defer close(end)
	c := New(1)
	forever := func(context.Context, *Compiled) ([][][]interp.Tensor, error) {
		<-end
		return nil, context.Canceled
	}
	if f := c.checkInTime(t.Context(), Runs{CUDA: forever, Patience: 100 * time.Millisecond}); f == nil || f.Oracle != "hang" || !strings.Contains(f.Detail, "TestHang") {
		t.Errorf("got %v", f)
	}
}
