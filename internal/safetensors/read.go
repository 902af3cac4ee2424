package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ReadFile reads a whole file from disk.
func ReadFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// Read reads a whole file; r must end where the file ends. Tensors share one buffer.
func Read(r io.Reader) (*File, error) {
	h, err := ReadHeader(r)
	if err != nil {
		return nil, err
	}
	data, err := readExactly(r, h.DataSize)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	var one [1]byte
	switch _, err := io.ReadFull(r, one[:]); {
	case err == nil:
		return nil, malformed("bytes after the %d that the header describes", h.DataSize)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	f := &File{Metadata: h.Metadata}
	for _, e := range h.Entries {
		f.Tensors = append(f.Tensors, Tensor{e.Name, e.DType, e.Shape, data[e.Begin:e.End:e.End]})
	}
	return f, nil
}

// ReadHeader reads and checks the header and leaves r at the first byte of data, so
// that a caller with a file can read single tensors at 8 + header length + Begin,
// and one with a stream can take them in order.
func ReadHeader(r io.Reader) (*Header, error) {
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, fmt.Errorf("header length: %w", ends(err))
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeader {
		return nil, malformed("header of %d bytes, more than %d", n, MaxHeader)
	}
	text, err := readExactly(r, int64(n))
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return parseHeader(text)
}

// readExactly reads n bytes, growing its buffer as bytes arrive.
func readExactly(r io.Reader, n int64) ([]byte, error) {
	const first = 1 << 20
	var buf bytes.Buffer
	buf.Grow(int(min(n, first)))
	got, err := io.CopyN(&buf, r, n)
	if err != nil {
		return nil, fmt.Errorf("%w after %d of %d bytes", ends(err), got, n)
	}
	return buf.Bytes(), nil
}

// ends makes an early end of the input an error about the format.
func ends(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrFormat, io.ErrUnexpectedEOF)
	}
	return err
}

// entryJSON is a tensor as the header spells it; pointers tell absence from zero.
type entryJSON struct {
	DType   *string    `json:"dtype"`
	Shape   *[]integer `json:"shape"`
	Offsets *[]integer `json:"data_offsets"`
}

// integer is an int64 that null is not, which encoding/json would leave at zero.
type integer int64

// UnmarshalJSON reads a decimal integer.
func (n *integer) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("%.40q is not a 64-bit integer", text)
	}
	*n = integer(v)
	return nil
}

func parseHeader(text []byte) (*Header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, malformed("the header does not start with '{'")
	}
	if !utf8.Valid(text) {
		return nil, malformed("the header is not UTF-8")
	}
	h := &Header{}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, malformed("header: %v", err)
	}
	metadata := false
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, malformed("header: %v", err)
		}
		name, ok := tok.(string)
		if !ok {
			return nil, malformed("header: %v where a name should be", tok)
		}
		if name == "__metadata__" {
			if metadata {
				return nil, malformed("__metadata__ twice")
			}
			metadata = true
			if err := dec.Decode(&h.Metadata); err != nil {
				return nil, malformed("__metadata__: %v", err)
			}
			continue
		}
		e, err := parseEntry(dec, name)
		if err != nil {
			return nil, err
		}
		h.Entries = append(h.Entries, e)
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed("header: %v", err)
	}
	if rest := bytes.Trim(text[dec.InputOffset():], " "); len(rest) > 0 {
		return nil, malformed("%d bytes after the header's JSON", len(rest))
	}
	return h, h.check()
}

func parseEntry(dec *json.Decoder, name string) (Entry, error) {
	var raw entryJSON
	if err := dec.Decode(&raw); err != nil {
		return Entry{}, malformed("tensor %q: %v", name, err)
	}
	if raw.DType == nil || raw.Shape == nil || raw.Offsets == nil {
		return Entry{}, malformed("tensor %q lacks dtype, shape or data_offsets", name)
	}
	d, ok := parseType(*raw.DType)
	if !ok {
		return Entry{}, malformed("tensor %q has element type %q, which is not known here", name, *raw.DType)
	}
	if len(*raw.Offsets) != 2 {
		return Entry{}, malformed("tensor %q has %d data_offsets, want 2", name, len(*raw.Offsets))
	}
	e := Entry{Name: name, DType: d, Shape: make([]int64, len(*raw.Shape)), Begin: int64((*raw.Offsets)[0]), End: int64((*raw.Offsets)[1])}
	for i, n := range *raw.Shape {
		e.Shape[i] = int64(n)
	}
	size, ok := byteSize(d, e.Shape)
	if !ok {
		return Entry{}, malformed("tensor %q has shape %v", name, e.Shape)
	}
	if e.Begin < 0 || e.End < e.Begin || e.End-e.Begin != size {
		return Entry{}, malformed("tensor %q: bytes [%d, %d) do not hold %v%v, which takes %d", name, e.Begin, e.End, d, e.Shape, size)
	}
	return e, nil
}

// check finds repeated names, and gaps and overlaps between tensors, and sets
// DataSize.
func (h *Header) check() error {
	byOffset := slices.Clone(h.Entries)
	slices.SortStableFunc(byOffset, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	before := ""
	for _, e := range byOffset {
		switch {
		case e.Begin < h.DataSize:
			return malformed("tensors %q and %q overlap at byte %d", before, e.Name, e.Begin)
		case e.Begin > h.DataSize:
			return malformed("no tensor covers bytes [%d, %d) before %q", h.DataSize, e.Begin, e.Name)
		}
		h.DataSize, before = e.End, e.Name
	}
	slices.SortFunc(h.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(h.Entries); i++ {
		if h.Entries[i].Name == h.Entries[i-1].Name {
			return malformed("tensor %q twice", h.Entries[i].Name)
		}
	}
	return nil
}
