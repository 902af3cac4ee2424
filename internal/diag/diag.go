// Package diag holds findings about user input: what rule was broken, where, and
// what to do about it. All layers report through it, so that every message has
// the same shape:
//
//	mlp.ir:14:14: error[async-use]: gelu reads %r0, which is still in flight
//	   14 |   %a2 = gelu %r0 : bf16[256,4096]
//	      |              ^~~
//	note: wait for it first: %t = wait_tensor %r0
package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Source is a named text that positions point into.
type Source struct {
	Name  string
	Text  string
	lines []int // byte offset of each line's start, built on first use
}

// NewSource returns a source for a text; name is what messages print before the line.
func NewSource(name, text string) *Source { return &Source{Name: name, Text: text} }

// Pos is a place in a source: 1-based line and byte column; the zero Pos is unknown.
type Pos struct {
	Line, Col int32
}

// Known reports whether p points anywhere.
func (p Pos) Known() bool { return p.Line > 0 }

// PosAt converts a byte offset into a position.
func (s *Source) PosAt(off int) Pos {
	s.index()
	i, ok := slices.BinarySearch(s.lines, off)
	if !ok {
		i--
	}
	return Pos{int32(i + 1), int32(off - s.lines[i] + 1)}
}

// Extend adds text behind the end: what a reader says of the text in other words.
func (s *Source) Extend(text string) { s.Text, s.lines = s.Text+text, nil }

// Line returns the text of a 1-based line without its end, or "".
func (s *Source) Line(n int32) string {
	s.index()
	if n < 1 || int(n) > len(s.lines) {
		return ""
	}
	t := s.Text[s.lines[n-1]:]
	if i := strings.IndexByte(t, '\n'); i >= 0 {
		t = t[:i]
	}
	return strings.TrimSuffix(t, "\r")
}

func (s *Source) index() {
	if s.lines != nil {
		return
	}
	s.lines = append(s.lines, 0)
	for i := 0; i < len(s.Text); i++ {
		if s.Text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
}

// Finding is one message. Rule is the stable name of what was broken.
type Finding struct {
	Source *Source // nil if the finding has no text to point at
	Pos    Pos
	Len    int // bytes to underline, at least 1 is drawn
	Rule   string
	Msg    string
	Notes  []string
}

// Error formats the finding with its source line and caret.
func (f *Finding) Error() string {
	var b strings.Builder
	f.write(&b)
	return strings.TrimSuffix(b.String(), "\n")
}

func (f *Finding) write(b *strings.Builder) {
	if f.Source != nil {
		b.WriteString(f.Source.Name)
		if f.Pos.Known() {
			fmt.Fprintf(b, ":%d:%d", f.Pos.Line, f.Pos.Col)
		}
		b.WriteString(": ")
	}
	b.WriteString("error")
	if f.Rule != "" {
		fmt.Fprintf(b, "[%s]", f.Rule)
	}
	fmt.Fprintf(b, ": %s\n", f.Msg)
	if f.Source != nil && f.Pos.Known() {
		f.caret(b)
	}
	for _, n := range f.Notes {
		fmt.Fprintf(b, "note: %s\n", n)
	}
}

// caret draws the source line and an underline; very long lines are cut around the place.
func (f *Finding) caret(b *strings.Builder) {
	line := f.Source.Line(f.Pos.Line)
	col := min(int(f.Pos.Col)-1, len(line))
	const before, after = 100, 60
	start, end := 0, len(line)
	if col > before {
		start = col - before
		for start < col && !utf8.RuneStart(line[start]) {
			start++
		}
	}
	if end > col+after {
		end = col + after
		for end > col && !utf8.RuneStart(line[end]) {
			end--
		}
	}
	shown := strings.ToValidUTF8(strings.ReplaceAll(line[start:end], "\t", " "), "?")
	pad := utf8.RuneCountInString(line[start:col])
	n := min(max(f.Len, 1), max(1, end-col))
	fmt.Fprintf(b, "%5d | %s\n      | %s^%s\n", f.Pos.Line, shown, strings.Repeat(" ", pad), strings.Repeat("~", n-1))
}

// List collects findings; the zero List is empty and ready.
type List struct {
	All []*Finding
}

// Add appends a finding.
func (l *List) Add(f *Finding) { l.All = append(l.All, f) }

// Err returns nil if the list is empty, else an *Error holding the findings
// sorted by position.
func (l *List) Err() error {
	if len(l.All) == 0 {
		return nil
	}
	all := slices.Clone(l.All)
	slices.SortStableFunc(all, func(a, b *Finding) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
	return &Error{all}
}

// Error is a non-empty list of findings.
type Error struct {
	Findings []*Finding
}

// maxShown bounds what one error prints; the rest is counted.
const maxShown = 20

// Error prints up to twenty findings and counts the rest.
func (e *Error) Error() string {
	var b strings.Builder
	for i, f := range e.Findings {
		if i == maxShown {
			fmt.Fprintf(&b, "... and %d more\n", len(e.Findings)-maxShown)
			break
		}
		f.write(&b)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
