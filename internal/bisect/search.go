package bisect

import (
	"errors"
	"fmt"
)

// ErrNoFailure says that the predicate does not fail with everything enabled.
var ErrNoFailure = errors.New("bisect: the failure does not occur with everything enabled")

// ErrAlwaysFails says that the predicate fails with everything disabled, so that
// what is searched is not the cause.
var ErrAlwaysFails = errors.New("bisect: the failure occurs with everything disabled")

// First returns the smallest limit in 1..n for which fails(limit) is true, given
// that it is false for 0 and that once it is true it stays so. It calls fails at
// most 2 + log2(n) times. Errors: [ErrNoFailure], [ErrAlwaysFails], and those of
// the predicate.
func First(n int, fails func(limit int) (bool, error)) (int, error) {
	bad, err := fails(n)
	if err != nil {
		return 0, err
	}
	if !bad {
		return 0, ErrNoFailure
	}
	if bad, err = fails(0); err != nil {
		return 0, err
	} else if bad {
		return 0, ErrAlwaysFails
	}
	lo, hi := 0, n // fails(lo) is false, fails(hi) is true
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if bad, err = fails(mid); err != nil {
			return 0, err
		}
		if bad {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, nil
}

// Search returns a set of sites, in the order given, that makes the predicate
// fail when exactly they are enabled, and of which no site can be left out: for
// a single culprit the culprit itself. fails gets a function that says whether a
// site is enabled. With c culprits among n sites it calls fails about c log2(n)
// times (delta debugging by binary search over prefixes).
func Search(sites []string, fails func(enabled func(site string) bool) (bool, error)) ([]string, error) {
	run := func(on []string) (bool, error) {
		set := make(map[string]bool, len(on))
		for _, s := range on {
			set[s] = true
		}
		return fails(func(site string) bool { return set[site] })
	}
	if bad, err := run(sites); err != nil || !bad {
		return nil, errors.Join(err, notFailing(err))
	}
	if bad, err := run(nil); err != nil {
		return nil, err
	} else if bad {
		return nil, ErrAlwaysFails
	}
	// known: culprits found so far. The shortest prefix of rest that fails
	// together with known ends in a culprit; what follows the prefix is not needed.
	var known []string
	rest := sites
	for {
		if bad, err := run(known); err != nil {
			return nil, err
		} else if bad {
			break
		}
		k, err := First(len(rest), func(limit int) (bool, error) {
			return run(append(append([]string(nil), known...), rest[:limit]...))
		})
		if err != nil {
			return nil, fmt.Errorf("bisect: the failure is not reproducible: %w", err)
		}
		known = append(known, rest[k-1])
		rest = rest[:k-1]
	}
	return inOrder(sites, known), nil
}

func notFailing(err error) error {
	if err != nil {
		return nil
	}
	return ErrNoFailure
}

func inOrder(sites, chosen []string) []string {
	set := make(map[string]bool, len(chosen))
	for _, s := range chosen {
		set[s] = true
	}
	var out []string
	for _, s := range sites {
		if set[s] {
			out = append(out, s)
			delete(set, s)
		}
	}
	return out
}
