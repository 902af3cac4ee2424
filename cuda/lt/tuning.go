package lt

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// tuningFormat is the version of the file's form.
const tuningFormat = 1

// Tuning maps problems to the algorithms that were fastest on one kind of GPU with
// one version of the library. The zero value is empty and fits any. It is safe for
// concurrent use.
type Tuning struct {
	mu      sync.RWMutex
	gpu     string
	library uint64
	algos   map[string]Algo
}

// NewTuning is an empty tuning for a GPU, by its name, and a version of cuBLASLt.
func NewTuning(gpu string, library uint64) *Tuning { return &Tuning{gpu: gpu, library: library} }

// Get finds the algorithm of a problem. A nil Tuning has none. An algorithm that was
// recorded for operands aligned to 256 bytes serves for 16 too, more than which none
// needs.
func (t *Tuning) Get(p Problem) (Algo, bool) {
	return t.get(func(known bool) string {
		q := p.aligned(known)
		return q.String()
	})
}

// aligned is the problem with operands aligned to 256 bytes if they are to 16.
func (p Problem) aligned(do bool) Problem {
	for _, m := range []*Matrix{&p.X, &p.Y, &p.D} {
		if do && m.Align >= 16 {
			m.Align = maxAlign
		}
	}
	return p
}

func (t *Tuning) get(key func(aligned bool) string) (Algo, bool) {
	if t == nil {
		return Algo{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	a, ok := t.algos[key(false)]
	if !ok {
		a, ok = t.algos[key(true)]
	}
	return a, ok
}

// Set records the algorithm of a problem.
func (t *Tuning) Set(p Problem, a Algo) { t.set(p.String(), a) }

func (t *Tuning) set(key string, a Algo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.algos == nil {
		t.algos = map[string]Algo{}
	}
	t.algos[key] = a
}

// Len is the number of problems.
func (t *Tuning) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.algos)
}

// Fits reports whether the tuning was made for this GPU and this library.
func (t *Tuning) Fits(gpu string, library uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.gpu == gpu && t.library == library || t.gpu == "" && t.library == 0
}

// Digest tells tunings apart: equal content gives an equal digest, also of different
// files. A nil Tuning has the digest of an empty one.
func (t *Tuning) Digest() string {
	if t == nil {
		t = &Tuning{}
	}
	h := sha256.New()
	t.Write(h) // a hash takes everything, and the content has a form in JSON
	return hex.EncodeToString(h.Sum(nil)[:8])
}

//go:embed tunings
var known embed.FS

// Known is the tuning that comes with this package for a GPU, by its name, and a
// version of cuBLASLt; nil if there is none, so that products take the library's first
// suggestion. Only files for that very version are used: numbers of algorithms mean
// something else in another.
func Known(gpu string, library uint64) *Tuning {
	files, err := known.ReadDir("tunings")
	if err != nil {
		return nil
	}
	for _, f := range files {
		b, err := known.ReadFile("tunings/" + f.Name())
		if err != nil {
			continue
		}
		if t, err := ReadTuning(bytes.NewReader(b)); err == nil && t.Fits(gpu, library) {
			return t
		}
	}
	return nil
}

type tuningFile struct {
	Format  int
	GPU     string
	Library uint64
	Algos   map[string]string
}

// Write writes the file: JSON, problems in ascending order, the same bytes for the
// same content.
func (t *Tuning) Write(w io.Writer) error {
	t.mu.RLock()
	f := tuningFile{Format: tuningFormat, GPU: t.gpu, Library: t.library, Algos: map[string]string{}}
	for k, a := range t.algos {
		f.Algos[k] = a.String()
	}
	t.mu.RUnlock()
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ReadTuning reads what Write wrote.
func ReadTuning(r io.Reader) (*Tuning, error) {
	var f tuningFile
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("tuning of products: %w", err)
	}
	if f.Format != tuningFormat {
		return nil, fmt.Errorf("tuning of products: format %d, this version reads %d", f.Format, tuningFormat)
	}
	t := NewTuning(f.GPU, f.Library)
	t.algos = map[string]Algo{}
	for k, text := range f.Algos {
		a, err := ParseAlgo(text)
		if err != nil {
			return nil, fmt.Errorf("tuning of products: %s: %w", k, err)
		}
		t.algos[k] = a
	}
	return t, nil
}
