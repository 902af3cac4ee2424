package lt

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/cost/calibration"
)

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
	h := sha256.New()
	m := t.Matmuls()
	fmt.Fprintf(h, "%s %d %q", m.GPU, m.Library, m.Algorithms)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

//go:embed tunings
var known embed.FS

// Known is the tuning that comes with this package for a GPU, by its name, and a
// version of cuBLASLt; nil if there is none, so that matmuls take the library's first
// suggestion. Only files for that very version are used: numbers of algorithms mean
// something else in another.
func Known(gpu string, library uint64) *Tuning {
	files, err := known.ReadDir("tunings")
	if err != nil {
		return nil
	}
	for _, f := range files {
		t, err := readKnown(f.Name())
		if err == nil && t.Fits(gpu, library) {
			return t
		}
	}
	return nil
}

func readKnown(name string) (t *Tuning, err error) {
	b, err := known.ReadFile("tunings/" + name)
	if err != nil {
		return nil, err
	}
	_, err = calibration.Read(name, bytes.NewReader(b), func(f *calibration.File) error {
		t, err = TuningOf(f)
		return err
	})
	return t, err
}

// Matmuls is the tuning as a calibration has it, by problem. A nil Tuning is an empty one.
func (t *Tuning) Matmuls() *calibration.Matmuls {
	if t == nil {
		return &calibration.Matmuls{}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	m := &calibration.Matmuls{GPU: t.gpu, Library: t.library}
	for _, k := range slices.Sorted(maps.Keys(t.algos)) {
		m.Algorithms = append(m.Algorithms, calibration.Algorithm{Problem: k, Algo: t.algos[k].String()})
	}
	return m
}

// TuningOf is what a calibration has of matmuls, nil if nothing. The error is a
// *calibration.ValueError.
func TuningOf(f *calibration.File) (*Tuning, error) {
	if f.Matmuls == nil {
		return nil, nil
	}
	t := NewTuning(f.Matmuls.GPU, f.Matmuls.Library)
	for i, e := range f.Matmuls.Algorithms {
		a, err := ParseAlgo(e.Algo)
		if err != nil {
			return nil, &calibration.ValueError{Path: fmt.Sprintf("matmuls.algorithms.%d.algo", i), Msg: err.Error()}
		}
		t.set(e.Problem, a)
	}
	return t, nil
}
