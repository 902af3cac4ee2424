package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What follows each other in a stream is a chain, until the stream waits; what other
// streams do, and records, do not end it.
func TestChains(t *testing.T) {
	const rest = `@compute launch add (%b: f32[16], %c: f32[16]) -> (%d: f32[16]) from %u
@compute copy (%b: f32[16]) -> (%c: f32[16]) from %v
@compute record 2
@compute launch add (%b: f32[16], %c: f32[16]) -> (%d: f32[16]) from %w
`
	for _, c := range []struct{ name, more, want string }{
		{"one stream", "", "0: 4 5\n0: 7"},
		{"longer", rest, "0: 4 5\n0: 7 8 9 11"},
		{"again", "@compute wait 1\n" + rest + "@compute wait 1\n" + rest, "0: 4 5\n0: 7\n0: 9 10 12\n0: 14 15 17"},
	} {
		p := simProgram(t, simText+c.more)
		var got strings.Builder
		keys := map[string][]string{} // what instructions, by the key of their chain
		for _, k := range p.Chains() {
			fmt.Fprintf(&got, "\n%d:", k.Stream)
			var list []string
			for _, i := range k.Instrs {
				fmt.Fprintf(&got, " %d", i)
				list = append(list, p.CostKey(&p.Instrs[i]))
			}
			key := p.ChainKey(k)
			if old, ok := keys[key]; ok && !cmp.Equal(old, list) {
				t.Errorf("%s: %s is the key of %v and of %v", c.name, key, old, list)
			}
			keys[key] = list
		}
		if d := cmp.Diff(c.want, strings.TrimSpace(got.String())); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if c.name == "again" && len(keys) != 3 {
			t.Errorf("%d keys, want 3: the last two chains are alike", len(keys))
		}
		for key := range keys {
			if !strings.HasPrefix(key, "chain of ") {
				t.Errorf("key %q", key)
			}
		}
	}
}

func TestChainKey(t *testing.T) {
	p := simProgram(t, simText)
	c := p.Chains()
	for i, want := range []string{"chain of 2 neg...exp ", "chain of 1 add "} {
		if got := p.ChainKey(c[i]); !strings.HasPrefix(got, want) || len(got) != len(want)+16 {
			t.Errorf("%q, want %q and a digest", got, want)
		}
	}
	q := simProgram(t, strings.Replace(simText, "launch exp", "launch tanh", 1))
	if p.ChainKey(c[0]) == q.ChainKey(q.Chains()[0]) {
		t.Error("chains of other operations have one key")
	}
}
