package passes

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// OptionKind says how an option's text is read.
type OptionKind uint8

// The kinds of options.
const (
	KindInt    OptionKind = iota + 1 // a decimal integer, not negative
	KindFloat                        // a finite number, not negative
	KindBool                         // true or false
	KindString                       // one of Option.Choices, or any word if there are none
	KindBytes                        // an integer with an optional suffix B, KiB, MiB, GiB or TiB
)

// String returns the name of the kind as messages and help texts spell it.
func (k OptionKind) String() string {
	switch k {
	case KindInt:
		return "integer of at least 0"
	case KindFloat:
		return "number of at least 0"
	case KindBool:
		return "true or false"
	case KindString:
		return "word"
	case KindBytes:
		return "bytes, such as 8MiB"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Option declares one option of a pass.
type Option struct {
	Name       string
	FormerName string // a former name, which pipelines may still have
	Kind       OptionKind
	Default    string   // in the option's text form
	Choices    []string // the words that a KindString may take, nil for any
	Doc        string
}

// value is a parsed option.
type value struct {
	text string
	num  int64
	f    float64
}

// parse reads the text of a value; an error does not repeat the option's name.
func (o *Option) parse(text string) (value, error) {
	v := value{text: text}
	bad := fmt.Errorf("%q: want %s", text, o.Kind)
	switch o.Kind {
	case KindInt:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return v, bad
		}
		v.num = n
	case KindFloat:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
			return v, bad
		}
		v.f = f
	case KindBool:
		if text != "true" && text != "false" {
			return v, bad
		}
		if text == "true" {
			v.num = 1
		}
	case KindBytes:
		n, ok := parseBytes(text)
		if !ok {
			return v, bad
		}
		v.num = n
	case KindString:
		if o.Choices != nil && !slices.Contains(o.Choices, text) {
			return v, fmt.Errorf("%q: want one of: %s", text, strings.Join(o.Choices, " "))
		}
	default:
		return v, fmt.Errorf("option %s has no kind", o.Name)
	}
	return v, nil
}

// parseBytes reads 8MiB, 512 or 1.5GiB as a number of bytes.
func parseBytes(text string) (int64, bool) {
	unit := int64(1)
	digits := text
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if t, ok := strings.CutSuffix(text, suffix); ok {
			unit, digits = 1<<(10*(i+1)), t
		}
	}
	if unit == 1 {
		digits = strings.TrimSuffix(text, "B")
		n, err := strconv.ParseInt(digits, 10, 64)
		return n, err == nil && n >= 0
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f*float64(unit) >= math.MaxInt64 {
		return 0, false
	}
	return int64(f * float64(unit)), true
}

// Bytes formats a number of bytes for reports: 512B, 8MiB, 29.84GiB.
func Bytes(n int64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift || -n >= 1<<u.shift {
			s := strconv.FormatFloat(float64(n)/float64(int64(1)<<u.shift), 'f', 2, 64)
			return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
