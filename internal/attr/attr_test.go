package attr

import (
	"math"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

func TestTextRoundTrip(t *testing.T) {
	l := Make(
		Attr{"scale", Float(0.125)}, Attr{"one", Float(1)}, Attr{"big", Float(1e300)}, Attr{"ninf", Float(math.Inf(-1))},
		Attr{"dims", Ints(0, -1)}, Attr{"none", Ints()}, Attr{"members", Strings("a,b", "c\"]")},
		Attr{"causal", Bool(true)}, Attr{"to", DType(dtype.BF16)}, Attr{"target", String("a\n{b}")}, Attr{"k", Int(-7)},
	)
	const want = `{big=1e+300, causal=true, dims=[0, -1], k=-7, members=["a,b", "c\"]"], ninf=-inf, none=[], one=1.0, scale=0.125, target="a\n{b}", to=bf16}`
	if l.String() != want {
		t.Fatalf("printed\n%s\nwant\n%s", l, want)
	}
	got, n, err := Scan(want + " rest")
	if err != nil || n != len(want) || !got.Equal(l) {
		t.Fatalf("Scan = %v, %d, %v", got, n, err)
	}
}

func TestScanErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"{a}", "expected '=' after attribute a"},
		{"{a=1, a=2}", "attribute a given twice"},
		{"{a=[1, \"x\"]}", "a list holds integers or strings, not both"},
		{"{a=zebra}", `"zebra" is not a number, true, false, a string, a list or an element type`},
		{"{a=1 b=2}", "expected ',' or '}' in attributes"},
		{"{a=\"x}", "malformed string"},
		{"{", "expected an attribute name"},
		{"{a=", "expected a value"},
	} {
		if _, _, err := Scan(c.in); err == nil || err.Error() != c.want {
			t.Errorf("Scan(%q) = %v, want %s", c.in, err, c.want)
		}
	}
}

func TestListIsNotChangedInPlace(t *testing.T) {
	a := Make(Attr{"x", Int(1)}, Attr{"z", Int(3)})
	b := a.With("y", Int(2)).With("x", Int(9)).Without("z")
	if a.String() != "{x=1, z=3}" || b.String() != "{x=9, y=2}" {
		t.Fatalf("a %v, b %v", a, b)
	}
}

func FuzzScan(f *testing.F) {
	f.Add(`{a=1, b="x", c=[1, 2], d=1e-05, e=bf16}`)
	f.Fuzz(func(t *testing.T, s string) {
		l, _, err := Scan(s)
		if err != nil {
			return
		}
		text := l.String()
		if len(l) == 0 {
			return
		}
		m, n, err := Scan(text)
		if err != nil || n != len(text) || !m.Equal(l) {
			t.Fatalf("%q -> %q -> %v, %v", s, text, m, err)
		}
	})
}
