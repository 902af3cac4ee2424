package sharding

import (
	"fmt"
	"strconv"
	"strings"
)

// String is the axis as the sdy dialect prints it: "a", or "a":(2)4.
func (a Ref) String() string {
	if a.Whole {
		return strconv.Quote(a.Name)
	}
	return fmt.Sprintf("%q:(%d)%d", a.Name, a.Pre, a.Size)
}

// String is the mesh: <["a"=2, "b"=4], device_ids=[...]>.
func (m *Mesh) String() string {
	axes := make([]string, len(m.Axes))
	for i, a := range m.Axes {
		axes[i] = fmt.Sprintf("%q=%d", a.Name, a.Size)
	}
	out := "<[" + strings.Join(axes, ", ") + "]"
	if m.Devices != nil {
		ids := make([]string, len(m.Devices))
		for i, d := range m.Devices {
			ids[i] = strconv.FormatInt(d, 10)
		}
		out += ", device_ids=[" + strings.Join(ids, ", ") + "]"
	}
	return out + ">"
}

// String is a dimension: {"a", "b":(1)2, ?}p1.
func (d Dim) String() string {
	l := refs(d.Axes)
	if d.Open {
		l = append(l, "?")
	}
	out := "{" + strings.Join(l, ", ") + "}"
	if d.Priority >= 0 {
		out += fmt.Sprintf("p%d", d.Priority)
	}
	return out
}

func refs(l []Ref) []string {
	out := make([]string, len(l))
	for i, a := range l {
		out[i] = a.String()
	}
	return out
}

// String is the sharding: <@mesh, [{"a"}, {?}], replicated={"b"}, unreduced={"c"}>.
func (s *Sharding) String() string {
	name := "@" + s.Mesh.Name
	if s.Mesh.Name == "" {
		name = "mesh" + s.Mesh.String()
	}
	dims := make([]string, len(s.Dims))
	for i, d := range s.Dims {
		dims[i] = d.String()
	}
	out := "<" + name + ", [" + strings.Join(dims, ", ") + "]"
	if len(s.Replicated) > 0 {
		out += ", replicated={" + strings.Join(refs(s.Replicated), ", ") + "}"
	}
	if len(s.Unreduced) > 0 {
		out += ", unreduced=" + s.Reduction + "{" + strings.Join(refs(s.Unreduced), ", ") + "}"
	}
	return out + ">"
}

// Meshes finds a mesh by its name.
type Meshes func(name string) (*Mesh, bool)

// TextError is an error in the text of a sharding, a mesh or a rule.
type TextError struct {
	At  int // in bytes, from the start of the text
	Msg string
}

func (e *TextError) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Msg, e.At) }

// ParseMesh reads a mesh in the form of [Mesh.String].
func ParseMesh(text string) (*Mesh, error) {
	r := &reader{s: text}
	m := r.mesh()
	r.end()
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// Parse reads a sharding in the form of [Sharding.String], and reports how many bytes it is
// long: more may come after it.
func Parse(text string, meshes Meshes) (*Sharding, int, error) {
	r := &reader{s: text}
	s := r.sharding(meshes)
	if r.err != nil {
		return nil, 0, r.err
	}
	return s, r.i, nil
}

// ParseAxes reads a list of axes: {"a", "b":(1)2}.
func ParseAxes(text string, m *Mesh) ([]Ref, error) {
	r := &reader{s: text}
	l, _ := r.axes(m, false)
	r.end()
	return l, r.err
}

// reader reads small texts. The first error stays.
type reader struct {
	s   string
	i   int
	err error
}

func (r *reader) failf(at int, format string, args ...any) {
	if r.err == nil {
		r.err = &TextError{at, fmt.Sprintf(format, args...)}
	}
}

func (r *reader) peek() byte {
	for r.i < len(r.s) && strings.IndexByte(" \t\r\n", r.s[r.i]) >= 0 {
		r.i++
	}
	if r.i < len(r.s) && r.err == nil {
		return r.s[r.i]
	}
	return 0
}

// eat reads a token if it is next.
func (r *reader) eat(tok string) bool {
	r.peek()
	if r.err == nil && strings.HasPrefix(r.s[r.i:], tok) {
		r.i += len(tok)
		return true
	}
	return false
}

func (r *reader) expect(tok string) bool {
	if !r.eat(tok) {
		r.failf(r.i, "expected %s", tok)
	}
	return r.err == nil
}

func (r *reader) end() {
	if r.peek() != 0 {
		r.failf(r.i, "expected the end")
	}
}

// more is for loops over a list up to a closing token.
func (r *reader) more(first *bool, closing string) bool {
	if r.err != nil || r.eat(closing) {
		return false
	}
	if !*first {
		r.expect(",")
	}
	*first = false
	return r.err == nil
}

func (r *reader) number() int64 {
	r.peek()
	at := r.i
	for r.i < len(r.s) && (r.s[r.i] >= '0' && r.s[r.i] <= '9' || r.i == at && r.s[r.i] == '-') {
		r.i++
	}
	n, err := strconv.ParseInt(r.s[at:r.i], 10, 64)
	if err != nil {
		r.failf(at, "expected a number")
	}
	return n
}

func (r *reader) quoted() string {
	if !r.expect(`"`) {
		return ""
	}
	at := r.i
	n := strings.IndexByte(r.s[at:], '"')
	if n < 1 {
		r.failf(at, "expected a name in quotes")
		return ""
	}
	r.i += n + 1
	return r.s[at : at+n]
}

// word reads letters, digits and what else names have.
func (r *reader) word() string {
	r.peek()
	at := r.i
	for r.i < len(r.s) && wordByte(r.s[r.i]) {
		r.i++
	}
	if at == r.i {
		r.failf(at, "expected a name")
	}
	return r.s[at:r.i]
}

func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.' || c == '$' || c == '-'
}

