// Package brackets describes how loops and branches of a step nest.
package brackets

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/program"
)

// Open is the last bracket of each loop and case that is open.
type Open []program.Kind

// Next adds a bracket.
func (o *Open) Next(k program.Kind) error {
	if k == program.Loop || k == program.Case {
		*o = append(*o, k)
		return nil
	}
	n := len(*o)
	if n == 0 {
		return errors.New("is outside of a loop or a case")
	}
	switch last := (*o)[n-1]; {
	case k == program.Test && last == program.Loop, k == program.Branch && (last == program.Case || last == program.Branch):
		(*o)[n-1] = k
	case k == program.End && (last == program.Test || last == program.Branch):
		*o = (*o)[:n-1]
	default:
		return fmt.Errorf("follows %s: a loop has one test and then its end, a case has branches and then its end", last)
	}
	return nil
}

// Block is a loop or a case: where its brackets are among the calls. Each part ends where the
// next one begins, the last one at the end.
type Block struct {
	At, End int
	Parts   []int
}

// Find is what begins at call k; kind gives the bracket of a call, if it is one. All are closed.
func Find(k int, kind func(i int) (program.Kind, bool)) Block {
	b, depth := Block{At: k}, 0
	for i := k; ; i++ {
		k, ok := kind(i)
		switch {
		case !ok:
		case k == program.Loop || k == program.Case:
			depth++
		case k == program.End:
			if depth--; depth == 0 {
				b.End = i
				return b
			}
		case depth == 1:
			b.Parts = append(b.Parts, i)
		}
	}
}

// Part gives the calls of a part, without its brackets.
func (b Block) Part(i int) (from, to int) {
	if i+1 < len(b.Parts) {
		return b.Parts[i] + 1, b.Parts[i+1]
	}
	return b.Parts[i] + 1, b.End
}
