package passes_test

import (
	"testing"

	"github.com/seed-ee968945/concert/passes/standard"
)

// Former names of passes and options are read and printed as what they are called now.
func TestFormerNames(t *testing.T) {
	p, err := standard.Table().Parse("overlap{thrift=0},loosen{percent=100}")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.String(), "overlap{memory-tradeoff=0},add-slack{percent=100}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
