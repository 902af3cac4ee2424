package proof_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/program"
)

// A kernel need not load what no element of its results depends on, and nothing else is
// left out.
func TestUnread(t *testing.T) {
	for _, c := range []struct {
		name, params, body string
		old, new           string // what makes it wrong
	}{
		{"the rows of a cat that a slice leaves out", "%a: f32[4,8], %b: f32[4,8]", `
  %c = cat %a, %b {dim=0} : f32[8,8] !{fusion=0}
  %n = neg %c : f32[8,8] !{fusion=0}
  %s = slice %n {dim=0, end=4} : f32[4,8] !{fusion=0}
  %r = relu %s : f32[4,8] !{fusion=0}
  return %r`, "cat (p0: f32[4,8], t0: f32[4,8])", "cat (t0: f32[4,8], p0: f32[4,8])"},
		{"the columns", "%a: f32[4,8], %b: f32[4,8]", `
  %c = cat %a, %b {dim=1} : f32[4,16] !{fusion=0}
  %n = neg %c : f32[4,16] !{fusion=0}
  %s = slice %n {dim=1, end=15, start=9} : f32[4,6:16,1] !{fusion=0}
  %r = relu %s : f32[4,6] !{fusion=0}
  return %r`, "relu (t2+36: f32[4,6:16,1])", "relu (t2+28: f32[4,6:16,1])"},
		{"what is replaced", "%a: f32[8,8], %b: f32[2,8]", `
  %c = slice_scatter %a, %b {dim=0, end=4, start=2} : f32[8,8] !{fusion=0}
  %n = neg %c : f32[8,8] !{fusion=0}
  %s = slice %n {dim=0, end=4, start=2} : f32[2,8] !{fusion=0}
  %r = relu %s : f32[2,8] !{fusion=0}
  return %r`, "relu (t2+64: f32[2,8])", "relu (t2+32: f32[2,8])"},
		{"what is not", "%a: f32[8,8], %b: f32[2,8]", `
  %c = slice_scatter %a, %b {dim=0, end=4, start=2} : f32[8,8] !{fusion=0}
  %n = neg %c : f32[8,8] !{fusion=0}
  %s = slice %n {dim=0, end=8, start=5} : f32[3,8] !{fusion=0}
  %r = relu %s : f32[3,8] !{fusion=0}
  return %r`, "start=2", "start=4"},
		{"all of it, of a symbol's size", "%a: f32[s,1], %b: f32[s,1]", `
  %c = slice_scatter %a, %b {dim=1} : f32[s,1] !{fusion=0}
  %r = neg %c : f32[s,1] !{fusion=0}
  return %r`, "slice_scatter (t0: f32[n0,1], p0: f32[n0,1])", "slice_scatter (p0: f32[n0,1], t0: f32[n0,1])"},
		{"the columns of a symbol's rows", "%a: f32[s,4], %b: f32[s,4]", `
  %n = neg %a : f32[s,4] !{fusion=0}
  %c = slice_scatter %n, %b {dim=1, step=1} : f32[s,4] !{fusion=0}
  %r = relu %c : f32[s,4] !{fusion=0}
  return %r`, "slice_scatter (t1: f32[n0,4], p0: f32[n0,4])", "slice_scatter (p0: f32[n0,4], t1: f32[n0,4])"},
		{"one of every second", "%a: f32[8,8], %b: f32[3,8]", `
  %c = slice_scatter %a, %b {dim=0, end=7, start=1, step=2} : f32[8,8] !{fusion=0}
  %n = neg %c : f32[8,8] !{fusion=0}
  %s = slice %n {dim=0, end=4, start=3} : f32[1,8] !{fusion=0}
  %r = relu %s : f32[1,8] !{fusion=0}
  return %r`, "start=1", "start=2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := c.body[strings.LastIndex(c.body, "f32["):]
			rows = rows[:strings.Index(rows, "]")+1]
			m, err := ir.Parse("f.ir", "world 1\nsym s hint 2 max 5\n\nfunc @f("+c.params+") -> ("+rows+") {"+c.body+"\n}\n")
			if err == nil {
				err = m.Verify()
			}
			if err != nil {
				t.Fatal(err)
			}
			f := m.Funcs()[0]
			p, err := lower.FuncWith(f, lower.Options{Kernels: true})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Instrs) != 1 || len(p.Instrs[0].Ins) != 1 {
				t.Fatalf("the case is about one launch with one operand:\n%s", p)
			}
			if err := proof.Check(f, p); err != nil {
				t.Error(err)
			}
			if !strings.Contains(p.String(), c.old) {
				t.Fatalf("%q is not in\n%s", c.old, p)
			}
			q, err := program.Parse("p", strings.Replace(p.String(), c.old, c.new, 1))
			if err != nil {
				t.Fatal(err)
			}
			if err := proof.Check(f, q); err == nil || !strings.Contains(err.Error(), "instruction 0, result 0") {
				t.Errorf("%q passes as %q: %v", c.old, c.new, err)
			}
		})
	}
}
