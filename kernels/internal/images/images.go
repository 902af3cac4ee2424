// Package images builds the device images of package kernels: clang turns the
// sources into PTX, ptxas turns that PTX into machine code, and the manifest
// records what came from what. The same code serves the generator and the test
// that looks for drift.
package images

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/seed-ee968945/concert/kernels"
)

// Clang is the pinned compiler's command.
const Clang = "clang-19"

// Flags are the compiler's, without architecture and file names. No CUDA headers
// and no device library take part. Without lifetime markers there is nothing to clean
// up where a scope with variables is left: else every return, break and continue from
// such a scope sets a number that is branched on again behind it, which stays, because
// jumps are not threaded on devices whose threads part.
var Flags = []string{"-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-feature=+ptx80",
	"-O3", "-fno-exceptions", "-Xclang", "-disable-lifetime-markers", "-fno-verbose-asm", "-Wall", "-Wextra", "-Werror", "-S"}

// hopper lists the sources that need sm_90, and whether they use what no later
// architecture has (sm_90a).
var hopper = map[string]bool{"bench_bulk": false, "allgather_multicast": false, "allreduce_multicast": false,
	"matmul_bf16": true, "matmul_f16": true, "matmul_bf16_gather": true, "matmul_f16_gather": true,
	"matmul_bf16_scatter": true, "matmul_f16_scatter": true}

// isa lists the sources that need a later PTX ISA than Flags ask for: multimem came with
// 8.1, its sums of narrow floats in f32 with 8.2. No other source may get it, so that any
// driver that takes 8.0 loads all that is on by default.
var isa = map[string]int{"allgather_multicast": 81, "allreduce_multicast": 82}

// flagsOf is Flags for one source.
func flagsOf(name string) []string {
	out := append([]string{}, Flags...)
	if v := isa[name]; v != 0 {
		out[slices.Index(out, "--cuda-feature=+ptx80")] = fmt.Sprintf("--cuda-feature=+ptx%d", v)
	}
	return out
}

// Arch gives the architecture that a source is compiled for. Later ones run its PTX, and
// machine code that ptxas makes of it for one is the same as if it had been compiled for that.
func Arch(name string) int {
	if _, ok := hopper[name]; ok {
		return 90
	}
	return 80
}

// target names an architecture as the tools do.
func target(arch int, only bool) string {
	if only {
		return fmt.Sprintf("sm_%da", arch)
	}
	return fmt.Sprintf("sm_%d", arch)
}

// The names of an image's files.
func ptxFile(im *kernels.Image) string { return fmt.Sprintf("%s.sm_%d.ptx.gz", im.Name, im.Arch) }
func cubinFile(im *kernels.Image) string {
	return fmt.Sprintf("%s.sm_%d.cubin.gz", im.Name, kernels.CubinArch)
}

// Version runs the compiler and gives the first line of its version.
func Version(tool string) (string, error) {
	out, err := exec.Command(tool, "--version").Output()
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line, nil
}

// PTX compiles one source of folder src.
func PTX(clang, src, name string) ([]byte, error) {
	args := append(flagsOf(name), "--cuda-gpu-arch="+target(Arch(name), hopper[name]), "-o", "-", name+".cu")
	cmd := exec.Command(clang, args...)
	cmd.Dir = src
	var errText bytes.Buffer
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, errText.String())
	}
	return out, nil
}

