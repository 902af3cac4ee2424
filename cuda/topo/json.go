package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// encode writes v as indented JSON. Structs only, so the bytes depend on nothing but
// the value.
func encode(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil // the types here cannot fail but for numbers that Check refuses
	}
	return append(b, '\n')
}

// JSON is the machine as a file, the same bytes for the same machine.
func (m *Machine) JSON() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	return encode(m), nil
}

// Read reads a machine's JSON and checks it. name is what errors call it. Unknown
// fields are errors, and so is another version.
func Read(name string, r io.Reader) (*Machine, error) {
	m := new(Machine)
	if err := decode(name, r, m); err != nil {
		return nil, err
	}
	return m, named(name, m.Check())
}

func named(name string, err error) error {
	var e *FormatError
	if errors.As(err, &e) {
		return &FormatError{Name: name, Field: e.Field, Reason: e.Reason}
	}
	return err
}

// decode reads the version first: a newer file's fields would only confuse.
func decode(name string, r io.Reader, into any) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var head struct {
		Version int `json:"version"`
	}
	fail := func(d *json.Decoder, err error) error {
		line := 1 + bytes.Count(data[:min(int(d.InputOffset()), len(data))], []byte("\n"))
		return &FormatError{Name: fmt.Sprintf("%s:%d", name, line), Reason: err.Error()}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&head); err != nil {
		return fail(d, err)
	}
	if head.Version != Version {
		return &FormatError{Name: name, Field: "version", Reason: fmt.Sprintf("is %d; this program reads %d", head.Version, Version)}
	}
	d = json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fail(d, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fail(d, errors.New("more than one value"))
	}
	return nil
}
