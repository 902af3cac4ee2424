package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// TestLanguageReference holds the sections of docs/ir.md that are generated against
// the verifier's rules and the op table; -update writes them.
func TestLanguageReference(t *testing.T) {
	const path = "../../../docs/ir.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var ops, complaint bytes.Buffer
	if code := run(context.Background(), []string{"ops", "-md"}, tool{out: &ops, err: &complaint}); code != exitOK {
		t.Fatal(complaint.String())
	}
	rules := "| rule | what holds |\n| --- | --- |\n"
	for _, r := range ir.Rules() {
		rules += fmt.Sprintf("| `%s` | %s |\n", r.Name, r.Doc)
	}
	now := string(text)
	for _, s := range []struct{ name, want string }{{"rules", rules}, {"ops", ops.String()}} {
		head, rest, ok := strings.Cut(now, "<!-- "+s.name+":")
		command, rest, ok2 := strings.Cut(rest, "-->\n")
		_, tail, ok3 := strings.Cut(rest, "<!-- end of "+s.name+" -->")
		if !ok || !ok2 || !ok3 {
			t.Fatalf("%s has no section %s", path, s.name)
		}
		now = head + "<!-- " + s.name + ":" + command + "-->\n" + s.want + "<!-- end of " + s.name + " -->" + tail
	}
	switch {
	case now == string(text):
	case *update:
		if err := os.WriteFile(path, []byte(now), 0o666); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not say what the op table says; go test ./cmd/lowerdump/cli -run TestLanguageReference -update", path)
	}
}