// Sources lists the .cu files of src without their extension, and the hashes of all files.
func Sources(src string) (names []string, hashes map[string]string, err error) {
	entries, err := os.ReadDir(src)
	if err != nil {
		return nil, nil, err
	}
	hashes = map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(src, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		hashes[e.Name()] = kernels.Hash(b)
		if name, ok := strings.CutSuffix(e.Name(), ".cu"); ok {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, hashes, nil
}

type manifest struct{ *kernels.Manifest }

var entryOf = regexp.MustCompile(`\.visible \.entry (\w+)`)

// keepResources carries over what ptxas said of the kernels in ptx.
func (m *manifest) keepResources(old *kernels.Manifest, ptx []byte) {
	if m.Resources == nil {
		m.Resources = map[string]kernels.Resource{}
	}
	for _, g := range entryOf.FindAllSubmatch(ptx, -1) {
		if r, ok := old.Resources[string(g[1])]; ok {
			m.Resources[string(g[1])] = r
		}
	}
}

// Compile rebuilds all PTX and the manifest. Machine code that no longer belongs
// to its PTX is removed.
func Compile(dir, clang string) error {
	old, err := readManifest(dir)
	if err != nil {
		return err
	}
	names, hashes, err := Sources(filepath.Join(dir, "src"))
	if err != nil {
		return err
	}
	m := &manifest{&kernels.Manifest{Flags: Flags, Sources: hashes}}
	if m.Clang, err = Version(clang); err != nil {
		return err
	}
	out := filepath.Join(dir, "images")
	keep := map[string]bool{"manifest.json": true}
	for _, name := range names {
		ptx, err := PTX(clang, filepath.Join(dir, "src"), name)
		if err != nil {
			return err
		}
		im := kernels.Image{Name: name, Arch: Arch(name), Only: hopper[name], ISA: isa[name], PTX: kernels.Hash(ptx)}
		file := ptxFile(&im)
		if err := writeGzip(filepath.Join(out, file), ptx); err != nil {
			return err
		}
		keep[file] = true
		for _, o := range old.Images {
			if o.Name == name && o.PTX == im.PTX && o.Cubin != "" {
				im.Cubin = o.Cubin
				keep[cubinFile(&im)] = true
				m.Ptxas = old.Ptxas
				m.keepResources(old, ptx)
			}
		}
		m.Images = append(m.Images, im)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			if err := os.Remove(filepath.Join(out, e.Name())); err != nil {
				return err
			}
		}
	}
	return writeManifest(dir, m.Manifest)
}

// Assemble turns the checked-in PTX into machine code of sm_90 and records the
// tool and each kernel's resources.
func Assemble(dir, ptxas string) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	out, err := exec.Command(ptxas, "--version").Output()
	if err != nil {
		return err
	}
	m.Ptxas = lastLine(out)
	m.Resources = map[string]kernels.Resource{}
	logs, errs := make([]string, len(m.Images)), make([]error, len(m.Images))
	var wg sync.WaitGroup
	for i := range m.Images {
		wg.Go(func() { logs[i], errs[i] = assembleImage(dir, ptxas, &m.Images[i]) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, log := range logs {
		for k, r := range ParseResources(log) {
			m.Resources[k] = r
		}
	}
	return writeManifest(dir, m)
}

// assembleImage writes the machine code of one image, sets its hash, and gives what
// ptxas said.
func assembleImage(dir, ptxas string, im *kernels.Image) (log string, err error) {
	ptx, err := readGzip(filepath.Join(dir, "images", ptxFile(im)))
	if err != nil {
		return "", err
	}
	cubin, log, err := assemble(ptxas, ptx, target(kernels.CubinArch, im.Only))
	if err != nil {
		return "", fmt.Errorf("%s: %w", im.Name, err)
	}
	im.Cubin = kernels.Hash(cubin)
	return log, writeGzip(filepath.Join(dir, "images", cubinFile(im)), cubin)
}

func assemble(ptxas string, ptx []byte, target string) (cubin []byte, log string, err error) {
	tmp, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(tmp)
	in, out := filepath.Join(tmp, "in.ptx"), filepath.Join(tmp, "out.cubin")
	if err := os.WriteFile(in, ptx, 0o600); err != nil {
		return nil, "", err
	}
	b, err := exec.Command(ptxas, "-v", "-O3", "-arch="+target, "-o", out, in).CombinedOutput()
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s", err, b)
	}
	cubin, err = os.ReadFile(out)
	return cubin, string(b), err
}

func readManifest(dir string) (*kernels.Manifest, error) {
	m := &kernels.Manifest{}
	b, err := os.ReadFile(filepath.Join(dir, "images", "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	return m, json.Unmarshal(b, m)
}

func writeManifest(dir string, m *kernels.Manifest) error {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "images", "manifest.json"), append(b, '\n'), 0o644)
}

func readGzip(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func writeGzip(name string, b []byte) error {
	if old, err := readGzip(name); err == nil && bytes.Equal(old, b) {
		return nil
	}
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(b); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, buf.Bytes(), 0o644)
}
