// Package strictjson decodes a file of one JSON object into a struct, and rejects unknown and missing
// fields with line and column.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// maxRead bounds a file, in bytes.
const maxRead = 64 << 20

// ValueError is a value that no file may have: where it stands, as in
// collectives.3.us, and what is wrong with it.
type ValueError struct{ Path, Msg string }

// Error names the value.
func (e *ValueError) Error() string { return e.Path + ": " + e.Msg }

// Read decodes one JSON value into a struct and checks it, which may end in a
// *ValueError. Fields that are unknown, or missing and not omitempty, are errors. Errors
// have the file, the line and the column.
func Read(name string, r io.Reader, into any, check func() error) error {
	data, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			return err
		}
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
		return fail(int64(len(data)-len(start)), errors.New("expected a JSON object, which starts with '{'"))
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
			offset, err = wrong.Offset, fmt.Errorf("field %q cannot be a %s: want %s", wrong.Field, wrong.Value, kind(wrong.Type))
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

// kind is what stands in a text for a value of a type.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number that fits " + t.String()
}
