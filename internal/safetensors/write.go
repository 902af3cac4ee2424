package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"
)

// WriteFile writes a file to disk, replacing what was there.
func WriteFile(path string, f *File) (err error) {
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := w.Close(); err == nil {
			err = e
		}
	}()
	if err := Write(w, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Write writes f. The tensors may be in any order; equal contents give equal bytes.
// It returns an error before writing anything if a name repeats or a tensor's data
// does not have the size that its type and shape demand.
func Write(w io.Writer, f *File) error {
	ts, err := layout(f.Tensors)
	if err != nil {
		return err
	}
	header, err := encodeHeader(ts, f.Metadata)
	if err != nil {
		return err
	}
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(header)))
	if _, err := w.Write(length[:]); err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range ts {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// layout checks the tensors and puts them in the order of their data.
func layout(in []Tensor) ([]Tensor, error) {
	ts := slices.Clone(in)
	slices.SortStableFunc(ts, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.Size(), a.DType.Size()), cmp.Compare(a.Name, b.Name))
	})
	seen := make(map[string]bool, len(ts))
	for _, t := range ts {
		switch size, ok := byteSize(t.DType, t.Shape); {
		case seen[t.Name] || t.Name == "__metadata__":
			return nil, malformed("cannot write two tensors or a tensor and metadata under the name %q", t.Name)
		case !utf8.ValidString(t.Name):
			return nil, malformed("the name %q is not UTF-8", t.Name)
		case !t.DType.Valid() || !ok:
			return nil, malformed("cannot write tensor %q of type %v%v", t.Name, t.DType, t.Shape)
		case size != int64(len(t.Data)):
			return nil, malformed("tensor %q has %d bytes, but %v%v takes %d", t.Name, len(t.Data), t.DType, t.Shape, size)
		}
		seen[t.Name] = true
	}
	return ts, nil
}

// encodeHeader writes the JSON with names in ascending order, padded with spaces to
// a multiple of eight bytes.
func encodeHeader(ts []Tensor, metadata map[string]string) ([]byte, error) {
	type placed struct {
		Tensor
		begin int64
	}
	ps := make([]placed, len(ts))
	at := int64(0)
	for i, t := range ts {
		ps[i] = placed{t, at}
		at += int64(len(t.Data))
	}
	slices.SortFunc(ps, func(a, b placed) int { return cmp.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	b.WriteByte('{')
	for k, v := range metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, malformed("metadata that is not UTF-8")
		}
	}
	if metadata != nil {
		text, err := json.Marshal(metadata) // sorts the keys
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `"__metadata__":%s`, text)
	}
	for _, p := range ps {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(p.Name)
		if err != nil {
			return nil, err
		}
		shape, err := json.Marshal(append([]int64{}, p.Shape...)) // [] rather than null
		if err != nil {
			return nil, err
		}
		typ, _ := typeName(p.DType)
		fmt.Fprintf(&b, `%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, typ, shape, p.begin, p.begin+int64(len(p.Data)))
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > MaxHeader {
		return nil, malformed("a header of %d bytes, more than %d", b.Len(), MaxHeader)
	}
	return b.Bytes(), nil
}
