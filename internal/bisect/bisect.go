// Package bisect narrows a failure down to single decisions.
//
// A pass names every decision it makes (a site) and asks whether the decision is
// enabled. A [Pattern] answers by the site's hash, so that a set of sites can be
// named in a few characters and means the same in every run, on every rank and
// on every machine.
//
// # Pattern syntax
//
//	pattern = "" | "all" | "none" | [ "!" ] term { ( "+" | "-" ) term }
//	term    = bits | "x" hex digits | "=" site
//
// A term of bits matches the sites whose hash ends in these binary digits; after an x,
// in these hexadecimal digits; after =, the one site of that name, or with a * at its
// end all sites whose names begin like that. Terms are tried from the last to the
// first and the first that matches decides: after + it enables, after - it disables;
// what no term matches is disabled. The leading ! inverts the answer. Thus 01+10
// enables half of all sites, 1-011 a half without an eighth of the whole,
// !=sink-waits/step/w3 all sites but one.
package bisect

import (
	"fmt"
	"strconv"
	"strings"
)

// Hash returns the hash of a site, FNV-1a of 64 bits with its bits mixed once
// more, so that also the low bits of similar names differ.
func Hash(site string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(site); i++ {
		h = (h ^ uint64(site[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return h
}

// Pattern selects sites. The nil Pattern enables all.
type Pattern struct {
	invert bool
	none   bool
	terms  []term
}

type term struct {
	site    string // set for =site
	bits    uint64
	mask    uint64
	disable bool
}

// SyntaxError reports a malformed pattern.
type SyntaxError struct {
	Pattern string
	Offset  int // byte at which it was noticed
	Reason  string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("bisect pattern %q: offset %d: %s", e.Pattern, e.Offset, e.Reason)
}

// Parse reads a pattern.
func Parse(text string) (*Pattern, error) {
	p := &Pattern{}
	switch text {
	case "", "all":
		return nil, nil
	case "none":
		p.none = true
		return p, nil
	}
	i := 0
	if text[0] == '!' {
		p.invert = true
		i = 1
	}
	for disable := false; ; {
		end := i
		for end < len(text) && text[end] != '+' && (text[end] != '-' || i < len(text) && text[i] == '=') {
			end++
		}
		t, err := parseTerm(text[i:end])
		if err != "" {
			return nil, &SyntaxError{text, i, err}
		}
		t.disable = disable
		p.terms = append(p.terms, t)
		if end == len(text) {
			return p, nil
		}
		disable = text[end] == '-'
		i = end + 1
	}
}

// parseTerm returns the term or what is wrong with it.
func parseTerm(s string) (term, string) {
	if s == "" {
		return term{}, "expected binary digits, x and hexadecimal digits, or = and a site"
	}
	if s[0] == '=' {
		if len(s) == 1 {
			return term{}, "expected a site after ="
		}
		return term{site: s[1:]}, ""
	}
	digits, base, width := s, 2, 1
	if s[0] == 'x' {
		digits, base, width = s[1:], 16, 4
	}
	n := len(digits) * width
	bits, err := strconv.ParseUint(digits, base, 64)
	if err != nil || n > 64 || digits[0] == '+' {
		return term{}, fmt.Sprintf("%q is not a suffix of a 64-bit hash", s)
	}
	return term{bits: bits, mask: 1<<n - 1}, ""
}

// Enabled reports whether the pattern selects a site.
func (p *Pattern) Enabled(site string) bool {
	if p == nil {
		return true
	}
	if p.none {
		return false
	}
	h := Hash(site)
	for i := len(p.terms) - 1; i >= 0; i-- {
		t := &p.terms[i]
		if t.matches(site, h) {
			return t.disable == p.invert
		}
	}
	return p.invert
}

func (t *term) matches(site string, hash uint64) bool {
	if t.site == "" {
		return hash&t.mask == t.bits
	}
	if prefix, ok := strings.CutSuffix(t.site, "*"); ok {
		return strings.HasPrefix(site, prefix)
	}
	return t.site == site
}
