package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/safetensors"
)

func raw(header string, data string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func sample() *safetensors.File {
	return &safetensors.File{
		Metadata: map[string]string{"z": "1", "a": "\"quoted\"\n"},
		Tensors: []safetensors.Tensor{
			{Name: "b", DType: dtype.BF16, Shape: []int64{2, 1}, Data: []byte{1, 2, 3, 4}},
			{Name: "a", DType: dtype.Bool, Shape: []int64{3}, Data: []byte{1, 0, 1}},
			{Name: "scalar", DType: dtype.F64, Shape: []int64{}, Data: []byte("12345678")},
			{Name: "empty", DType: dtype.I32, Shape: []int64{4, 0}, Data: []byte{}},
			{Name: "größe \"x\"", DType: dtype.I64, Shape: []int64{1}, Data: []byte("abcdefgh")},
		},
	}
}

func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := safetensors.Write(&b, sample()); err != nil {
		t.Fatal(err)
	}
	got, err := safetensors.Read(iotest.OneByteReader(bytes.NewReader(b.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	want := sample()
	slices.SortFunc(want.Tensors, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
	if _, ok := got.Get("scalar"); !ok {
		t.Error("Get does not find a tensor")
	}
	if _, ok := got.Get("nope"); ok {
		t.Error("Get finds a tensor that is not there")
	}
}

// TestBytes fixes the layout: names ascending in the header, data by element size.
func TestBytes(t *testing.T) {
	f := &safetensors.File{Tensors: []safetensors.Tensor{
		{Name: "a", DType: dtype.U8, Shape: []int64{1}, Data: []byte("x")},
		{Name: "b", DType: dtype.F32, Data: []byte("1234")},
	}}
	header := `{"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`
	for len(header)%8 != 0 {
		header += " "
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(raw(header, "1234x")), b.String()); d != "" {
		t.Errorf("bytes (-want +got):\n%s", d)
	}
	slices.Reverse(f.Tensors)
	var again bytes.Buffer
	if err := safetensors.Write(&again, f); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("the order of the tensors changed the bytes (%v)", err)
	}
}

func TestMalformed(t *testing.T) {
	one := func(dt, shape, offsets string) string {
		return `{"t":{"dtype":"` + dt + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
	}
	tests := []struct {
		name string
		in   []byte
		want string
	}{
		{"empty file", nil, "header length"},
		{"short length", []byte{1, 2}, "header length"},
		{"huge header", binary.LittleEndian.AppendUint64(nil, 1<<60), "more than"},
		{"header cut off", raw(`{"t":{}}`, "")[:12], "after 4 of 8 bytes"},
		{"lying length", binary.LittleEndian.AppendUint64(nil, 99_000_000), "after 0 of 99000000 bytes"},
		{"empty header", raw("", ""), "does not start"},
		{"leading space", raw(" {}", ""), "does not start"},
		{"not JSON", raw("{x}", ""), "header:"},
		{"cut JSON", raw(`{"t":`, ""), "tensor \"t\""},
		{"not an object", raw(`{"t":3}`, ""), "tensor \"t\""},
		{"trailing text", raw(`{} {}`, ""), "after the header's JSON"},
		{"not UTF-8", raw("{\"\xff\":{}}", ""), "UTF-8"},
		{"missing field", raw(`{"t":{"dtype":"F32","shape":[]}}`, ""), "lacks"},
		{"unknown type", raw(one("F6_E2M3", "[1]", "[0,1]"), "x"), `"F6_E2M3"`},
		{"fractional size", raw(one("U8", "[1.5]", "[0,1]"), "x"), "not a 64-bit integer"},
		{"null size", raw(one("U8", "[null]", "[0,0]"), ""), "not a 64-bit integer"},
		{"negative size", raw(one("U8", "[-1]", "[0,1]"), "x"), "shape [-1]"},
		{"overflow", raw(one("F32", "[4611686018427387904,4]", "[0,0]"), ""), "shape"},
		{"wrong size", raw(one("F32", "[2]", "[0,4]"), "1234"), "takes 8"},
		{"backwards", raw(one("U8", "[1]", "[1,0]"), "x"), "do not hold"},
		{"three offsets", raw(one("U8", "[1]", "[0,1,2]"), "x"), "3 data_offsets"},
		{"data cut off", raw(one("U8", "[3]", "[0,3]"), "xy"), "after 2 of 3 bytes"},
		{"data of petabytes", raw(one("U8", "[4611686018427387904]", "[0,4611686018427387904]"), "xy"), "after 2 of"},
		{"trailing data", raw(one("U8", "[1]", "[0,1]"), "xy"), "bytes after"},
		{"gap at the start", raw(one("U8", "[1]", "[1,2]"), "xy"), "no tensor covers bytes [0, 1)"},
		{"twice", raw(`{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "xy"), "twice"},
		{"overlap", raw(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, "xyz"), "overlap"},
		{"metadata twice", raw(`{"__metadata__":{},"__metadata__":{}}`, ""), "twice"},
		{"metadata not text", raw(`{"__metadata__":{"a":1}}`, ""), "__metadata__"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := safetensors.Read(bytes.NewReader(tt.in))
			if !errors.Is(err, safetensors.ErrFormat) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want ErrFormat with %q", err, tt.want)
			}
		})
	}
}

func TestReadErrorIsNotFormat(t *testing.T) {
	broken := errors.New("cable pulled")
	_, err := safetensors.Read(io.MultiReader(bytes.NewReader(raw("{", "")[:8]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || errors.Is(err, safetensors.ErrFormat) {
		t.Errorf("got %v, want the reader's error", err)
	}
}

func TestWriteErrors(t *testing.T) {
	tests := []struct {
		name string
		ts   []safetensors.Tensor
		want string
	}{
		{"repeated", []safetensors.Tensor{{Name: "a", DType: dtype.U8, Data: []byte{1}}, {Name: "a", DType: dtype.U8, Data: []byte{1}}}, "two tensors"},
		{"reserved", []safetensors.Tensor{{Name: "__metadata__", DType: dtype.U8, Data: []byte{1}}}, "metadata"},
		{"size", []safetensors.Tensor{{Name: "a", DType: dtype.F32, Data: []byte{1}}}, "takes 4"},
		{"type", []safetensors.Tensor{{Name: "a"}}, "invalid"},
		{"shape", []safetensors.Tensor{{Name: "a", DType: dtype.U8, Shape: []int64{-2}}}, "[-2]"},
		{"name", []safetensors.Tensor{{Name: "\xff", DType: dtype.U8, Data: []byte{1}}}, "UTF-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			err := safetensors.Write(&b, &safetensors.File{Tensors: tt.ts})
			if !errors.Is(err, safetensors.ErrFormat) || !strings.Contains(err.Error(), tt.want) || b.Len() > 0 {
				t.Errorf("got %v after %d bytes, want ErrFormat with %q before any", err, b.Len(), tt.want)
			}
		})
	}
}

// TestVectors reads files that another implementation wrote.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../../testdata/vectors/*.safetensors")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test vectors (%v)", err)
	}
	for _, path := range files {
		f, err := safetensors.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		copied := filepath.Join(t.TempDir(), "copy")
		if err := safetensors.WriteFile(copied, f); err != nil {
			t.Error(err)
			continue
		}
		again, err := safetensors.ReadFile(copied)
		if err != nil {
			t.Error(err)
			continue
		}
		if d := cmp.Diff(f, again); d != "" {
			t.Errorf("%s (-read +rewritten):\n%s", path, d)
		}
	}
}

func TestFileErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no", "file")
	if _, err := safetensors.ReadFile(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFile: %v", err)
	}
	if err := safetensors.WriteFile(missing, sample()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("WriteFile: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := safetensors.Write(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(raw("{}", ""))
	f.Add(raw(`{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		file, err := safetensors.Read(bytes.NewReader(in))
		if err != nil {
			if !errors.Is(err, safetensors.ErrFormat) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		var out bytes.Buffer
		if err := safetensors.Write(&out, file); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := safetensors.Read(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if d := cmp.Diff(file, again); d != "" {
			t.Fatalf("changed (-first +second):\n%s", d)
		}
	})
}
