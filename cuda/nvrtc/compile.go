package nvrtc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrNoCompiler is wrapped by every error of Open.
var ErrNoCompiler = errors.New("no usable CUDA runtime compiler")

// CompileError is source that the compiler refused.
type CompileError struct {
	Name string // of the unit
	Code int    // nvrtcResult
	Text string // the library's words for the code
	Log  string // the compiler's messages but for warnings; lines count from 1 in the source
	// Lines are the source's lines that the messages name, with their numbers, at most
	// a dozen.
	Lines []string
}

// Error names the unit, the first messages and the lines.
func (e *CompileError) Error() string {
	s := fmt.Sprintf("compiling %s: %s (%d)", e.Name, e.Text, e.Code)
	if log := strings.TrimSpace(e.Log); log != "" {
		if len(log) > 4000 {
			log = log[:4000] + " ..."
		}
		s += ":\n" + log
	}
	if len(e.Lines) > 0 {
		s += "\n" + strings.Join(e.Lines, "\n")
	}
	return s
}

// compileError leaves warnings out of the log, messages between blank lines: a program has hundreds
// of them, and its error after them.
func compileError(name, source string, code int, text, log string) *CompileError {
	messages := slices.DeleteFunc(strings.Split(log, "\n\n"), func(m string) bool { return strings.Contains(m, "): warning #") })
	log = strings.Join(messages, "\n\n")
	return &CompileError{Name: name, Code: code, Text: text, Log: log, Lines: linesOf(log, source)}
}

// linesOf picks the lines of the source that messages such as `k.cu(12): error` name.
func linesOf(log, source string) []string {
	src := strings.Split(source, "\n")
	seen := map[int]bool{}
	var out []string
	for _, msg := range strings.Split(log, "\n") {
		_, rest, ok := strings.Cut(msg, "(")
		if !ok {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(rest, "%d)", &n); err != nil || n < 1 || n > len(src) || seen[n] || len(out) == 12 {
			continue
		}
		seen[n] = true
		out = append(out, fmt.Sprintf("%5d | %s", n, src[n-1]))
	}
	return out
}

// backend is the compiler itself; tests have one of their own.
type backend interface {
	version() string
	compile(name, source string, options []string) (image []byte, err error)
}

// Compiler compiles and remembers. It may be used from any goroutine. A process that loads
// programs without end keeps 64 MiB of images in memory, those that were asked for last.
type Compiler struct {
	b    backend
	dir  string
	most int // bytes in memory

	mu    sync.Mutex
	done  map[string]*entry
	bytes int    // of all entries that are made
	clock uint64 // counts calls
}

// mostBytes bounds the images in memory: dozens of programs' kernels, each of which a
// process's ranks ask for one after the other.
const mostBytes = 64 << 20

// entry is an image, or why there is none.
type entry struct {
	once  sync.Once
	image []byte
	err   error

	// Under Compiler.mu.
	used  uint64 // when it was asked for last
	bytes int    // 0 until it is made
}

// size is what an entry counts: its image, and as much as the rest may take, an error's
// messages included.
func (e *entry) size() int { return len(e.image) + 8<<10 }

// DefaultDir is the folder for compiled kernels in the user's cache folder.
func DefaultDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "concert"), nil
}

func newCompiler(b backend, dir string) *Compiler {
	return &Compiler{b: b, dir: dir, most: mostBytes, done: map[string]*entry{}}
}

// Version is the compiler's version, such as "13.0".
func (c *Compiler) Version() string { return c.b.version() }

// Key names the image of a source compiled with these options by this compiler.
func (c *Compiler) Key(source string, options []string) string {
	h := sha256.New()
	for _, s := range append([]string{"concert nvrtc 1", c.b.version(), source}, options...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Arch is the option that makes machine code for a compute capability.
func Arch(major, minor int) string { return fmt.Sprintf("--gpu-architecture=sm_%d%d", major, minor) }

// Compile gives the machine code of a translation unit. options must choose the
// architecture, see Arch; name appears in messages. cached says that nothing had to be
// compiled. A source that is refused is a *CompileError. Of several goroutines that
// ask for the same, one compiles.
func (c *Compiler) Compile(name, source string, options []string) (image []byte, cached bool, err error) {
	key := c.Key(source, options)
	c.mu.Lock()
	e := c.done[key]
	if e == nil {
		e = &entry{}
		c.done[key] = e
	}
	c.clock++
	e.used = c.clock
	c.mu.Unlock()
	cached = true
	e.once.Do(func() {
		if e.image = c.load(key); e.image != nil {
			return
		}
		cached = false
		if e.image, e.err = c.b.compile(name, source, options); e.err == nil {
			c.store(key, e.image)
		}
	})
	c.keep(e)
	return e.image, cached, e.err
}

// keep counts an entry that is made, and forgets those that were asked for longest ago
// while there are too many. O(entries) for each that goes.
func (c *Compiler) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.bytes == 0 {
		e.bytes = e.size()
		c.bytes += e.bytes
	}
	for c.bytes > c.most {
		oldest, least := "", e.used
		for key, o := range c.done {
			if o.bytes > 0 && o.used < least {
				oldest, least = key, o.used
			}
		}
		if oldest == "" {
			return // all others are being made
		}
		c.bytes -= c.done[oldest].bytes
		delete(c.done, oldest)
	}
}

// A file is a line with the SHA-256 of the image, then the image.
const fileHead = "concert-cubin-1 "

func (c *Compiler) file(key string) string { return filepath.Join(c.dir, key[:2], key+".cubin") }

// load reads an image from the folder, nil if there is none that is whole.
func (c *Compiler) load(key string) []byte {
	if c.dir == "" {
		return nil
	}
	b, err := os.ReadFile(c.file(key))
	if err != nil {
		return nil
	}
	head, image, ok := bytes.Cut(b, []byte{'\n'})
	sum := sha256.Sum256(image)
	if !ok || string(head) != fileHead+hex.EncodeToString(sum[:]) || len(image) == 0 {
		return nil
	}
	return image
}

// store writes an image into the folder. A cache that cannot be written is no reason
// to fail: the next process compiles again.
func (c *Compiler) store(key string, image []byte) {
	if c.dir == "" {
		return
	}
	path := c.file(key)
	if os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return
	}
	sum := sha256.Sum256(image)
	_, err = f.Write(append([]byte(fileHead+hex.EncodeToString(sum[:])+"\n"), image...))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
}
