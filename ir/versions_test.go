package ir

import (
	"fmt"
	"strings"
	"testing"
)

const written = `world 2
group @g = [[0, 1]]

func @f(%x: f32[8]) -> (f32[8], f32[2,4], f32[8]) {
  %y = neg %x : f32[8]
  %v = view %y : f32[2,4]
  %a = exp %y : f32[8]
  %inc:0 = call %y {effects=["writes"], target="inc"}
  %u = view %y@inc : f32[2,4]
  %b = exp %v@inc : f32[2,4]
  %two:2 = call %u, %a {effects=["writes"], target="inc", writes=[0]} : f32[8], f32[8]
  %c = all_reduce.sum %y@two, %a on @g : async(f32[8], f32[8])
  %w:2 = wait_tensor %c : f32[8], f32[8]
  %inc_2:0 = call %w#1 {effects=["writes"], target="inc"}
  return %w#1@inc_2, %v@two, %two#1
}
`

func parseFunc(t *testing.T, text string) *Func {
	t.Helper()
	m, err := Parse("t.ir", text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.Funcs()[0]
}

// TestVersions reads text with versions and without: both mean the same.
func TestVersions(t *testing.T) {
	plain := written
	for _, w := range []string{"@inc_2", "@inc", "@two"} {
		plain = strings.ReplaceAll(plain, w, "")
	}
	for _, text := range []string{written, plain} {
		f := parseFunc(t, text)
		if got := f.Module().String(); got != written {
			t.Errorf("printed\n%s\nwant\n%s", got, written)
		}
		if got := f.Module().Clone().String(); got != written {
			t.Errorf("the clone prints\n%s", got)
		}
	}
	f := parseFunc(t, written)
	v := f.Return().Arg(1)
	if v.Def() != f.Lookup("two") || v.Base() != f.Lookup("v").Result(0) || v.Before().Def() != f.Lookup("inc") {
		t.Errorf("%s: def %s, base %s, before %s", v, v.Def().Name(), v.Base(), v.Before())
	}
	st, err := ComputeStorages(f)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := st.Of(v)[0].Storage, st.Of(f.Lookup("y").Result(0))[0].Storage; a != b {
		t.Errorf("%s lies in storage %d, what it names in %d", v, a, b)
	}
	w := FindWrites(f)
	for name, want := range map[string]bool{"x": false, "y": true, "v": true, "u": true, "a": false, "b": false} {
		if got := w.Written(f.Lookup(name).Result(0)); got != want {
			t.Errorf("%%%s is written: %v, want %v", name, got, want)
		}
	}
	if r := f.Lookup("w").Results(); w.Written(r[0]) || !w.Written(r[1]) {
		t.Errorf("of the wait, %v and %v are written, want the second", w.Written(r[0]), w.Written(r[1]))
	}
}

// TestVersionsKeepOrder makes the mistakes that passes make: each is found.
func TestVersionsKeepOrder(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *Func)
		want   string
	}{
		"a read moves past the write": {func(f *Func) { f.MoveAfter(f.Lookup("a"), f.Lookup("inc")) }, "%y is gone: %inc has written"},
		"a view moves past the write": {func(f *Func) { f.MoveAfter(f.Lookup("v"), f.Lookup("inc")) }, "%v is used before it is defined"},
		"a read is cloned behind the write": {func(f *Func) {
			s := f.Lookup("a").Spec()
			s.Name = "again"
			f.InsertAfter(f.Lookup("inc"), s)
		}, "%y is gone: %inc has written"},
		"a read is rewired to an alias of before": {func(f *Func) { f.SetArg(f.Lookup("b"), 0, f.Lookup("v").Result(0)) }, "%v is gone: %inc has written"},
		"a read skips a write": {func(f *Func) {
			f.SetArg(f.Return(), 1, f.Lookup("b").Arg(0))
		}, "%v@inc is gone: %two has written"},
		"the write moves before a read": {func(f *Func) { f.MoveBefore(f.Lookup("inc"), f.Lookup("a")) }, "%y is gone: %inc has written"},
		"two writes change places":      {func(f *Func) { f.MoveBefore(f.Lookup("two"), f.Lookup("inc")) }, "is used before it is defined"},
		"a write gets into a flight": {func(f *Func) {
			f.InsertBefore(f.Lookup("w"), NodeSpec{Op: OpCall, Args: []*Value{f.Lookup("c").Arg(1)}, Attrs: f.Lookup("inc").Attrs()})
		}, "%a is written while %c reads it"},
		"a version of what is not written": {func(f *Func) {
			f.SetArg(f.Return(), 0, f.VersionAt(f.Lookup("inc"), f.Lookup("x").Result(0)))
		}, "whose storage %inc does not write"},
		"a write loses its effect": {func(f *Func) {
			f.SetAttrs(f.Lookup("inc"), f.Lookup("inc").Attrs().Without("effects"))
		}, "whose storage %inc does not write"},
	} {
		t.Run(name, func(t *testing.T) {
			f := parseFunc(t, written)
			c.change(f)
			err := f.Module().Verify()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestReadNewest lets a return read what the function has left.
func TestReadNewest(t *testing.T) {
	f := parseFunc(t, written)
	f.SetArgs(f.Return(), f.Lookup("w").Result(1), f.Lookup("v").Result(0), f.Lookup("two").Result(1))
	f.ReadNewest(f.Return())
	if got := f.Module().String(); got != written {
		t.Errorf("printed\n%s", got)
	}
}

// BenchmarkResolveVersions has one storage of n names, each written through once and
// each other read many writes later.
func BenchmarkResolveVersions(b *testing.B) {
	for _, n := range []int{1000, 4000, 16000} {
		var text strings.Builder
		text.WriteString("world 1\nfunc @f(%x: f32[8]) -> () {\n")
		for i := range n {
			fmt.Fprintf(&text, "  %%v%d = view %%x : f32[2,4]\n  call %%v%d {effects=[\"writes\"], target=\"inc\"}\n  %%r%d = exp %%v%d : f32[2,4]\n", i, i, i, i/2)
		}
		text.WriteString("  return\n}\n")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Parse("t.ir", text.String()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
