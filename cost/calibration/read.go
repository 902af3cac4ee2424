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
	"strconv"
	"strings"
)

// maxRead bounds a file, in bytes; maxFigure the rates and microseconds in it, far beyond
// every machine's.
const (
	maxRead   = 64 << 20
	maxFigure = 1e12
)

// ValueError is a value that no file may have: where it stands, as in
// collectives.3.us, and what is wrong with it.
type ValueError struct{ Path, Msg string }

// Error names the value.
func (e *ValueError) Error() string { return e.Path + ": " + e.Msg }

// Figure checks a rate or a time; some must be positive. The error is a *ValueError.
func Figure(path string, v float64, positive bool) error {
	switch {
	case positive && !(v > 0):
		return &ValueError{path, fmt.Sprintf("must be positive, not %v", v)}
	case !(v >= 0):
		return &ValueError{path, fmt.Sprintf("must not be negative, as %v", v)}
	case v > maxFigure:
		return &ValueError{path, fmt.Sprintf("%v is more than %v", v, maxFigure)}
	}
	return nil
}

// Read reads a calibration and checks it and its digest. name is what errors call it;
// they have line and column. more are checks of who takes what, whose errors are
// *ValueErrors.
func Read(name string, r io.Reader, more ...func(*File) error) (*File, error) {
	f := new(File)
	err := ReadJSON(name, r, f, func() error {
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
			return &ValueError{path, fmt.Sprintf("a speed of %v is no part of 1", v)}
		}
		return nil
	}
	for i, c := range f.Collectives {
		at := fmt.Sprintf("collectives.%d.", i)
		switch {
		case !slices.Contains(measured, c.Op):
			return &ValueError{at + "op", fmt.Sprintf("%q is none of %s", c.Op, strings.Join(measured, ", "))}
		case c.Impl == "":
			return &ValueError{at + "impl", "is empty"}
		case c.Ranks < 1 || c.Ranks > 1<<20:
			return &ValueError{at + "ranks", fmt.Sprintf("%d is no size of a group", c.Ranks)}
		case c.Bytes < 0:
			return &ValueError{at + "bytes", fmt.Sprintf("%d is no size", c.Bytes)}
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

// ReadJSON decodes one JSON value into a struct and checks it, which may end in a
// *ValueError. Fields that are unknown, or missing and not omitempty, are errors. Errors
// have the file, the line and the column.
func ReadJSON(name string, r io.Reader, into any, check func() error) error {
	data, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxRead {
		return fmt.Errorf("%s: the file is larger than %d bytes", name, maxRead)
	}
	fail := func(offset int64, err error) error {
		before := data[:min(int(offset), len(data))]
		return fmt.Errorf("%s:%d:%d: %w", name, 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'), err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) > 0 && start[0] != '{' {
		return fail(int64(len(data)-len(start)), errors.New("expected an object, which starts with '{'"))
	}
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fail(int64(len(data)), fmt.Errorf("the file ends too early: %w", err))
		}
		offset := d.InputOffset()
		var wrong *json.UnmarshalTypeError
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &wrong):
			offset, err = wrong.Offset, fmt.Errorf("field %q cannot be a %s", wrong.Field, wrong.Value)
		case errors.As(err, &syntax):
			offset = syntax.Offset - 1
		}
		return fail(offset, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fail(d.InputOffset(), errors.New("more follows the end"))
	}
	keys := json.NewDecoder(bytes.NewReader(data))
	if offset, err := fields(keys, reflect.TypeOf(into)); err != nil {
		return fail(offset, err)
	}
	err = check()
	var bad *ValueError
	if errors.As(err, &bad) {
		return fail(offsetOf(data, strings.Split(bad.Path, ".")), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// fields reads one value of a legal text, which was decoded into type t, and reports where
// an object has a field that t does not, or lacks one.
func fields(d *json.Decoder, t reflect.Type) (offset int64, err error) {
	token, err := d.Token()
	if err != nil {
		return d.InputOffset(), err
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	start := d.InputOffset() - 1
	var types map[string]reflect.Type
	var want []string
	if token == json.Delim('{') && t.Kind() == reflect.Struct {
		types = map[string]reflect.Type{}
		for i := range t.NumField() {
			key, option, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if types[key] = t.Field(i).Type; option != "omitempty" {
				want = append(want, key)
			}
		}
	}
	for open, _ := token.(json.Delim); (open == '{' || open == '[') && d.More(); {
		in := t
		if open == '{' {
			k, err := d.Token()
			if err != nil {
				return d.InputOffset(), err
			}
			key, _ := k.(string)
			ok := t.Kind() == reflect.Map
			if ok {
				in = t.Elem()
			} else if in, ok = types[key]; !ok {
				return d.InputOffset() - int64(len(strconv.Quote(key))), fmt.Errorf("there is no field %q", key)
			}
			want = slices.DeleteFunc(want, func(w string) bool { return w == key })
		} else if t.Kind() == reflect.Slice {
			in = t.Elem()
		}
		if offset, err := fields(d, in); err != nil {
			return offset, err
		}
	}
	if _, nested := token.(json.Delim); nested {
		if _, err := d.Token(); err != nil {
			return d.InputOffset(), err
		}
	}
	if len(want) > 0 {
		return start, fmt.Errorf("field %q is missing", want[0])
	}
	return 0, nil
}

// offsetOf finds the value at a path of a legal JSON text, or what encloses it where the
// text lacks it.
func offsetOf(data []byte, path []string) int64 {
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	at := d.InputOffset() - 1
	for i := 0; err == nil && len(path) > 0 && d.More(); i++ {
		key := strconv.Itoa(i)
		if open == json.Delim('{') {
			var token json.Token
			if token, err = d.Token(); err != nil {
				break
			}
			key = fmt.Sprint(token)
		}
		if key != path[0] {
			var skipped json.RawMessage
			err = d.Decode(&skipped)
			continue
		}
		at, path, i = d.InputOffset(), path[1:], -1
		for bytes.IndexByte([]byte(" \t\r\n:,"), data[at]) >= 0 {
			at++
		}
		if open, err = d.Token(); err != nil {
			break
		}
		if _, nested := open.(json.Delim); !nested {
			break
		}
	}
	return at
}
