package topo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/seed-ee968945/concert/internal/strictjson"
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

// Read reads a machine's JSON and checks it. name is what errors call it; they have line
// and column. Unknown and missing fields are errors, and so is another version.
func Read(name string, r io.Reader) (*Machine, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var head struct{ Version int }
	if json.Unmarshal(data, &head) == nil && head.Version > Version { // whose fields would only confuse
		return nil, fmt.Errorf("%s: version: is %d; this program reads %d", name, head.Version, Version)
	}
	m := new(Machine)
	if err := strictjson.Read(name, bytes.NewReader(data), m, m.Check); err != nil {
		return nil, err
	}
	return m, nil
}
