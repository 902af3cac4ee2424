package program

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/dim"
)

// CostKey names what an instruction costs: instructions of one key do the same work
// on operands of the same types and layouts, in whatever program and wherever their
// buffers are. It is what a table of measured costs is looked up by. Events and brackets have the
// empty key. Symbolic sizes count at their hints.
//
// The text is the operation, a collective's group size, the attributes, and the
// operands and results with their strides where they have gaps:
//
//	matmul bf16[16,4096] bf16[4096,1024:1,4096] -> bf16[16,1024]
//	all_reduce@4 {reduce="sum"} bf16[16,4096] -> bf16[16,4096]
//	fused(mul,add) 3f9c1b2a77d01e44 f32[8] f32[8] -> f32[8]
//
// For a fused launch the number is a digest of the kernel, names and comments apart.
func (p *Program) CostKey(in *Instr) string {
	var b strings.Builder
	switch in.Kind {
	case Record, Wait, Loop, Test, Case, Branch, End:
		return ""
	case Copy:
		b.WriteString("copy")
	default:
		b.WriteString(in.Op)
	}
	attrs := in.Attrs
	if k := p.Kernel(in); k != nil {
		attrs = attrs.Without(KernelKey).Without(SizesKey)
		fmt.Fprintf(&b, "(%s) %s", k.ops(), k.normalizedSource())
	}
	if in.Group >= 0 && in.Group < len(p.Groups) {
		fmt.Fprintf(&b, "@%d", p.Groups[in.Group].Size())
	}
	if len(attrs) > 0 {
		b.WriteByte(' ')
		b.WriteString(attrs.String())
	}
	for i := range in.Ins {
		b.WriteByte(' ')
		p.costTensor(&b, &in.Ins[i])
	}
	b.WriteString(" ->")
	for i := range in.Outs {
		b.WriteByte(' ')
		p.costTensor(&b, &in.Outs[i])
	}
	return b.String()
}

// ops lists a kernel's operations, the first few by name.
func (k *Kernel) ops() string {
	const most = 4
	var names []string
	for i := range k.Body {
		if i == most {
			names = append(names, fmt.Sprintf("+%d", len(k.Body)-most))
			break
		}
		names = append(names, k.Body[i].Op)
	}
	return strings.Join(names, ",")
}

var sourceComments = regexp.MustCompile(`//[^\n]*|/\*.*?\*/`)

// normalizedSource is equal for kernels that do the same: it leaves out names and comments.
func (k *Kernel) normalizedSource() string {
	text := strings.ReplaceAll(sourceComments.ReplaceAllString(k.Source, ""), " "+k.Name+"(", " (")
	if k.Source == "" {
		like := Kernel{Name: "k", Sizes: k.Sizes, Body: append([]BodyStep(nil), k.Body...)}
		for i := range like.Body {
			like.Body[i].Node = ""
		}
		text = (&Program{Kernels: []Kernel{like}}).String()
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%d %d %d\n%s", k.Grid, k.Block, k.Shared, text))
	return hex.EncodeToString(h[:8])
}

// costTensor writes a tensor's type and, if it has gaps or is transposed, strides.
func (p *Program) costTensor(b *strings.Builder, t *Tensor) {
	fmt.Fprintf(b, "%v[", t.DType)
	dense, run := true, int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		n := p.Hint(t.Shape[i])
		dense = dense && (t.Strides == nil || p.Hint(t.Strides[i]) == run || n == 1)
		run *= n
	}
	for i, d := range t.Shape {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(b, p.Hint(d))
	}
	for i, s := range t.Strides {
		if dense {
			break
		}
		b.WriteString(":,"[min(i, 1) : min(i, 1)+1])
		fmt.Fprint(b, p.Hint(s))
	}
	b.WriteByte(']')
}

// Hint evaluates a dimension with every symbol at its hint, 0 if it cannot.
func (p *Program) Hint(d dim.Dim) int64 {
	n, _ := d.Eval(func(name string) (int64, bool) {
		i := slices.IndexFunc(p.Symbols, func(s Symbol) bool { return s.Name == name })
		if i < 0 {
			return 0, false
		}
		return p.Symbols[i].Hint, true
	})
	return n
}
