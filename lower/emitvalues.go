package lower

import (
	"fmt"
	"go/token"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
)

func (e *emitter) tensors(ts []program.Tensor) {
	if len(ts) == 0 {
		e.printf("nil")
		return
	}
	e.printf("rt.Ts{")
	for i := range ts {
		if i > 0 {
			e.printf(", ")
		}
		e.tensor(&ts[i])
	}
	e.printf("}")
}

func (e *emitter) tensor(t *program.Tensor) {
	off := e.buf[t.Buffer]
	if t.Offset != 0 {
		off += fmt.Sprintf("+%d", t.Offset)
	}
	dt := goDType(t.DType)
	if t.Strides != nil {
		e.printf("rt.S(%s, %s, rt.Dims{%s}, rt.Dims{%s})", off, dt, e.dims(t.Shape), e.dims(t.Strides))
		return
	}
	e.printf("rt.C(%s, %s", off, dt)
	if len(t.Shape) > 0 {
		e.printf(", %s", e.dims(t.Shape))
	}
	e.printf(")")
}

// dims prints dimensions as Go expressions over the symbols' variables. Sizes
// are not negative, so Go's division rounds as floor division does.
func (e *emitter) dims(ds []dim.Dim) string {
	parts := make([]string, len(ds))
	for i, d := range ds {
		parts[i] = e.goDim(d.String(), d.Symbols(nil))
	}
	return strings.Join(parts, ", ")
}

func (e *emitter) goDim(s string, syms []string) string {
	if len(syms) == 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && (s[j] == '_' || s[j] == '.' || s[j] == '$' || s[j] >= '0' && s[j] <= '9' || s[j] >= 'a' && s[j] <= 'z' || s[j] >= 'A' && s[j] <= 'Z') {
			j++
		}
		switch word := s[i:j]; {
		case slices.Contains(syms, word):
			b.WriteString(e.sym[word])
		case j > i:
			b.WriteString(word)
		case strings.HasPrefix(s[i:], "//"):
			b.WriteByte('/')
			j = i + 2
		default:
			b.WriteByte(s[i])
			j = i + 1
		}
		i = j
	}
	return b.String()
}

func (e *emitter) attrs(l attr.List) {
	if len(l) == 0 {
		e.printf("nil")
		return
	}
	e.printf("rt.A(")
	for i, a := range l {
		if i > 0 {
			e.printf(", ")
		}
		e.printf("%q, %s", a.Key, e.goValue(a.Val))
	}
	e.printf(")")
}

// goValue is a Go expression whose type tells rt.A the kind of the attribute.
func (e *emitter) goValue(v attr.Value) string {
	switch v.Kind() {
	case attr.KindFloat:
		switch s := v.String(); s {
		case "inf":
			e.math = true
			return "math.Inf(1)"
		case "-inf":
			e.math = true
			return "math.Inf(-1)"
		case "nan":
			e.math = true
			return "math.NaN()"
		default:
			return s
		}
	case attr.KindDType:
		d, _ := v.AsDType()
		return goDType(d)
	case attr.KindInts:
		n, _ := v.AsInts()
		return goInts(n)
	case attr.KindStrings:
		s, _ := v.AsStrings()
		return fmt.Sprintf("%#v", s)
	}
	return v.String() // integers, truth values and quoted strings are Go as they are
}

func goDType(d dtype.DType) string {
	if d == dtype.Bool {
		return "rt.Bool"
	}
	return "rt." + strings.ToUpper(d.String())
}

func goInts(v []int64) string {
	return "[]int64{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ", "), "[]") + "}"
}

// names hands out Go identifiers.
type names struct {
	taken map[string]bool
}

func newNames() *names {
	n := &names{taken: map[string]bool{}}
	for _, s := range []string{"x", "loop", "branch", "rt", "math", "Module", "Step", "kernels", "source", "init", "main", "nil", "true", "false", "string", "int", "int64", "_"} {
		n.taken[s] = true
	}
	return n
}

// unique turns a name of the text form into an identifier not given out before.
func (n *names) unique(name string) string {
	id := strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	if !token.IsIdentifier(id) {
		id = "b_" + id
	}
	for n.taken[id] {
		id += "_"
	}
	n.taken[id] = true
	return id
}
