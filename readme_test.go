package concert

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadme holds README.md to what it promises: its Go lines are those of the
// example, which compiles and runs; its links lead somewhere; and what continuous
// integration runs is its test command.
func TestReadme(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	readme := read("README.md")
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readme, -1) {
		if _, err := os.Stat(link[1]); err != nil && !strings.Contains(link[1], "://") {
			t.Errorf("README.md links to %s, which is not there", link[1])
		}
	}
	_, rest, ok := strings.Cut(readme, "```go\n")
	code, _, _ := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("README.md shows no Go")
	}
	example := strings.Join(strings.Fields(read("example_test.go")), " ")
	for line := range strings.Lines(code) {
		if line = strings.Join(strings.Fields(line), " "); !strings.Contains(example, line) {
			t.Errorf("README.md has the line %q, the example has not", line)
		}
	}
	_, rest, _ = strings.Cut(readme, "Run all tests:")
	command := strings.Split(rest, "```")[1]
	if command = strings.TrimSpace(command); !strings.Contains(read(".ci/run"), "\n"+command+"\n") {
		t.Errorf("README.md says %q runs all tests; .ci/run does not run it", command)
	}
}
