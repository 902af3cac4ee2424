package fx

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// WriteTo writes the document as compact JSON. Nodes that were read are written
// byte for byte as they were; output is deterministic.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	c := &counter{w: w}
	b := bufio.NewWriterSize(c, 1<<16)
	f.write(b, func(i int) []byte { return f.Nodes[i].appendJSON(nil) }, len(f.Nodes))
	err := b.Flush()
	return c.n, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// write writes the document with other nodes: node gives the JSON of each of
// count nodes. Errors stay in b until its Flush.
func (f *File) write(b *bufio.Writer, node func(i int) []byte, count int) {
	top := f.top
	if top == nil {
		top = []topMember{{key: "name", raw: appendString(nil, f.Name)}, {key: "world", raw: strconv.AppendInt(nil, int64(f.World), 10)},
			{key: "groups", raw: appendGroups(nil, f.Groups)}, {key: "nodes"}}
	}
	b.WriteByte('{')
	for k, m := range top {
		if k > 0 {
			b.WriteByte(',')
		}
		b.Write(appendString(nil, m.key))
		b.WriteByte(':')
		if m.key != "nodes" {
			b.Write(m.raw)
			continue
		}
		b.WriteByte('[')
		for i := range count {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(node(i))
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
}

func appendGroups(b []byte, groups []Group) []byte {
	b = append(b, '{')
	for i, g := range groups {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, g.Name), ":["...)
		for j, sub := range g.Ranks {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendList(b, sub, func(b []byte, r int) []byte { return strconv.AppendInt(b, int64(r), 10) })
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendList[T any](b []byte, xs []T, one func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, x := range xs {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, x)
	}
	return append(b, ']')
}

// appendJSON appends the node as it was read, or its fields in the order that
// the traced graphs use.
func (n *Node) appendJSON(b []byte) []byte {
	if n.raw != nil {
		return append(b, n.raw...)
	}
	text := func(key, val string) {
		b = appendString(append(append(append(b, '"'), key...), `":`...), val)
		b = append(b, ',')
	}
	b = append(b, '{')
	text("name", n.Name)
	text("kind", n.Kind)
	text("target", n.Target)
	b = appendList(append(b, `"inputs":`...), n.Inputs, appendString)
	b = append(b, ',')
	text("args", n.Args)
	text("kwargs", n.Kwargs)
	b = appendList(append(b, `"out":`...), n.Out, appendTensor)
	b = append(b, ',')
	if !n.NoMs {
		b = append(pytext.AppendFloat(append(b, `"ms":`...), n.Ms), ',')
	}
	for _, f := range [][2]string{{"group", n.Group}, {"op", n.Op}, {"reduce", n.Reduce}, {"from", n.From}, {"role", n.Role}, {"size", n.Size}} {
		if f[1] != "" {
			text(f[0], f[1])
		}
	}
	for _, f := range []struct {
		key   string
		names []string
	}{{"members", n.Members}, {"updates", n.Updates}} {
		if len(f.names) > 0 {
			b = append(appendString(b, f.key), ':')
			b = append(appendList(b, f.names, appendString), ',')
		}
	}
	b[len(b)-1] = '}'
	return b
}

func appendTensor(b []byte, t Tensor) []byte {
	sizes := func(b []byte, ns []int64, ds ir.Shape) []byte {
		if ds == nil {
			return appendList(b, ns, func(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) })
		}
		return appendList(b, ds, func(b []byte, d ir.Dim) []byte {
			if n, ok := d.Const(); ok {
				return strconv.AppendInt(b, n, 10)
			}
			return appendString(b, d.String())
		})
	}
	b = sizes(append(b, `{"shape":`...), t.Shape, t.Dims)
	b = sizes(append(b, `,"stride":`...), t.Stride, t.Steps)
	return append(appendString(append(b, `,"dtype":`...), t.DType), '}')
}

func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	s = strings.ToValidUTF8(s, "\uFFFD") // a file built in Go may hold anything
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
