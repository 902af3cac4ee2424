// Package cases gives tests of random cases their number: few where somebody waits, many in CI.
package cases

import (
	"flag"
	"os"
)

// EnvMany asks for many cases if it is not empty.
const EnvMany = "CONCERT_MANY_CASES"

// Flag is a flag for a number of cases: few by default, or many where EnvMany says so.
func Flag(name string, few, many uint64, usage string) *uint64 {
	if os.Getenv(EnvMany) != "" {
		few = many
	}
	return flag.Uint64(name, few, usage)
}
