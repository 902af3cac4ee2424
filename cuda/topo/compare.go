package topo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference is one value in which two machines differ.
type Difference struct {
	Field string // such as gpus[2].name
	A, B  string // the values as JSON, "absent" for a field that one lacks
}

// String gives the field and both values.
func (d Difference) String() string { return fmt.Sprintf("%s is %s and %s", d.Field, d.A, d.B) }

// Compare lists every field in which two machines differ, in the order of their
// names. It is for two readings of one host, as by two ranks.
func Compare(a, b *Machine) []Difference { return compare(a, b, func(string) bool { return false }) }

// CompareKind lists what differs between machines that should be of one kind, such as
// two hosts of a job: everything but what names a particular host or device, and notes.
func CompareKind(a, b *Machine) []Difference {
	return compare(a, b, func(field string) bool {
		return strings.HasPrefix(field, "host.id") || strings.HasPrefix(field, "host.name") || strings.HasPrefix(field, "notes") ||
			strings.HasSuffix(field, ".uuid") || strings.HasSuffix(field, ".pci") && !strings.HasPrefix(field, "pairs") ||
			strings.HasSuffix(field, "fabric.cluster") || strings.HasSuffix(field, "fabric.clique")
	})
}

// compare works on the JSON, so that no field can be forgotten.
func compare(a, b *Machine, skip func(field string) bool) []Difference {
	ja, jb := encode(a), encode(b)
	if bytes.Equal(ja, jb) {
		return nil
	}
	fa, fb := flatten(ja), flatten(jb)
	all := maps.Clone(fa)
	maps.Copy(all, fb)
	var out []Difference
	for _, field := range slices.SortedFunc(maps.Keys(all), natural) {
		va, oka := fa[field]
		vb, okb := fb[field]
		if va == vb && oka == okb || skip(field) {
			continue
		}
		if !oka {
			va = "absent"
		}
		if !okb {
			vb = "absent"
		}
		out = append(out, Difference{field, va, vb})
	}
	return out
}

// natural orders gpus[2] before gpus[10].
func natural(a, b string) int {
	for len(a) > 0 && len(b) > 0 {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			if na != nb {
				return na - nb
			}
			if c := strings.Compare(a[:na], b[:nb]); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// flatten gives every leaf of a machine's JSON by its path.
func flatten(b []byte) map[string]string {
	out := map[string]string{}
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&v) == nil {
		leaves(out, "", v)
	}
	return out
}

func leaves(out map[string]string, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			leaves(out, strings.TrimPrefix(at+"."+k, "."), x)
		}
	case []any:
		for i, x := range v {
			leaves(out, fmt.Sprintf("%s[%d]", at, i), x)
		}
	case string:
		out[at] = fmt.Sprintf("%q", v)
	default:
		out[at] = fmt.Sprint(v)
	}
}
