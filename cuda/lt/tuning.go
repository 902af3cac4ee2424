package lt

import (
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

// Get finds the algorithm of a problem. A nil Tuning has none.
func (t *Tuning) Get(p Problem) (Algo, bool) {
	if t == nil {
		return Algo{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	a, ok := t.algos[p.String()]
	return a, ok
}

// Set records the algorithm of a problem.
func (t *Tuning) Set(p Problem, a Algo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.algos == nil {
		t.algos = map[string]Algo{}
	}
	t.algos[p.String()] = a
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
