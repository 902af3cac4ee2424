package calibration

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/strictjson"
)

// maxFigure bounds the rates and microseconds in a file, far beyond every machine's.
const maxFigure = 1e12

// ValueError is a value that no file may have: where it stands, as in
// collectives.3.us, and what is wrong with it.
type ValueError = strictjson.ValueError

// Figure checks a rate or a time; some must be positive. The error is a *ValueError.
func Figure(path string, v float64, positive bool) error {
	switch {
	case positive && !(v > 0):
		return &ValueError{Path: path, Msg: fmt.Sprintf("must be positive, not %v", v)}
	case !(v >= 0):
		return &ValueError{Path: path, Msg: fmt.Sprintf("must not be negative, as %v", v)}
	case v > maxFigure:
		return &ValueError{Path: path, Msg: fmt.Sprintf("%v is more than %v", v, maxFigure)}
	}
	return nil
}

// Read reads a calibration and checks it and its digest. name is what errors call it;
// they have line and column. more are checks of who takes what, whose errors are
// *ValueErrors.
func Read(name string, r io.Reader, more ...func(*File) error) (*File, error) {
	f := new(File)
	err := strictjson.Read(name, r, f, func() error {
		if err := f.check(); err != nil {
			return err
		}
		for _, check := range more {
			if err := check(f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	want, err := f.digest()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if f.Digest != "" && f.Digest != want {
		return nil, fmt.Errorf("%s: the digest is %.12s, the contents' %.12s: the file was edited; calibrate again, or remove the digest to use the values as they are", name, f.Digest, want)
	}
	f.sort()
	return f, nil
}

// measured are what collectives are timed as: those of ir's op table, and what they are
// made of.
var measured = []string{"all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "collective_permute", "empty-kernel", "local_copy", "p2p_copy", "reduce_scatter"}

// Collectives says what a Collective's op may be.
func Collectives() []string { return slices.Clone(measured) }

// check reports the first value that no calibration writes.
func (f *File) check() error {
	part := func(path string, v float64) error { // of a speed; 0: it was not measured
		if !(v >= 0 && v <= 1) {
			return &ValueError{Path: path, Msg: fmt.Sprintf("a speed of %v is not between 0 and 1", v)}
		}
		return nil
	}
	for i, c := range f.Collectives {
		at := fmt.Sprintf("collectives.%d.", i)
		switch {
		case !slices.Contains(measured, c.Op):
			return &ValueError{Path: at + "op", Msg: fmt.Sprintf("%q is none of %s", c.Op, strings.Join(measured, ", "))}
		case c.Impl == "":
			return &ValueError{Path: at + "impl", Msg: "is empty"}
		case c.Ranks < 1 || c.Ranks > 1<<20:
			return &ValueError{Path: at + "ranks", Msg: fmt.Sprintf("%d is not a size of a group", c.Ranks)}
		case c.Bytes < 0:
			return &ValueError{Path: at + "bytes", Msg: fmt.Sprintf("%d is not a size", c.Bytes)}
		}
		if err := Figure(at+"us", c.Us, true); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		path    string
		entries []Instruction
	}{{"instructions", f.Instructions}, {"chains", f.Chains}} {
		for i, e := range list.entries {
			at := fmt.Sprintf("%s.%d.", list.path, i)
			if err := errors.Join(Figure(at+"us", e.Us, false), part(at+"speed", e.Speed)); err != nil {
				return err
			}
		}
	}
	for i, b := range f.Overlaps {
		at := fmt.Sprintf("beside.%d.", i)
		if err := errors.Join(Figure(at+"compute", b.Compute, true), part(at+"compute", b.Compute), Figure(at+"comm", b.Comm, true), part(at+"comm", b.Comm)); err != nil {
			return err
		}
	}
	return errors.Join(Figure("edge_us", f.EdgeUs, false), Figure("memory_scale", f.MemoryScale, false), Figure("step_us", f.StepUs, false))
}

// WriteTo sorts f, sets its digest and writes it.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	f.sort()
	if err := f.check(); err != nil {
		return 0, err
	}
	var err error
	if f.Digest, err = f.digest(); err != nil {
		return 0, err
	}
	var b bytes.Buffer
	v := reflect.ValueOf(f).Elem()
	sep := "{\n"
	for i := range v.NumField() {
		key, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if option == "omitempty" && v.Field(i).IsZero() {
			continue
		}
		fmt.Fprintf(&b, "%s %q: ", sep, key)
		if err := entries(&b, v.Field(i)); err != nil {
			return 0, err
		}
		sep = ",\n"
	}
	b.WriteString("\n}\n")
	return b.WriteTo(w)
}

// entries writes a value, a list with an entry a line.
func entries(b *bytes.Buffer, v reflect.Value) error {
	if m, ok := v.Interface().(*Matmuls); ok {
		fmt.Fprintf(b, "{\"gpu\": %q, \"library\": %d, \"algorithms\": ", m.GPU, m.Library)
		if err := entries(b, reflect.ValueOf(m.Algorithms)); err != nil {
			return err
		}
		b.WriteByte('}')
		return nil
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false) // keys have arrows
	if v.Kind() != reflect.Slice {
		err := e.Encode(v.Interface())
		b.Truncate(b.Len() - 1)
		return err
	}
	b.WriteByte('[')
	for i := range v.Len() {
		b.WriteString([]string{"\n  ", ",\n  "}[min(i, 1)])
		if err := e.Encode(v.Index(i).Interface()); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteString("\n ]")
	return nil
}

func (f *File) digest() (string, error) {
	bare := *f
	bare.Digest = ""
	text, err := json.Marshal(&bare)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), nil
}
