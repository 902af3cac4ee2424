package program

import (
	"strings"
	"testing"
)

const donating = `program @sgd world 1
stream @compute
events 0
arena 2048
buffer %w at 0 size 512
buffer %g at 512 size 512
buffer %new at 0 size 512
buffer %old at 1024 size 512
input w {parameter} donate 0 = %w: f32[128]
input g = %g: f32[128]
output new = %new: f32[128]
output old = %old: f32[128]
body
@compute launch neg (%w: f32[128]) -> (%old: f32[128])
@compute launch sub (%w: f32[128], %g: f32[128]) -> (%new: f32[128])
`

// TestDonations: the old contents are read before the new ones are written, by their own
// name; what is not donated stays as it is; and an output is where its input lay.
func TestDonations(t *testing.T) {
	lines := strings.SplitAfter(donating, "\n")
	swapped := strings.Join(append(append(append([]string{}, lines[:13]...), lines[14], lines[13]), lines[15:]...), "")
	for _, c := range []struct{ name, text, want string }{
		{"in place", donating, ""},
		{"read behind", swapped, "%w is read where bytes 0 to 512 were overwritten as %new"},
		{"not donated", strings.Replace(donating, " donate 0", "", 1), "%w is read where bytes 0 to 512 were overwritten as %new"},
		{"not donated, one buffer", strings.NewReplacer(" donate 0", "", "%new:", "%w:").Replace(donating), "%w is read where bytes 0 to 512 were overwritten as %w"},
		{"elsewhere", strings.Replace(donating, "donate 0", "donate 1", 1), "input w is donated to output old, which is not a tensor of its type in its place"},
		{"other type", strings.Replace(donating, "output new = %new: f32[128]", "output new = %new: i32[128]", 1), "input w is donated to output new, which is not"},
		{"no such output", strings.Replace(donating, "donate 0", "donate 2", 1), "input 0 of 2 is donated to output 2 of 2"},
		{"twice", strings.NewReplacer("input g =", "input g donate 0 =", "%g at 512", "%g at 0").Replace(donating), "input g is donated to output new: each takes part once"},
	} {
		p, err := Parse("sgd.prog", c.text)
		if err == nil {
			if again := p.String(); again != c.text {
				t.Errorf("%s: prints as\n%s", c.name, again)
			}
			err = Check(p)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
