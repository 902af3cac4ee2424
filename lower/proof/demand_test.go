package proof_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/program"
)

// An unreadCase is a function whose launch leaves out an operand, and a change of the program that is wrong.
type unreadCase struct {
	name, params, body string
	old, new           string
}

var unreadCases = []unreadCase{
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
	{"what two replace together", "%a: f32[8,8], %b: f32[3,8], %c: f32[5,8]", `
  %x = slice_scatter %a, %b {dim=0, end=3, start=0} : f32[8,8] !{fusion=0}
  %y = slice_scatter %x, %c {dim=0, end=8, start=3} : f32[8,8] !{fusion=0}
  %r = relu %y : f32[8,8] !{fusion=0}
  return %r`, "start=3", "start=2"},
	{"what is replaced again", "%a: f32[8,8], %b: f32[1,8], %c: f32[3,8]", `
  %x = slice_scatter %a, %b {dim=0, end=4, start=3} : f32[8,8] !{fusion=0}
  %y = slice_scatter %x, %c {dim=0, end=5, start=2} : f32[8,8] !{fusion=0}
  %r = relu %y : f32[8,8] !{fusion=0}
  return %r`, "start=2", "start=4"},
	{"a row of columns", "%a: f32[8,2], %b: f32[1,2]", `
  %x = slice_scatter %a, %b {dim=0, end=4, start=3} : f32[8,2:1,8] !{fusion=0}
  %s = slice %x {dim=0, end=3, start=2} : f32[1,2:1,8] !{fusion=0}
  %r = relu %s : f32[1,2] !{fusion=0}
  return %r`, "start=3", "start=2"},
	{"the rows of a copy", "%a: f32[8,8], %b: f32[2,8]", `
  %n = slice_scatter %a, %b {dim=0, end=8, start=6} : f32[8,8] !{fusion=0}
  %c = clone %n : f32[8,8] !{fusion=0}
  %s = slice %c {dim=0, end=6, start=2} : f32[4,8] !{fusion=0}
  %r = relu %s : f32[4,8] !{fusion=0}
  return %r`, "start=6", "start=5"},
	{"the rows that no index asks for", "%a: i64[4], %b: i64[4], %x: f32[16,8]", `
  %c = cat %a, %b {dim=0} : i64[8] !{fusion=0}
  %t = index %x, %c {dims=[0]} : f32[8,8] !{fusion=0}
  %s = slice %t {dim=0, end=4} : f32[4,8] !{fusion=0}
  %r = relu %s : f32[4,8] !{fusion=0}
  return %r`, "cat (p0: i64[4], t0: i64[4])", "cat (t0: i64[4], p0: i64[4])"},
	{"the columns of rows", "%v: f32[8,4], %w: f32[8,4], %i: i64[3]", `
  %c = cat %v, %w {dim=1} : f32[8,8] !{fusion=0}
  %t = embedding %c, %i : f32[3,8] !{fusion=0}
  %s = slice %t {dim=1, end=4} : f32[3,4:8,1] !{fusion=0}
  %r = relu %s : f32[3,4] !{fusion=0}
  return %r`, "cat (p1: f32[8,4], t0: f32[8,4])", "cat (t0: f32[8,4], p1: f32[8,4])"},
	{"the rows that gather", "%a: i64[4,8], %b: i64[4,8], %x: f32[8,16]", `
  %c = cat %a, %b {dim=0} : i64[8,8] !{fusion=0}
  %t = gather %x, %c {dim=1} : f32[8,8] !{fusion=0}
  %s = slice %t {dim=0, end=4} : f32[4,8] !{fusion=0}
  %r = relu %s : f32[4,8] !{fusion=0}
  return %r`, "cat (p0: i64[4,8], t0: i64[4,8])", "cat (t0: i64[4,8], p0: i64[4,8])"},
	{"the rows that scatter", "%a: i64[4,8], %b: i64[4,8], %x: f32[8,16]", `
  %c = cat %a, %b {dim=0} : i64[8,8] !{fusion=0}
  %t = scatter %x, %c {dim=1, value=1.0} : f32[8,16] !{fusion=0}
  %s = slice %t {dim=0, end=4} : f32[4,16] !{fusion=0}
  %r = relu %s : f32[4,16] !{fusion=0}
  return %r`, "cat (p1: i64[4,8], t0: i64[4,8])", "cat (t0: i64[4,8], p1: i64[4,8])"},
	{"the columns that are added", "%v: f32[3,8], %w: f32[3,8], %i: i64[3], %x: f32[8,16]", `
  %c = cat %v, %w {dim=1} : f32[3,16] !{fusion=0}
  %t = index_add %x, %i, %c {dim=0} : f32[8,16] !{fusion=0}
  %s = slice %t {dim=1, end=8} : f32[8,8:16,1] !{fusion=0}
  %r = relu %s : f32[8,8] !{fusion=0}
  return %r`, "cat (p2: f32[3,8], t0: f32[3,8])", "cat (t0: f32[3,8], p2: f32[3,8])"},
	{"the columns that are written", "%v: f32[3,8], %w: f32[3,8], %i: i64[3], %x: f32[8,16]", `
  %c = cat %v, %w {dim=1} : f32[3,16] !{fusion=0}
  %t = index_put %x, %c, %i {dims=[0]} : f32[8,16] !{fusion=0}
  %s = slice %t {dim=1, end=8} : f32[8,8:16,1] !{fusion=0}
  %r = relu %s : f32[8,8] !{fusion=0}
  return %r`, "cat (p2: f32[3,8], t0: f32[3,8])", "cat (t0: f32[3,8], p2: f32[3,8])"},
}

func (c unreadCase) run(t *testing.T) {
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
	if len(p.Instrs) != 1 || len(p.Instrs[0].Ins) != strings.Count(c.params, "%")-1 {
		t.Fatalf("the case is about one launch that leaves out an operand:\n%s", p)
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
}

// A kernel need not load what no element of its results depends on, and nothing else is
// left out.
func TestUnread(t *testing.T) {
	for _, c := range unreadCases {
		t.Run(c.name, c.run)
	}
}

// What is replaced as a whole is what replaces it, whichever of several a launch is taken to give.
func TestReplacedWhole(t *testing.T) {
	m, err := ir.Parse("f.ir", `world 1
func @f(%a: f32[2,3], %b: f32[2,3]) -> (f32[2,3]) {
  %x = slice_scatter %a, %b {dim=1, end=3, start=0} : f32[2,3] !{fusion=0}
  %y = slice_scatter %x, %b {dim=1, end=3, start=0} : f32[2,3] !{fusion=0}
  %s = slice %y {dim=0, end=1} : f32[1,3]
  return %x
}
`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := lower.FuncWith(m.Funcs()[0], lower.Options{Kernels: true})
	if err == nil {
		err = proof.Check(m.Funcs()[0], p)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, p)
	}
}
