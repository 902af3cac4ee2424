package ir

import "testing"

// The base of a version is found in one step, and follows when what it is a version of is
// replaced, in clones too.
func TestBase(t *testing.T) {
	m, err := Parse("t.ir", `world 1
func @f(%x: f32[4]) -> (f32[4]) {
  %a = neg %x : f32[4]
  %b = neg %x : f32[4]
  %i0:0 = call %a {target="inc", effects=["writes"]}
  %i1:0 = call %a {target="inc", effects=["writes"]}
  %i2:0 = call %a {target="inc", effects=["writes"]}
  return %a
}
`)
	if err != nil {
		t.Fatal(err)
	}
	check := func(m *Module, base string) {
		t.Helper()
		f := m.Funcs()[0]
		if got := f.Return().Arg(0).Base(); got != f.Lookup(base).Result(0) || got.Def().Func() != f {
			t.Errorf("the base of %s is %s, want %%%s", f.Return().Arg(0), got, base)
		}
		for _, v := range f.Return().Args() {
			for ; v.IsVersion(); v = v.Before() {
				if v.Base() != v.Before().Base() {
					t.Errorf("%s and what it was before have other bases", v)
				}
			}
		}
	}
	check(m, "a")
	check(m.Clone(), "a")
	f := m.Funcs()[0]
	f.ReplaceUses(f.Lookup("a").Result(0), f.Lookup("b").Result(0))
	check(m, "b")
	check(m.Clone(), "b")
}
