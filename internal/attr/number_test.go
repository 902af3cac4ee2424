package attr

import "testing"

func TestNumber(t *testing.T) {
	l := Make(Attr{"b", Bool(true)}, Attr{"f", Float(-2.5)}, Attr{"i", Int(3)}, Attr{"n", Bool(false)}, Attr{"s", String("3")}, Attr{"w", Float(3)})
	for key, want := range map[string]Number{
		"b": {Set: true, I: 1, F: 1}, "n": {Set: true}, "i": {Set: true, I: 3, F: 3}, "f": {true, true, -2, -2.5}, "w": {true, true, 3, 3}, "s": {}, "absent": {},
	} {
		if got := l.Number(key); got != want {
			t.Errorf("%s: %+v, want %+v", key, got, want)
		}
	}
	if n := l.Number("f").Or(1); n.F != -2.5 {
		t.Errorf("set, and yet %v", n)
	}
	if n := l.Number("absent").Or(4); n != (Number{Set: true, I: 4, F: 4}) {
		t.Errorf("4 by default is %+v", n)
	}
}