func (r *reader) mesh() *Mesh {
	m := &Mesh{}
	r.peek()
	at := r.i
	r.expect("<")
	if r.expect("[") {
		for first := true; r.more(&first, "]"); {
			name := r.quoted()
			r.expect("=")
			m.Axes = append(m.Axes, Axis{name, r.number()})
		}
	}
	if r.eat(",") && r.expect("device_ids") && r.expect("=") && r.expect("[") {
		m.Devices = []int64{}
		for first := true; r.more(&first, "]"); {
			m.Devices = append(m.Devices, r.number())
		}
	}
	r.expect(">")
	if err := m.Check(); err != nil {
		r.failf(at, "%v", err)
	}
	return m
}

// axes reads {"a", "b":(1)2, ?}; the mark is of dimensions only.
func (r *reader) axes(m *Mesh, open bool) (out []Ref, isOpen bool) {
	if !r.expect("{") {
		return nil, false
	}
	for first := true; r.more(&first, "}"); {
		if open && r.eat("?") {
			r.expect("}")
			return out, true
		}
		at := r.i
		name := r.quoted()
		if r.err != nil {
			break
		}
		a, ok := m.Whole(name)
		if !ok {
			r.failf(at, "there is no axis %q in mesh %s", name, m)
		}
		if r.eat(":") && r.expect("(") {
			pre := r.number()
			r.expect(")")
			var err error
			if a, err = m.Part(name, pre, r.number()); err != nil {
				r.failf(at, "%v", err)
			}
		}
		out = append(out, a)
	}
	return out, false
}

func (r *reader) sharding(meshes Meshes) *Sharding {
	s := &Sharding{Mesh: &Mesh{}}
	r.expect("<")
	at := r.i
	if r.eat("mesh") {
		s.Mesh = r.mesh()
	} else if r.expect("@") {
		name := ""
		if r.peek() == '"' {
			name = r.quoted()
		} else {
			name = r.word()
		}
		if m, ok := meshes(name); ok {
			s.Mesh = m
		} else {
			r.failf(at, "there is no mesh @%s", name)
		}
	}
	r.expect(",")
	if r.expect("[") {
		for first := true; r.more(&first, "]"); {
			d := Dim{Priority: -1}
			d.Axes, d.Open = r.axes(s.Mesh, true)
			if r.peek() == 'p' {
				r.i++
				if d.Priority = int(r.number()); d.Priority < 0 {
					r.failf(r.i, "a priority below 0")
				}
			}
			s.Dims = append(s.Dims, d)
		}
	}
	for r.err == nil && r.eat(",") {
		switch r.word() {
		case "replicated":
			r.expect("=")
			s.Replicated, _ = r.axes(s.Mesh, false)
		case "unreduced":
			r.expect("=")
			if r.peek() != '{' {
				s.Reduction = r.word()
			}
			s.Unreduced, _ = r.axes(s.Mesh, false)
		default:
			r.failf(r.i, "expected replicated or unreduced")
		}
	}
	r.expect(">")
	if r.err == nil {
		if err := s.Check(-1); err != nil {
			r.failf(at, "%v", err)
		}
	}
	return s
}
