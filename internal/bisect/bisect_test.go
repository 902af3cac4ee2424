package bisect

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	const site = "sink-waits/step/w-3"
	bits := Suffix(site, 5)
	flip := strings.Map(func(r rune) rune { return '0' + '1' - r }, bits[:1]) + bits[1:]
	hex := fmt.Sprintf("x%02x", Hash(site)&0xff)
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"", true}, {"all", true}, {"none", false},
		{bits, true}, {flip, false}, {"!" + bits, false}, {"!" + flip, true},
		{flip + "+" + bits, true}, {bits + "-" + bits[1:], false}, {bits[1:] + "-" + flip, true}, {bits[4:] + "-" + bits[1:] + "+" + bits, true},
		{hex, true}, {hex + "-" + hex, false},
		{"=" + site, true}, {"=other", false}, {"!=" + site, false}, {"=other+" + bits, true},
		{"=sink-waits/*", true}, {"=sink*-=" + site, false}, {"=raise*", false}, {"!=sink-waits/step/*", false},
	} {
		p, err := Parse(c.pattern)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.pattern, err)
			continue
		}
		if got := p.Enabled(site); got != c.want {
			t.Errorf("%q enables %s: %v, want %v", c.pattern, site, got, c.want)
		}
	}
}

func TestPatternErrors(t *testing.T) {
	for _, c := range []struct {
		pattern string
		offset  int
	}{{"2", 0}, {"01+", 3}, {"+1", 0}, {"!", 1}, {"x", 0}, {"01-zz", 3}, {"=", 0}, {strings.Repeat("0", 65), 0}, {"1--1", 2}} {
		_, err := Parse(c.pattern)
		var se *SyntaxError
		if !errors.As(err, &se) || se.Offset != c.offset {
			t.Errorf("Parse(%q): %v, want a syntax error at %d", c.pattern, err, c.offset)
		}
	}
}

// Every suffix length splits names that differ in one letter, as node names do.
func TestHashSpreads(t *testing.T) {
	half := 0
	for i := range 1000 {
		half += int(Hash(fmt.Sprintf("bucket/step/wait_tensor_%d", i)) & 1)
	}
	if half < 400 || half > 600 {
		t.Errorf("%d of 1000 hashes are odd", half)
	}
}

func TestFirst(t *testing.T) {
	for n := 1; n <= 40; n++ {
		for culprit := 1; culprit <= n; culprit++ {
			calls := 0
			got, err := First(n, func(limit int) (bool, error) { calls++; return limit >= culprit, nil })
			if err != nil || got != culprit || calls > 8 {
				t.Fatalf("n=%d culprit=%d: got %d, %v after %d calls", n, culprit, got, err, calls)
			}
		}
	}
	if _, err := First(3, func(int) (bool, error) { return false, nil }); !errors.Is(err, ErrNoFailure) {
		t.Errorf("got %v, want ErrNoFailure", err)
	}
	if _, err := First(3, func(int) (bool, error) { return true, nil }); !errors.Is(err, ErrAlwaysFails) {
		t.Errorf("got %v, want ErrAlwaysFails", err)
	}
	boom := errors.New("boom")
	if _, err := First(3, func(int) (bool, error) { return false, boom }); !errors.Is(err, boom) {
		t.Errorf("got %v, want the predicate's error", err)
	}
}

func TestSearch(t *testing.T) {
	var sites []string
	for i := range 200 {
		sites = append(sites, fmt.Sprint("s", i))
	}
	for _, want := range [][]string{{"s0"}, {"s199"}, {"s7", "s120"}, {"s1", "s2", "s3"}} {
		calls := 0
		got, err := Search(sites, func(on func(string) bool) (bool, error) {
			calls++
			for _, s := range want {
				if !on(s) {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		if calls > 4+12*len(want) {
			t.Errorf("%v took %d calls", want, calls)
		}
	}
	if _, err := Search(sites, func(func(string) bool) (bool, error) { return false, nil }); !errors.Is(err, ErrNoFailure) {
		t.Errorf("got %v, want ErrNoFailure", err)
	}
	if _, err := Search(sites, func(func(string) bool) (bool, error) { return true, nil }); !errors.Is(err, ErrAlwaysFails) {
		t.Errorf("got %v, want ErrAlwaysFails", err)
	}
}

// Suffix returns the lowest n binary digits of a site's hash as text, ready for
// a pattern; n is held within 1..64.
func Suffix(site string, n int) string {
	n = min(max(n, 1), 64)
	s := strconv.FormatUint(Hash(site), 2)
	if len(s) < n {
		s = strings.Repeat("0", n-len(s)) + s
	}
	return s[len(s)-n:]
}
