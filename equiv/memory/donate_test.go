package memory_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/equiv/memory"
	"github.com/seed-ee968945/concert/ir"
)

func parse(t *testing.T, text string) *ir.Func {
	t.Helper()
	m, err := ir.Parse("t.ir", "world 1\n"+text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.Funcs()[0]
}

// TestDonatedMemory: what takes the place of an input is what the input is donated to, and
// everything that reads the input comes before it.
func TestDonatedMemory(t *testing.T) {
	const text = `func @f(%w: f32[8] {donate=0}, %g: f32[8]) -> (f32[8], f32[8]) {
  %a = neg %w : f32[8]
  %new = mul %g, %g : f32[8] !{home=[0]}
  %b = neg %g : f32[8]
  return %new, %b
}`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"%b = neg %g", "%b = neg %w", "reads %w, whose bytes %new has overwritten"},
		{" {donate=0}", "", "input 0 is not donated to it"},
		{"donate=0", "donate=1", "input 0 is not donated to it"},
		{"home=[0]", "home=[1]", "input 1 is not donated to it"},
		{"home=[0]", "home=[2]", "input 2 is not donated to it"},
		{"mul %g, %g", "mul %w, %g", "writes %new over operand %w"},
		{"mul %g, %g : f32[8] !{home=[0]}", "mul %w, %g : f32[8] !{inplace=[0]}", ""},
		{"mul %g, %g : f32[8] !{home=[0]}", "mul %w, %g : f32[8] !{inplace=[1]}", "lies in place of %g, which belongs to the caller"},
	} {
		err := memory.Check(parse(t, strings.Replace(text, c.old, c.new, 1)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: %v, want %q", c.old, c.new, err, c.want)
		}
	}
}

// TestDonationsKept: a function donates the same inputs to the same results.
func TestDonationsKept(t *testing.T) {
	const text = `func @f(%w: f32[8] {donate=0}, %g: f32[8]) -> (f32[8], f32[8]) {
  %a = neg %g : f32[8]
  return %a, %w
}`
	before := parse(t, strings.Replace(text, "%w\n}", "%g\n}", 1))
	for _, c := range []struct{ old, new string }{{" {donate=0}", ""}, {"%g: f32[8]", "%g: f32[8] {donate=1}"}} {
		after := parse(t, strings.Replace(strings.Replace(text, "%w\n}", "%g\n}", 1), c.old, c.new, 1))
		if _, err := equiv.Check(before, after, equiv.Options{}); err == nil || !strings.Contains(err.Error(), "the same inputs are donated") {
			t.Errorf("%s -> %s: %v", c.old, c.new, err)
		}
	}
	if _, err := equiv.Check(before, before, equiv.Options{}); err != nil {
		t.Error(err)
	}
}
