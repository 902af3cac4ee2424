package randseed

import "testing"

// Everything that is derived from must matter, and the derivation must not move:
// 64-bit FNV-1a of "3 5 7 2 drop".
func TestDerive(t *testing.T) {
	base := Derive(3, 5, 7, "drop", 2)
	const offset, prime = 14695981039346656037, 1099511628211
	want := uint64(offset)
	for _, c := range []byte("3 5 7 2 drop") {
		want = (want ^ uint64(c)) * prime
	}
	if base != int64(want) {
		t.Errorf("Derive(3, 5, 7, drop, 2) = %d, want %d", base, int64(want))
	}
	if got := Derive(5, 1, 2, "a", 3); got != 841516723243443987 {
		t.Errorf("Derive(5, 1, 2, a, 3) = %d, which programs of the past did not draw", got)
	}
	for what, got := range map[string]int64{
		"seed": Derive(4, 5, 7, "drop", 2), "run": Derive(3, 6, 7, "drop", 2), "step": Derive(3, 5, 8, "drop", 2),
		"node": Derive(3, 5, 7, "drip", 2), "rank": Derive(3, 5, 7, "drop", 3),
	} {
		if got == base {
			t.Errorf("the %s makes no difference", what)
		}
	}
}
