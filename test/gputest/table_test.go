package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "make docs/gpu-tests.md of the records in testdata/gpu")

// TestTable holds docs/gpu-tests.md to the records that are checked in.
func TestTable(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/gpu/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal("no record", err)
	}
	var doc strings.Builder
	doc.WriteString("# GPU tests\n\nThe last run of every GPU test, by `gputest -table` from the records in testdata/gpu. A skipped\ntest is not a passed one: its reason is given.\n")
	for _, path := range paths {
		rec, err := readRecord(path)
		if err != nil {
			t.Fatal(err)
		}
		doc.WriteString("\n## " + strings.TrimSuffix(filepath.Base(path), ".json") + "\n\n```\n")
		rec.print(&doc)
		doc.WriteString("```\n")
	}
	const page = "../../docs/gpu-tests.md"
	if *update {
		if err := os.WriteFile(page, []byte(doc.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil || string(have) != doc.String() {
		t.Errorf("%s is not what the records say (%v); go test ./test/gputest -update", page, err)
	}
}
