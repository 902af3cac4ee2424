package dim

// Equation says which value a size has.
type Equation struct {
	Size  Dim
	Value int64
}

// Solve adds the values of symbols that follow from equations, given those in values, and returns
// which equation gave each: sizes that are a symbol alone come first, then those that Dim.Solve
// solves for one symbol, the others being known. Symbols that are not wanted stay without values.
// O(equations * symbols of one) per symbol that is found.
func Solve(equations []Equation, wanted []string, values map[string]int64) (by map[string]int) {
	open := make(map[string]bool, len(wanted)) // look-up only
	for _, s := range wanted {
		_, known := values[s]
		open[s] = !known
	}
	by = map[string]int{}
	value := func(s string) (int64, bool) { v, ok := values[s]; return v, ok }
	for iteration, before := 0, 0; iteration < 2 || len(by) > before; iteration++ {
		before = len(by)
		for i, e := range equations {
			for _, s := range e.Size.Symbols(nil) {
				if !open[s] || iteration == 0 && !e.Size.Equal(Sym(s)) {
					continue
				}
				if v, ok := e.Size.Solve(s, e.Value, value); ok {
					values[s], by[s], open[s] = v, i, false
				}
			}
		}
	}
	return by
}
