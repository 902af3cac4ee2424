package index

import "fmt"

// Scope is a run of C++ statements. Those of an inner scope see the variables of the outer ones.
type Scope struct {
	Depth  int // of the kernel's own 0
	Parent *Scope
	Lines  []string
	After  []string          // statements after the inner loop
	Memo   map[string]string // variables of this scope by what they hold; look-up only
}

// NewScope returns an empty scope within parent, which is nil for the kernel's own.
func NewScope(parent *Scope) *Scope {
	s := &Scope{Parent: parent, Memo: map[string]string{}}
	if parent != nil {
		s.Depth = parent.Depth + 1
	}
	return s
}

// Emit appends a line.
func (s *Scope) Emit(format string, args ...any) {
	s.Lines = append(s.Lines, fmt.Sprintf(format, args...))
}

// Braced appends the body of the statement that the last line opens, and closes it.
func (s *Scope) Braced(body []string) { s.Lines = append(append(s.Lines, Indent(body)...), "}") }

// Find looks a memo up in s and the scopes around it.
func (s *Scope) Find(key string) (string, bool) {
	for ; s != nil; s = s.Parent {
		if t, ok := s.Memo[key]; ok {
			return t, true
		}
	}
	return "", false
}

// Indent returns lines one level deeper.
func Indent(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = "  " + l
	}
	return out
}
