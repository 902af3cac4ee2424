package sdy

import (
	"errors"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/targz"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// published are Shardy's own tests of propagation, by file.
func published(t *testing.T) map[string]string {
	files, err := targz.Files("../../../shared/shardy/propagation.tar.gz", ".mlir")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("Shardy's tests are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var (
	label    = regexp.MustCompile(`func(?:\.func)? (?:private |public )?@([\w$.-]+)`)
	check    = regexp.MustCompile(`^\s*// CHECK(-[A-Z]+)?(?:\{LITERAL\})?:\s*(.*)$`)
	shards   = regexp.MustCompile(`<@\w+, \[[^\]]*\](?:, \w+=\w*\{[^}]*\})*>`)
	ruleText = regexp.MustCompile(`#sdy.op_sharding_rule(<\([^()]*\)->\([^()]*\)[^>]*>)`)
	operator = regexp.MustCompile(`(?:stablehlo|sdy|func|mhlo)\.[\w.]+`)
	argument = regexp.MustCompile(`%([\w$.-]+): `)
)

// statement is what a check or a line of output says: a function's head or an operation,
// with its shardings in order.
type statement struct {
	name   string
	shards []string
	rule   string            // with factors named in their order
	args   map[string]string // of a head: the shardings by argument, and under -> those of results
}

// wanted are the statements that the checks make of each function.
func wanted(chunk string) (order []string, out map[string][]statement) {
	out = map[string][]statement{}
	var fn, cur string
	flush := func() {
		if cur != "" && fn != "" {
			out[fn] = append(out[fn], parsed(cur))
		}
		cur = ""
	}
	for _, line := range strings.Split(chunk, "\n") {
		m := check.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		switch m[1] {
		case "-SAME":
			cur += " " + m[2]
		case "-NOT":
		default:
			flush()
			cur = m[2]
			if m[1] == "-LABEL" && !strings.Contains(cur, "func") {
				cur = "func @" + strings.TrimPrefix(cur, "@")
			}
			if l := label.FindStringSubmatch(cur); l != nil {
				fn = l[1]
				order = append(order, fn)
			}
		}
	}
	flush()
	return order, out
}

// parsed is a statement's text.
func parsed(text string) statement {
	text = strings.ReplaceAll(text, "[[MESH]]", "mesh")
	s := statement{shards: shards.FindAllString(text, -1)}
	if m := ruleText.FindStringSubmatch(text); m != nil {
		s.rule = renamed(m[1])
	}
	if label.MatchString(text) {
		s.name, s.args = "func", map[string]string{}
		args, results, arrow := strings.Cut(text, "->")
		at := argument.FindAllStringSubmatchIndex(args, -1)
		for i, m := range at {
			end := len(args)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			s.args[args[m[2]:m[3]]] = strings.Join(shards.FindAllString(args[m[0]:end], -1), " ")
		}
		if arrow {
			s.args["->"] = strings.Join(shards.FindAllString(results, -1), " ")
		}
		return s
	}
	s.name = strings.Replace(operator.FindString(strings.ReplaceAll(text, "sdy.sharding ", "")), "sdy.constant", "stablehlo.constant", 1)
	return s
}

// renamed is a rule whose factors are named in the order of the dimensions that they are of.
func renamed(text string) string {
	r, err := sharding.ParseRule(text)
	if err != nil {
		return text
	}
	to := map[int]int{}
	factors := make([]sharding.Factor, len(r.Factors))
	for _, t := range slices.Concat(r.Operands, r.Results) {
		for _, l := range t {
			for i, f := range l {
				if _, ok := to[f]; !ok {
					to[f] = len(to)
				}
				l[i] = to[f]
				factors[to[f]] = r.Factors[f]
			}
		}
	}
	r.Factors = factors
	return r.String()
}

// says reports whether an operation has the shardings that a check states: all of them, or
// the first of a list whose check stops there.
func says(w, g statement) bool {
	if w.name == "sdy.sharding_per_value" && len(w.shards) < len(g.shards) {
		return slices.Equal(w.shards, g.shards[:len(w.shards)])
	}
	return slices.Equal(w.shards, g.shards)
}

// differs says where a function's output is not what its checks state; empty if it is.
func differs(want, got []statement, rules bool) string {
	at := 0
	for _, w := range want {
		if w.name == "func" {
			for _, a := range slices.Sorted(maps.Keys(w.args)) {
				if w.args[a] != got[0].args[a] {
					return a + ": want " + w.args[a] + "\n got " + got[0].args[a]
				}
			}
			continue
		}
		if !rules {
			w.rule = ""
		}
		if len(w.shards) == 0 && w.rule == "" {
			continue
		}
		from := at
		for ; at < len(got); at++ {
			if g := got[at]; (w.name == g.name || w.name == "" || strings.HasPrefix(w.name, "sdy.sharding") || w.name == "sdy.op_sharding_rule") && says(w, g) && (!rules || w.rule == g.rule) {
				break
			}
		}
		if at == len(got) {
			msg := "want " + w.name + " " + strings.Join(w.shards, " ") + w.rule
			for _, g := range got[from:] {
				if w.name == g.name || w.name == "" {
					msg += "\n got " + g.name + " " + strings.Join(g.shards, " ") + g.rule
				}
			}
			return msg
		}
		if w.name != "sdy.manual_computation" {
			at++
		}
	}
	return ""
}

// mode is that of the line that says how a file is run.
func mode(text string) (string, Print) {
	line, _, _ := strings.Cut(text, "\n")
	switch {
	case strings.Contains(line, "populate-op-sharding-rules=\"conservative"):
		return "conservative", Print{Rules: true}
	case strings.Contains(line, "populate-op-sharding-rules"):
		return "basic", Print{Rules: true}
	case strings.Contains(line, "conservative-propagation"):
		return "conservative", Print{}
	case strings.Contains(line, "aggressive-propagate"):
		return "aggressive", Print{}
	case strings.Contains(line, "op-priority-propagate"):
		return "op-priority", Print{}
	case strings.Contains(line, "user-priority-propagate"):
		return "user-priority", Print{}
	case strings.Contains(line, "dedup-functions-fully=true"):
		return "pipeline-joined", Print{}
	case strings.Contains(line, "propagation-pipeline"):
		return "pipeline", Print{}
	}
	return "basic", Print{}
}

// run are the statements of what is inferred for a chunk, by function.
func run(c mlir.Chunk, how string, opt Print) (map[string][]statement, error) {
	m, err := c.Parse()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	if err := Shard(m, how, &b, opt); err != nil {
		return nil, err
	}
	out := map[string][]statement{}
	fn := ""
	for _, line := range strings.Split(b.String(), "\n") {
		if l := label.FindStringSubmatch(line); l != nil {
			fn = l[1]
		}
		if fn != "" {
			out[fn] = append(out[fn], parsed(line))
		}
	}
	return out, nil
}

// unmet are the functions whose checks state more than is inferred, with the reason.
var unmet = map[string]string{
	"basic_propagation_data_flow_edges.mlir @foo":                                    "arguments of functions have no edge apart from their value",
	"propagation_pipeline.mlir @split_constants_different_sharding":                  "constants are not split by use",
	"propagation_pipeline.mlir @dot_general_with_unreduced_result":                   reshards,
	"propagation_pipeline.mlir @dot_general_with_unreduced_result_fully_delayed":     reshards,
	"propagation_pipeline.mlir @dot_general_with_unreduced_result_partially_delayed": reshards,
}

const reshards = "no reshards and collectives are inserted"

// TestShardy counts the functions of Shardy's tests whose axes are those that the checks state.
func TestShardy(t *testing.T) {
	files := published(t)
	names := []string{}
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	rules, ruled, same, all := 0, 0, 0, 0
	seen, missed := map[string]bool{}, map[string]bool{}
	for _, file := range names {
		text := files[file]
		how, opt := mode(text)
		good, n := 0, 0
		for _, c := range mlir.Split(file, text) {
			order, want := wanted(c.Text())
			got, err := run(c, how, opt)
			if err != nil && len(order) > 0 {
				t.Logf("%s: %v", file, err)
			}
			for _, fn := range order {
				n++
				seen[file+" @"+fn] = true
				d := "no output"
				for _, name := range slices.Sorted(maps.Keys(got)) {
					if name == fn || got[fn] == nil && strings.HasPrefix(name, fn) { // a label is the start of a name
						d = differs(want[fn], got[name], opt.Rules)
					}
				}
				if d == "" {
					good++
				} else if _, known := unmet[file+" @"+fn]; !known {
					t.Errorf("%s: @%s: %s", file, fn, d)
				} else {
					missed[file+" @"+fn] = true
					t.Logf("%s: @%s: %s", file, fn, d)
				}
			}
		}
		t.Logf("%s: %d of %d in mode %s", file, good, n, how)
		if opt.Rules {
			rules, ruled = rules+good, ruled+n
		} else {
			same, all = same+good, all+n
		}
	}
	for fn := range unmet {
		if seen[fn] && !missed[fn] {
			t.Errorf("%s is what it should be: it is no longer among those that are not", fn)
		}
	}
	t.Logf("rules: %d of %d, propagation: %d of %d", rules, ruled, same, all)
}
