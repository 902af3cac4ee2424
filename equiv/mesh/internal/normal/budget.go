package normal

import (
	"fmt"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// spent is that a proof has taken all of its budget: what it has not stated by then it does not know.
type spent struct{}

// spend counts work.
func (t *Table) spend(n int) {
	if t.work += n; t.work > t.most {
		panic(spent{})
	}
}

// Spent says that the budget is spent; empty if it is not.
func (t *Table) Spent() string {
	if t.work <= t.most {
		return ""
	}
	return fmt.Sprintf("the proof has taken its budget of %d steps", t.most)
}

// unsupported is why the result of an operation is unknown.
type unsupported struct{ why string }

// Unsupported ends what State does: the result is unknown.
func Unsupported(format string, args ...any) { panic(unsupported{fmt.Sprintf(format, args...)}) }

// Try makes tensors, and says why they are unknown; empty if they are not.
func (t *Table) Try(f func()) (why string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case unsupported:
			why = r.why
		case digits.Uneven:
			why = "the shards of its operands do not align"
		case spent:
			why = t.Spent()
		default:
			panic(r)
		}
	}()
	f()
	return ""
}
