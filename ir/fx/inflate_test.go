package fx

import (
	"bytes"
	"compress/gzip"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// pack packs a document.
func pack(t *testing.T, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if _, err := z.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A small file that unpacks to a large one is refused before it takes memory.
func TestBomb(t *testing.T) {
	blanks := make([]string, 200)
	for i := range blanks {
		blanks[i] = strings.Repeat(" ", 1<<20)
	}
	data := pack(t, blanks...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read("bomb.json.gz", bytes.NewReader(data))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errInflated) || !strings.HasPrefix(err.Error(), "bomb.json.gz: the gzip data unpacks to more than 50 times its size") {
		t.Fatalf("%d bytes that unpack to %d MiB: %v", len(data), len(blanks), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 128<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
}

// A document that is well packed, as many equal nodes are, is read.
func TestWellPacked(t *testing.T) {
	doc := `{"name":"x","world":1,"groups":{},` + strings.Repeat(" ", 4<<20) + `"nodes":[]}`
	if _, err := Read("x.json.gz", bytes.NewReader(pack(t, doc))); err != nil {
		t.Error(err)
	}
}
