package lt

import (
	"fmt"
	"strconv"
	"strings"
)

// Algo says how a matmul is computed: by an algorithm of cuBLASLt, given by its
// attributes, or by a kernel of this package. String and ParseAlgo convert it to text
// and back without loss.
type Algo struct {
	// Attributes of a library's algorithm, by the library's numbers.
	ID                                        int32
	Tile, Stages                              uint32
	SplitK, Reduction, Swizzle, Custom, Inner uint32
	Cluster                                   uint32
	// Raw is the library's own form of the algorithm, for one version of the library.
	// It is zero where the attributes say everything.
	Raw [8]uint64
	// Skinny is the kernel, if it is one of ours; the fields above are zero then.
	Skinny Skinny
}

// fields lists the attributes with their names in the text form.
func (a *Algo) fields() []algoField {
	return []algoField{{"tile", &a.Tile}, {"stages", &a.Stages}, {"splitk", &a.SplitK}, {"reduction", &a.Reduction},
		{"swizzle", &a.Swizzle}, {"custom", &a.Custom}, {"inner", &a.Inner}, {"cluster", &a.Cluster}}
}

type algoField struct {
	name string
	at   *uint32
}

// String is the text form, such as
//
//	cublaslt id=66 tile=20 stages=35 splitk=1 reduction=0 swizzle=0 custom=0 inner=0 cluster=3
//	skinny rows=2 parts=8 cluster=1 unroll=4
func (a Algo) String() string {
	if a.Skinny != (Skinny{}) {
		return a.Skinny.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cublaslt id=%d", a.ID)
	for _, f := range a.fields() {
		fmt.Fprintf(&b, " %s=%d", f.name, *f.at)
	}
	if a.Raw != [8]uint64{} {
		b.WriteString(" raw=")
		for i, w := range a.Raw {
			if i > 0 {
				b.WriteByte(':')
			}
			b.WriteString(strconv.FormatUint(w, 16))
		}
	}
	return b.String()
}

// ParseAlgo reads what String wrote. It does not check that the algorithm exists.
func ParseAlgo(text string) (Algo, error) {
	kind, rest, _ := strings.Cut(text, " ")
	var a Algo
	var err error
	switch kind {
	case "cublaslt":
		err = a.parse(strings.Fields(rest))
	case "skinny":
		a.Skinny, err = parseSkinny(strings.Fields(rest))
	default:
		err = fmt.Errorf("unknown kind %q", kind)
	}
	if err != nil {
		return Algo{}, fmt.Errorf("algorithm %q: %w", text, err)
	}
	return a, nil
}

func (a *Algo) parse(words []string) error {
	fields := a.fields()
	if len(words) < 1+len(fields) || len(words) > 2+len(fields) {
		return fmt.Errorf("%d attributes, want %d", len(words), 1+len(fields))
	}
	id, err := number(words[0], "id", 31)
	if err != nil {
		return err
	}
	a.ID = int32(id)
	for i, f := range fields {
		v, err := number(words[1+i], f.name, 32)
		if err != nil {
			return err
		}
		*f.at = uint32(v)
	}
	if len(words) == 1+len(fields) {
		return nil
	}
	raw, ok := strings.CutPrefix(words[len(words)-1], "raw=")
	parts := strings.Split(raw, ":")
	if !ok || len(parts) != len(a.Raw) {
		return fmt.Errorf("malformed %q", words[len(words)-1])
	}
	for i, s := range parts {
		if a.Raw[i], err = strconv.ParseUint(s, 16, 64); err != nil {
			return err
		}
	}
	if a.Raw == [8]uint64{} {
		return fmt.Errorf("malformed %q: all zero", words[len(words)-1])
	}
	return nil
}

// number reads NAME=value.
func number(word, name string, bits int) (uint64, error) {
	text, ok := strings.CutPrefix(word, name+"=")
	if !ok {
		return 0, fmt.Errorf("%q where %s=... must be", word, name)
	}
	return strconv.ParseUint(text, 10, bits)
}
