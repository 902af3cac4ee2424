package fx

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// The values of Node.Kind.
const (
	KindInput      = "input"
	KindOutput     = "output"
	KindCollective = "collective"
	KindWait       = "wait"
	KindView       = "view"
	KindCompute    = "compute"
	KindMemory     = "memory"
	KindSize       = "size" // a number that is known at run time only
)

// File is a graph file: the document as it was written, parsed but not checked.
type File struct {
	Name    string   // the graph's own name, such as tiny_fsdp2.fw
	World   int      // number of ranks
	Groups  []Group  // process groups in document order
	Symbols []Symbol // sizes known at run time only, in document order
	Checks  []string // sizes that must not be negative, as texts
	Nodes   []Node   // in program order

	label string      // what errors call the file
	top   []topMember // the document's members in order
}

// topMember is a member of the document object; raw is nil for nodes.
type topMember struct {
	key string
	raw []byte
}

// Group is a process group: rank lists of equal length that partition the world.
type Group struct {
	Name  string
	Ranks [][]int
}

// Tensor is one result of a node. Strides count elements. Where a size is known at run time
// only, Dims stands for Shape, and where a stride is, Steps for Stride.
type Tensor struct {
	Shape  []int64
	Stride []int64
	DType  string // as PyTorch spells it, such as bfloat16
	Dims   ir.Shape
	Steps  ir.Shape
}

// Node is one traced node with the fields of the file.
type Node struct {
	Name    string
	Kind    string
	Target  string   // operator, such as aten.mm.default
	Inputs  []string // names of the nodes it reads, each once
	Args    string   // Python text: a tuple
	Kwargs  string   // Python text: a dict, or empty
	Out     []Tensor // its tensor results
	Ms      float64  // cost in milliseconds
	NoMs    bool     // the cost is not known, and the field absent
	Op      string   // of a collective: all_gather, ...
	Group   string   // of a collective
	Reduce  string   // of a collective that reduces
	Role    string   // of an input
	From    string   // of a backward input: the forward value that feeds it
	Members []string // of a bucket: the traced collectives it stands for
	Size    string   // of a size: an expression over the symbols
	Updates []string // of the output: the inputs whose new values its entries are, "" for none
	Loc     string   // where it stands in its author's source, for errors and warnings

	raw []byte // the node's JSON as it was read, nil if built in Go
}

// Limits of what Read accepts; they bound memory on hostile input and lie far
// beyond real graphs.
const (
	maxBytes  = 256 << 20 // of a document, unpacked
	maxRatio  = 50        // unpacked bytes for each packed one, beyond freeBytes; traced graphs have 20
	freeBytes = 16 << 20
	maxWorld  = ir.MaxWorld
	maxGroups = 1 << 12
)

// ReadFile reads a graph file; see Read. The error is that of opening the file, or Read's.
func ReadFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(filepath.Base(path), f)
}

// Read reads a graph document, plain or packed by gzip. name is what errors call
// it. It checks the document's form; Import checks what it means. The error is
// an *Error unless reading itself failed. Time and memory are linear in the size
// of the unpacked document, which may hold at most 256 MiB and, beyond 16 MiB, 50 times
// the bytes that it is packed in.
func Read(name string, r io.Reader) (*File, error) { return read(name, r, maxBytes) }

func read(name string, r io.Reader, limit int64) (*File, error) {
	packed := &byteReader{r: r}
	b := bufio.NewReader(packed)
	if magic, _ := b.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%s: damaged gzip header: %w", name, err)
		}
		defer z.Close()
		r = &unpacked{z, packed, 0}
	} else {
		r = b
	}
	var doc bytes.Buffer
	n, err := doc.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%s: the gzip data ends too early, after %d bytes of text: %w", name, n, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case n > limit:
		return nil, fmt.Errorf("%s: the document is larger than %d bytes", name, limit)
	}
	return parseFile(name, doc.Bytes())
}

// errInflated refuses data that would take far more memory than it looks.
var errInflated = fmt.Errorf("the gzip data unpacks to more than %d times its size, which no graph does", maxRatio)

// byteReader counts what is read.
type byteReader struct {
	r io.Reader
	n int64
}

func (c *byteReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// unpacked is the text of a packed document, as long as it is no bomb.
type unpacked struct {
	z      io.Reader
	packed *byteReader
	n      int64
}

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	if u.n += int64(n); u.n > freeBytes+maxRatio*u.packed.n {
		return 0, errInflated
	}
	return n, err
}

