package equiv

import (
	"github.com/seed-ee968945/concert/equiv/internal/terms"
)

// Exactness says what an equation keeps of the numbers. NaN stays NaN; which of
// several NaN an operation gives, the IR does not say.
type Exactness uint8

// The kinds of exactness.
const (
	Exact        Exactness = iota // every bit
	Reassociates                  // all but the rounding of floats and the sign of their zeros; every bit of integers, and under min and max
)

// String says it in words.
func (e Exactness) String() string {
	return [...]string{"exact", "reassociates floats"}[e]
}

// Equation is a row of the table: what a proof may use beyond equal operations on
// equal operands.
type Equation struct {
	Name      string
	Exactness Exactness // of its use on floats; where it is not Exact the options have to allow that
	Statement string
}

// Equations lists the table in order.
func Equations() []Equation {
	var out []Equation
	for _, r := range terms.Rows() {
		e := Equation{r.Name, Exact, r.Statement}
		if r.Reassociates {
			e.Exactness = Reassociates
		}
		out = append(out, e)
	}
	return out
}
