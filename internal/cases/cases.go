// Package cases gives tests of random cases their number: few where somebody waits, many in CI.
package cases

import (
	"flag"
	"fmt"
	"os"
)

// EnvMany asks for many cases if it is not empty.
const EnvMany = "CONCERT_MANY_CASES"

// Flag is a flag for a number of cases: few by default, or many where EnvMany says so. That is read
// when a test asks, so that the go command's cache knows results of few cases from those of many.
func Flag(name string, few, many uint64, usage string) func() uint64 {
	n := flag.Uint64(name, 0, fmt.Sprintf("%s; 0 for %d, or %d where %s is set", usage, few, many, EnvMany))
	return func() uint64 {
		switch {
		case *n > 0:
			return *n
		case os.Getenv(EnvMany) != "":
			return many
		}
		return few
	}
}
