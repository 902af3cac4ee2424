package golden

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// flags are the words of a case's flags section.
type flags struct {
	passes    string
	runs      int
	seed      uint64
	tolerance float64
	nointerp  string
	bisect    string
	limit     int
}

// parseFlags reads the section; every flag stands once.
func parseFlags(text string) (flags, error) {
	f := flags{runs: 3, seed: 1}
	seen := map[string]bool{} // look-up only
	for _, word := range strings.Fields(text) {
		key, val, ok := strings.Cut(word, "=")
		if !ok {
			return f, fmt.Errorf("%q is not of the form -flag=value", word)
		}
		if seen[key] {
			return f, fmt.Errorf("%s stands twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "-passes":
			f.passes = val
		case "-runs":
			f.runs, err = strconv.Atoi(val)
			if err == nil && f.runs < 2 {
				err = fmt.Errorf("at least 2 runs")
			}
		case "-seed":
			f.seed, err = strconv.ParseUint(val, 10, 64)
		case "-tolerance":
			f.tolerance, err = strconv.ParseFloat(val, 64)
			if err == nil && !(f.tolerance >= 0 && f.tolerance < math.Inf(1)) {
				err = fmt.Errorf("%v is not a tolerance", f.tolerance)
			}
		case "-nointerp":
			f.nointerp = val
			if val == "" {
				err = fmt.Errorf("give the reason")
			}
		case "-bisect":
			f.bisect = val
		case "-limit":
			f.limit, err = strconv.Atoi(val)
		default:
			err = fmt.Errorf("unknown flag")
		}
		if err != nil {
			return f, fmt.Errorf("%s: %w", word, err)
		}
	}
	if !seen["-passes"] {
		return f, fmt.Errorf("no -passes=PIPELINE")
	}
	return f, nil
}
