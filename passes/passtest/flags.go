package passtest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// flags are the words of a case's flags section.
type flags struct {
	passes    string
	runs      int
	seed      uint64
	tolerance float64
	nointerp  string
	noproof   string
	bisect    string
	limit     int
	comm      passes.CostModel // nil for that of the configuration
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
			return f, fmt.Errorf("%s appears twice", key)
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
		case "-nointerp", "-noproof":
			if key == "-nointerp" {
				f.nointerp = val
			} else {
				f.noproof = val
			}
			if val == "" {
				err = fmt.Errorf("give the reason")
			}
		case "-bisect":
			f.bisect = val
		case "-limit":
			f.limit, err = strconv.Atoi(val)
		case "-comm":
			f.comm, err = parseAffine(val)
		case "-machine":
			f.comm, err = parseMachine(val)
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

// affine is a cost model of collectives alone: a latency and a time for each KiB.
type affine struct{ ms, perKiB float64 }

// NodeMs knows collectives only: other nodes cost what is attached to them.
func (a affine) NodeMs(n *ir.Node) (float64, bool) {
	if !n.Op().IsCollective() {
		return 0, false
	}
	return a.CommMs(n.Op(), n.Group(), n.Reduction(), cost.CommBytes(n))
}

// CommMs takes every collective alike.
func (a affine) CommMs(_ ir.Op, _ *ir.Group, _ ir.Reduction, size int64) (float64, bool) {
	return a.ms + float64(a.perKiB*(float64(size)/1024)), true
}

func parseAffine(text string) (passes.CostModel, error) {
	first, second, ok := strings.Cut(text, ",")
	parts := []string{first}
	if ok {
		parts = append(parts, second)
	}
	var a affine
	for i, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || !(v >= 0 && v < math.Inf(1)) {
			return nil, fmt.Errorf("want one or two numbers, not negative, with a comma between them")
		}
		if i == 0 {
			a.ms = v
		} else {
			a.perKiB = v
		}
	}
	return a, nil
}

// parseMachine reads a machine of cost.Machines, a colon and the ranks of its hosts.
func parseMachine(text string) (passes.CostModel, error) {
	name, ranks, _ := strings.Cut(text, ":")
	m, err := cost.LookupMachine(name)
	if err != nil {
		return nil, err
	}
	if m.RanksPerHost, err = strconv.Atoi(ranks); err != nil || m.RanksPerHost < 1 {
		return nil, fmt.Errorf("want a machine, a colon and the ranks of a host")
	}
	return &cost.Model{Machine: m}, nil
}

// orderOf lists the operations of every function in order, one line each, without
// inputs, views and the return.
func orderOf(m *ir.Module) string {
	var b strings.Builder
	for _, f := range m.Funcs() {
		sep := ""
		for _, n := range f.Order() {
			switch n.Op().Class() {
			case ir.ClassInput, ir.ClassView, ir.ClassOutput:
				continue
			}
			b.WriteString(sep + n.Op().Name())
			if k := len(n.Args()); n.Op().IsCollective() && k > 1 {
				fmt.Fprintf(&b, "*%d", k)
			}
			sep = " "
		}
		b.WriteByte('\n')
	}
	return b.String()
}
