package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// record is the outcome of a run; the one of the last run is checked in.
type record struct {
	Commit    string   `json:"commit"`
	Machine   string   `json:"machine"`
	Libraries []string `json:"libraries"`
	Left      int      `json:"left"` // tests that no part has come to
	Results   []result `json:"results"`

	path string
}

// result is the outcome of one test function with all its subtests.
type result struct {
	Suite   string   `json:"suite"`
	Test    string   `json:"test"`
	Outcome string   `json:"outcome"` // passed, failed or skipped
	Seconds float64  `json:"seconds"`
	Cases   int      `json:"cases,omitempty"`   // subtests that passed, at any depth
	Failed  []string `json:"failed,omitempty"`  // subtests that failed
	Skipped []string `json:"skipped,omitempty"` // subtests that were skipped, each with the reason
	Reason  string   `json:"reason,omitempty"`  // of a test that was skipped or failed: the last lines that it printed
}

const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

func readRecord(path string) (*record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &record{path: path}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// openRecord goes on with the record of an earlier part, or begins one.
func openRecord(path, home string) (*record, error) {
	now, err := commit(home)
	if err != nil {
		return nil, err
	}
	r, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &record{Commit: now, path: path}, nil
	}
	if err == nil && r.Commit != now {
		return nil, fmt.Errorf("%s is of commit %s, the binaries are of %s; give another -out", path, r.Commit, now)
	}
	return r, err
}

func (r *record) has(suite, test string) bool {
	return slices.ContainsFunc(r.Results, func(x result) bool { return x.Suite == suite && x.Test == test })
}

func (r *record) add(x result) error {
	r.Results = append(r.Results, x)
	return r.write()
}

func (r *record) write() error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path+".new", append(text, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(r.path+".new", r.path)
}

func (r *record) status() int {
	switch {
	case slices.ContainsFunc(r.Results, func(x result) bool { return x.Outcome == failed }):
		return 1
	case r.Left > 0:
		return 3
	}
	return 0
}

// print writes the table: a line for each suite, the failures with what they
// printed, and the reasons for skipping with those who gave them.
func (r *record) print(out io.Writer) {
	fmt.Fprintf(out, "commit %s\n%s\n%s\n\n", r.Commit, r.Machine, strings.Join(r.Libraries, " "))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "suite\ttests\tpassed\tfailed\tskipped\tcases\tseconds\t")
	sum := result{}
	total := map[string]int{}
	for _, s := range suites {
		count, cases, seconds := map[string]int{}, 0, 0.0
		for _, x := range r.Results {
			if x.Suite == s.name {
				count[x.Outcome]++
				cases += x.Cases
				seconds += x.Seconds
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t\n", s.name, count[passed]+count[failed]+count[skipped], count[passed], count[failed], count[skipped], cases, seconds)
		for k, n := range count {
			total[k] += n
		}
		sum.Cases += cases
		sum.Seconds += seconds
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\t%d\t%.0f\t\n", len(r.Results), total[passed], total[failed], total[skipped], sum.Cases, sum.Seconds)
	w.Flush()
	if r.Left > 0 {
		fmt.Fprintf(out, "\n%d tests are left: call again with the same -out\n", r.Left)
	}
	for _, x := range r.Results {
		if x.Outcome == failed {
			fmt.Fprintf(out, "\nFAILED %s/%s %s\n%s\n", x.Suite, x.Test, strings.Join(x.Failed, " "), x.Reason)
		}
	}
	r.printSkips(out)
}

func (r *record) printSkips(out io.Writer) {
	by := map[string][]string{}
	for _, x := range r.Results {
		if x.Outcome == skipped {
			by[x.Reason] = append(by[x.Reason], x.Suite+"/"+x.Test)
		}
		for _, s := range x.Skipped {
			name, reason, _ := strings.Cut(s, ": ")
			by[reason] = append(by[reason], x.Suite+"/"+name)
		}
	}
	reasons := make([]string, 0, len(by))
	for reason := range by {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	if len(reasons) > 0 {
		fmt.Fprintln(out, "\nskipped:")
	}
	for _, reason := range reasons {
		names := by[reason]
		more := ""
		if len(names) > 4 {
			names, more = names[:4], fmt.Sprintf(" and %d more", len(by[reason])-4)
		}
		fmt.Fprintf(out, "  %s\n    %s%s\n", reason, strings.Join(names, " "), more)
	}
}
