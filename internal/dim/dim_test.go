package dim

import (
	"strings"
	"testing"
)

func TestCanonicalText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"8", "8"}, {"2+3*4", "14"}, {"-s0+s0", "0"}, {"s0*2+s0", "3*s0"}, {"(s0+1)*(s0-1)", "s0*s0-1"},
		{"(2*s0+4)//2", "s0+2"}, {"(s0+1)//2", "(s0+1)//2"}, {"s1*((s0+1)//2)", "(s0+1)//2*s1"}, {"s0//2//3", "s0//6"},
		{"b*a", "a*b"}, {"1+a+a*b", "a*b+a+1"}, {"2-a", "-a+2"}, {"7//2", "3"}, {"0-a//2", "-a//2"}, {"(-a)//2", "(-a)//2"},
		{"(2*a-1)//2", "a-1"}, {"(2*a+b)//2", "a+b//2"}, {"(4*b+a//3+5)//2", "(a+15)//6+2*b"}, {"(2*b+a*(a//3))//2", "(a*a//3)//2+b"},
	} {
		d, err := Parse(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if d.String() != c.want {
			t.Errorf("%s prints %s, want %s", c.in, d, c.want)
		}
		again, err := Parse(d.String())
		if err != nil || !again.Equal(d) {
			t.Errorf("%s does not read back: %v %v", d, again, err)
		}
	}
}

func TestEval(t *testing.T) {
	vals := map[string]int64{"a": 7, "b": 3}
	at := func(s string) (int64, bool) { v, ok := vals[s]; return v, ok }
	for in, want := range map[string]int64{"a*b+1": 22, "(a+1)//3": 2, "-a//2": -3, "(-a)//2": -4, "a//2*2": 6} {
		d, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := d.Eval(at); !ok || got != want {
			t.Errorf("%s = %d, %v, want %d", in, got, ok, want)
		}
	}
	if _, ok := Sym("c").Eval(at); ok {
		t.Error("an unknown symbol has a value")
	}
	big := New(1 << 40).Mul(Sym("a"))
	if _, ok := big.Mul(big).Eval(at); ok {
		t.Error("overflow is not noticed")
	}
}

func TestDetermined(t *testing.T) {
	for _, c := range []struct {
		d, given string
		want     bool
	}{
		{"3", "", true}, {"a", "", false}, {"a", "2*a+1", true}, {"a*b+a", "b 3*a", true}, {"a*b", "a*b", true}, {"a", "a*b b", false},
		{"a", "a+b", false}, {"a", "(a+1)//2", false}, {"(a+1)//2", "a", true}, {"a", "a*a", false}, {"a", "4", false},
	} {
		d, _ := Parse(c.d)
		var given []Dim
		for _, s := range strings.Fields(c.given) {
			g, err := Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			given = append(given, g)
		}
		if d.Determined(given) != c.want {
			t.Errorf("%s of %s: not %v", c.d, c.given, c.want)
		}
	}
}

func TestGiven(t *testing.T) {
	for _, c := range []struct{ d, zero, want string }{
		{"c*d", "a*b-c*d", "a*b"}, {"2*c*d*e+c+1", "c*d-a*b", "2*a*b*e+c+1"}, {"c*d", "c*d-c-(a*b-a)", "a*b-a+c"},
		{"b", "a-b", "a"}, {"b*b", "b-a", "a*a"}, {"b", "a+b-8", "b"}, {"b", "2*a-b", "2*a"}, {"a", "b-2*a", "a"},
		{"c*d", "a*b-2*c*d", "c*d"}, {"3", "a-b", "3"}, {"4*e-8", "2-e", "0"}, {"e*a", "e-2", "2*a"}, {"a", "b", "a"}, {"c*c*d*d", "a*b-c*d", "a*a*b*b"},
	} {
		d, _ := Parse(c.d)
		zero, err := Parse(c.zero)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Given(zero).String(); got != c.want {
			t.Errorf("%s where %s is 0: %s, want %s", c.d, c.zero, got, c.want)
		}
	}
}

func TestSolve(t *testing.T) {
	value := func(s string) (int64, bool) { return 3, s == "b" }
	for _, c := range []struct {
		d    string
		n    int64
		want int64 // -1 for none
	}{
		{"a", 5, 5}, {"2*a+1", 7, 3}, {"2*a+1", 8, -1}, {"a*b", 12, 4}, {"a*b+b", 12, 3}, {"a*c", 12, -1}, {"a*a", 9, -1},
		{"a//2", 2, -1}, {"a+a//2", 3, -1}, {"b", 3, -1}, {"7", 7, -1}, {"8-a", 2, 6}, {"a*(b//2)+1", 5, 4},
	} {
		d, err := Parse(c.d)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := d.Solve("a", c.n, value); ok != (c.want >= 0) || ok && got != c.want {
			t.Errorf("%s is %d: a is %d %v, want %d", c.d, c.n, got, ok, c.want)
		}
	}
}

func TestNotNegative(t *testing.T) {
	for s, want := range map[string]bool{"0": true, "-1": false, "2*a+3": true, "a-1": false, "a*b": true, "(a+1)//2": true, "(a-1)//2": false, "b-a*(a-1)//2": false} {
		d, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if d.NotNegative() != want {
			t.Errorf("%s: not %v", s, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                     `"" is not a dimension: expected a size or symbol`,
		"a+":                   `"a+" is not a dimension: expected a size or symbol`,
		"(a":                   `"(a" is not a dimension: expected ')' in a dimension expression`,
		"a//0":                 `"a//0" is not a dimension: the divisor must be positive`,
		"a b":                  `"a b" is not a dimension: unexpected ' '`,
		"99999999999999999999": `"99999999999999999999" is not a dimension: the size is too large`,
		"4294967296*4294967296*a-4294967296*4294967296*a": `"4294967296*4294967296*a-4294967296*4294967296*a" is not a dimension: the size is too large`,
		"9223372036854775807+a":                           `"9223372036854775807+a" is not a dimension: the size is too large`,
	} {
		if _, err := Parse(in); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("2*s0*(s1-3)+(s0+1)//2")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(d.String())
		if err != nil || again.String() != d.String() {
			t.Fatalf("%q -> %q -> %q, %v", s, d, again, err)
		}
	})
}

func TestTerms(t *testing.T) {
	for _, s := range []string{"0", "7", "a", "2*a*b-3*(a//2)*a+5", "(a-1)//2-b"} {
		d, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		sum := New(0)
		times, factors := d.Terms()
		for i, n := range times {
			product := New(n)
			for _, f := range factors[i] {
				product = product.Mul(f)
			}
			sum = sum.Add(product)
		}
		if !sum.Equal(d) {
			t.Errorf("%s has terms of %s", d, sum)
		}
	}
}
