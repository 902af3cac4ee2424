package program_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/program"
)

var update = flag.Bool("update", false, "rewrite the want sections of golden cases")

const goldenDir = "../testdata/golden/check"

// cases reads the golden programs of the checker.
func cases(t testing.TB) (names []string, archives []*txtar.Archive) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, file)
		archives = append(archives, a)
	}
	return names, archives
}

// verdict is what the checker says of a text.
func verdict(name, text string) string {
	p, err := program.Parse(name, text)
	if err != nil {
		// A program that Parse refuses may still be one that Check explains.
		return err.Error() + "\n"
	}
	r, err := program.CheckWith(p, program.CheckOptions{})
	if err != nil {
		return err.Error() + "\n"
	}
	return r.String()
}

// Each golden program has the verdict that its file says.
func TestCheckGolden(t *testing.T) {
	names, archives := cases(t)
	for i, a := range archives {
		t.Run(filepath.Base(names[i]), func(t *testing.T) {
			got := verdict("program", string(a.Files[0].Data))
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(names[i], txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(a.Files) != 2 {
				t.Fatal("no want section; run with -update")
			}
			if d := cmp.Diff(string(a.Files[1].Data), got); d != "" {
				t.Errorf("(-want +got)\n%s\nAfter a change on purpose: go test ./program -run TestCheckGolden -update", d)
			}
		})
	}
}

// A program that passes has no error; one that does not has a *CheckError.
func TestCheckError(t *testing.T) {
	names, archives := cases(t)
	for i, a := range archives {
		p, err := program.Parse("program", string(a.Files[0].Data))
		if err != nil {
			continue
		}
		r, err := program.CheckWith(p, program.CheckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = program.Check(p)
		var e *program.CheckError
		if (len(r.Findings) == 0) != (err == nil) || err != nil && (!errors.As(err, &e) || len(e.Report.Findings) != len(r.Findings)) {
			t.Errorf("%s: %d findings, error %v", filepath.Base(names[i]), len(r.Findings), err)
		}
	}
}
