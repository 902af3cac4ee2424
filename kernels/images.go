// Package kernels holds concert's device code: one algorithm per file under src,
// compiled by clang to PTX and by ptxas to machine code, both checked in and
// embedded, with a manifest of hashes; and the planner that picks a
// kernel, a grid and arguments for a collective. It needs no driver and no cgo.
package kernels

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
)

//go:embed images
var files embed.FS

// CubinArch is the architecture of all machine code.
const CubinArch = 90

// Image is one compiled source file.
type Image struct {
	Name  string // source file without .cu
	Arch  int    // the first that the PTX is for, 80 or 90
	Only  bool   `json:",omitempty"` // it runs on devices of exactly Arch (sm_90a)
	ISA   int    `json:",omitempty"` // of PTX times ten where Manifest.Flags ask for less
	PTX   string // SHA-256 of the PTX text
	Cubin string `json:",omitempty"` // SHA-256 of the machine code that ptxas made of it, if there is any
}

// Manifest binds sources, flags, tools and images.
type Manifest struct {
	Clang   string            // version that made the PTX
	Flags   []string          // without architecture and file names
	Ptxas   string            `json:",omitempty"` // version that made the machine code
	Sources map[string]string // file under src to SHA-256
	Images  []Image
	// Resources lists, for each kernel of the machine code, registers and spilled bytes.
	Resources map[string]Resource `json:",omitempty"`
}

// Resource is what ptxas reported for one kernel.
type Resource struct{ Registers, SpillBytes, StackBytes int }

// ReadManifest reads the embedded manifest.
func ReadManifest() (*Manifest, error) {
	b, err := files.ReadFile("images/manifest.json")
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return &m, nil
}

// Find gives the image of name if a device of compute capability cc (major*10 + minor)
// can run it, else an error.
func (m *Manifest) Find(name string, cc int) (Image, error) {
	for _, im := range m.Images {
		if im.Name == name && im.Arch <= cc && (im.Arch == cc || !im.Only) {
			return im, nil
		}
	}
	return Image{}, fmt.Errorf("no image %s for compute capability %d.%d", name, cc/10, cc%10)
}

// Names lists the images' names in order.
func (m *Manifest) Names() []string {
	var out []string
	for _, im := range m.Images {
		out = append(out, im.Name)
	}
	sort.Strings(out)
	return out
}

// UsesMulticast reports whether an image holds kernels that use multicast, which nothing loads
// unless it is asked for (symm.WorldOptions.Multicast). They need sm_90 and never ran. They
// may do without machine code: where they were made there was no ptxas to assemble them.
func UsesMulticast(image string) bool { return strings.HasSuffix(image, "_multicast") }

// IsMatmul reports whether an image holds matmuls, which worlds do not load: the library that
// launches them does (cuda/wgmma).
func IsMatmul(image string) bool { return strings.HasPrefix(image, "matmul_") }

// Load gives the bytes to load on a device: the machine code when the image has
// it for exactly this capability, else the PTX. ptx asks for the PTX in any case.
// The bytes are checked against the manifest, and shared: do not change them.
func (im Image) Load(cc int, ptx bool) ([]byte, error) {
	if im.Cubin != "" && cc == CubinArch && !ptx {
		return im.file(CubinArch, "cubin", im.Cubin)
	}
	return im.file(im.Arch, "ptx", im.PTX)
}

// unpacked has the embedded files that were read, by name and hash: every world asks for
// them, and they never change. The values are func() ([]byte, error).
var unpacked sync.Map

func (im Image) file(arch int, ext, want string) ([]byte, error) {
	name := fmt.Sprintf("images/%s.sm_%d.%s.gz", im.Name, arch, ext)
	read, ok := unpacked.Load(name + want)
	if !ok {
		read, _ = unpacked.LoadOrStore(name+want, sync.OnceValues(func() ([]byte, error) { return unpack(name, want) }))
	}
	return read.(func() ([]byte, error))()
}

func unpack(name, want string) ([]byte, error) {
	b, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if got := Hash(out); got != want {
		return nil, fmt.Errorf("%s: SHA-256 %s, the manifest has %s: run go generate ./kernels", name, got, want)
	}
	return out, nil
}

// Set gives images out. It may be used from several goroutines.
type Set struct {
	Manifest *Manifest
	mu       sync.Mutex
	replaced map[string][]byte
}

// Replace makes the set give out b, PTX or machine code, for every capability in
// place of an embedded image: to compare compilers. Nothing checks b.
func (s *Set) Replace(name string, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replaced == nil {
		s.replaced = map[string][]byte{}
	}
	s.replaced[name] = b
}

// NewSet reads the embedded manifest.
func NewSet() (*Set, error) {
	m, err := ReadManifest()
	if err != nil {
		return nil, err
	}
	return &Set{Manifest: m}, nil
}

// Image finds and loads the image of name for capability cc; see Manifest.Find and
// Image.Load. The bytes are shared: do not change them.
func (s *Set) Image(name string, cc int, ptx bool) ([]byte, error) {
	im, err := s.Manifest.Find(name, cc)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.replaced[name]; ok {
		return b, nil
	}
	return im.Load(cc, ptx)
}

// Hash is the SHA-256 of b in hexadecimal.
func Hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

//go:generate go run ./gen
