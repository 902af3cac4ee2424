package forwarding

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// What is read is what was put there, or stays as it is.
func TestReads(t *testing.T) {
	for _, c := range []struct{ name, body, result, want string }{
		{"the last round", "%z = full {value=0.0} : f32[3,2]\n%s = slice_scatter %z, %x {dim=0, end=2, start=1} : f32[3,2]\n%r = slice %s {dim=0, end=2, start=1} : f32[1,2]\n%y = neg %r : f32[1,2]", "f32[1,2]", "neg %x"},
		{"an iteration before", "%z = full {value=0.0} : f32[3,2]\n%s = slice_scatter %z, %x {dim=0, end=2, start=1} : f32[3,2]\n%v = neg %x : f32[1,2]\n%t = slice_scatter %s, %v {dim=0, end=3, start=2} : f32[3,2]\n%r = select %t {dim=0, index=1} : f32[2]\n%y = neg %r : f32[2]", "f32[2]", "neg %r_1"},
		{"in front of all", "%z = full {value=0.0} : f32[3,2]\n%s = slice_scatter %z, %x {dim=0, end=2, start=1} : f32[3,2]\n%r = slice %s {dim=0, end=1, start=0} : f32[1,2]\n%y = neg %r : f32[1,2]", "f32[1,2]", "slice %z {dim=0, end=1, start=0}"},
		{"across two", "%z = full {value=0.0} : f32[3,2]\n%s = slice_scatter %z, %x {dim=0, end=2, start=1} : f32[3,2]\n%r = slice %s {dim=0, end=3, start=1} : f32[2,2]\n%y = neg %r : f32[2,2]", "f32[2,2]", ""},
		{"every other", "%z = full {value=0.0} : f32[3,2]\n%c = cat %x, %z {dim=0} : f32[4,2]\n%r = slice %c {dim=0, end=4, start=1, step=2} : f32[2,2:4,1]\n%y = neg %r : f32[2,2]", "f32[2,2]", ""},
		{"the middle one", "%z = full {value=0.0} : f32[3,2]\n%c = cat %x, %z, %x {dim=0} : f32[5,2]\n%r = slice %c {dim=0, end=4, start=2} : f32[2,2]\n%y = neg %r : f32[2,2]", "f32[2,2]", "slice %z {dim=0, end=3, start=1}"},
		{"columns", "%z = full {value=0.0} : f32[3,2]\n%c = cat %z, %z {dim=1} : f32[3,4]\n%r = slice %c {dim=1, end=2, start=0} : f32[3,2:4,1]\n%y = neg %r : f32[3,2]", "f32[3,2]", ""},
		{"in another order", "%z = full {value=0.0} : f32[2,3]\n%p = permute %z {dims=[1, 0]} : f32[3,2:1,3]\n%c = cat %x, %p {dim=0} : f32[4,2]\n%r = slice %c {dim=0, end=4, start=1} : f32[3,2]\n%y = neg %r : f32[3,2]", "f32[3,2]", "%r_1 = clone %p"},
		{"in another order, and read as a whole", "%z = full {value=0.0} : f32[2,3]\n%p = permute %z {dims=[1, 0]} : f32[3,2:1,3]\n%c = cat %x, %p {dim=0} : f32[4,2]\n%r = slice %c {dim=0, end=4, start=1} : f32[3,2]\n%all = sum %c {dims=[0, 1]} : f32[]\n%y = add %r, %all : f32[3,2]", "f32[3,2]", ""},
		{"returned, and the caller's", "%z = full {value=0.0} : f32[3,2]\n%c = cat %x, %z {dim=0} : f32[4,2]\n%y = slice %c {dim=0, end=1, start=0} : f32[1,2]", "f32[1,2]", ""},
		{"written", "%z = full {value=0.0} : f32[3,2]\n%c = cat %z, %x {dim=0} : f32[4,2]\n%r = slice %c {dim=0, end=3, start=0} : f32[3,2]\n%w = call %z {effects=[\"writes\"], target=\"f\"} : f32[]\n%y = neg %r : f32[3,2]", "f32[3,2]", ""},
	} {
		m, err := ir.Parse(c.name, "world 1\nfunc @f(%x: f32[1,2]) -> ("+c.result+") {\n"+c.body+"\nreturn %y\n}\n")
		if err == nil {
			err = m.Verify()
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		before, f := m.String(), m.Funcs()[0]
		f.RemoveDead(Reads(f, nil)...)
		if err := m.Verify(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := m.String(); c.want == "" && got != before || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, got)
		}
		m, _ = ir.Parse(c.name, before)
		if Reads(m.Funcs()[0], func(*ir.Node) bool { return false }); m.String() != before {
			t.Errorf("%s: changed without leave\n%s", c.name, m)
		}
	}
}