// parseFile reads a document; the file keeps slices of doc.
func parseFile(label string, doc []byte) (*File, error) {
	f := &File{label: label}
	s := &scanner{label: label, b: doc, intern: map[string]string{}}
	seen := map[string]bool{}
	s.object("a graph document", func(key string) {
		s.peek()
		start := s.i
		s.field = key
		seen[key] = true
		switch key {
		case "name":
			f.Name = s.str()
		case "world":
			n := s.int64("a number of ranks")
			if s.err == nil && (n < 1 || n > maxWorld) {
				s.failf("%d ranks are outside 1..%d", n, maxWorld)
			}
			f.World = int(n)
		case "groups":
			s.groups(f)
		case "symbols":
			s.symbols(f)
		case "checks":
			f.Checks = s.names()
		case "nodes":
			s.array("the list of nodes", func(i int) {
				s.node, s.field = fmt.Sprintf("#%d", i), ""
				f.Nodes = append(f.Nodes, s.readNode())
				s.node, s.field = "", ""
			})
		default:
			s.skip()
		}
		m := topMember{key: key}
		if key != "nodes" && s.err == nil {
			m.raw = doc[start:s.i]
		}
		f.top = append(f.top, m)
	})
	s.field = ""
	if s.peek() != 0 || s.err == nil && s.i < len(doc) {
		s.syntax("unexpected %s after the document", s.found())
	}
	for _, key := range []string{"name", "world", "groups", "nodes"} {
		if !seen[key] {
			s.failf("the document has no member %q", key)
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	return f, nil
}

func (s *scanner) groups(f *File) {
	s.object("the groups", func(name string) {
		g := Group{Name: name}
		s.array("a list of subgroups", func(int) {
			sub := []int{}
			s.array("a list of ranks", func(int) {
				r := s.int64("a rank")
				if s.err == nil && (r < 0 || r >= maxWorld) {
					s.failf("rank %d of group %q is outside the world", r, pytext.Clip(name))
				}
				sub = append(sub, int(r))
			})
			g.Ranks = append(g.Ranks, sub)
		})
		f.Groups = append(f.Groups, g)
		if s.err == nil && len(f.Groups) > maxGroups {
			s.failf("more than %d groups", maxGroups)
		}
	})
}

// readNode reads one node. Unknown fields are kept in raw only.
func (s *scanner) readNode() Node {
	s.peek()
	start := s.i
	n := Node{NoMs: true}
	var has [6]bool
	required := [6]string{"name", "kind", "target", "inputs", "args", "out"}
	s.object("a node", func(key string) {
		for i, r := range required {
			has[i] = has[i] || r == key
		}
		s.field = key
		switch key {
		case "name":
			n.Name = s.str()
			s.node = n.Name
		case "kind":
			n.Kind = s.str()
		case "target":
			n.Target = s.str()
		case "inputs":
			n.Inputs = s.names()
		case "args":
			n.Args = s.str()
		case "kwargs":
			n.Kwargs = s.optional()
		case "out":
			s.array("a list of results", func(int) { n.Out = append(n.Out, s.tensor()) })
		case "ms":
			if n.Ms, n.NoMs = s.float("a cost"), false; n.Ms < 0 {
				s.failf("cost %g is negative", n.Ms)
			}
		case "op":
			n.Op = s.optional()
		case "group":
			n.Group = s.optional()
		case "reduce":
			n.Reduce = s.optional()
		case "role":
			n.Role = s.optional()
		case "from":
			n.From = s.optional()
		case "members":
			n.Members = s.names()
		case "updates":
			n.Updates = s.names()
		case "size":
			n.Size = s.optional()
		case "loc":
			n.Loc = s.optional()
		default:
			s.skip()
		}
		s.field = ""
	})
	if s.err != nil {
		return n
	}
	for i, r := range required {
		if !has[i] {
			s.failf("the node has no field %q", r)
		}
	}
	switch n.Kind {
	case KindInput, KindOutput, KindCollective, KindWait, KindView, KindCompute, KindMemory, KindSize:
	default:
		s.field = "kind"
		s.failf("%q is not a kind; have input output collective wait view compute memory size", pytext.Clip(n.Kind))
	}
	if n.Name == "" {
		s.field = "name"
		s.failf("the name is empty")
	}
	n.raw = s.b[start:s.i]
	return n
}

func (s *scanner) names() []string {
	out := []string{}
	s.array("a list of names", func(int) { out = append(out, s.str()) })
	return out
}

func (s *scanner) tensor() Tensor {
	var t Tensor
	has := 0
	s.object("a tensor", func(key string) {
		switch key {
		case "shape":
			t.Shape, t.Dims = s.dims("a shape")
			has |= 1
		case "stride":
			t.Stride, t.Steps = s.dims("a list of strides")
			has |= 2
		case "dtype":
			t.DType = strings.TrimPrefix(s.str(), "torch.")
			has |= 4
		default:
			s.skip()
		}
	})
	switch {
	case s.err != nil:
	case has != 7:
		s.failf("a result needs shape, stride and dtype")
	case t.rank() > traced.MaxRank:
		s.failf("a result has %d dimensions, more than %d", t.rank(), traced.MaxRank)
	case t.rank() != len(t.Stride)+len(t.Steps):
		s.failf("a result has %d dimensions and %d strides", t.rank(), len(t.Stride)+len(t.Steps))
	}
	return t
}
