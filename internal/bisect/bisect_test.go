package bisect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	const site = "sink-waits/step/w-3"
	bits := fmt.Sprintf("%064b", Hash(site))[59:]
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
