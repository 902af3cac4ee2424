package program

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/text"
)

// The keys of a unit's and a kernel's lines.
const (
	flagsKey  = "flags"
	sourceKey = "source"
	gridKey   = "grid"
	blocksKey = "blocks"
	blockKey  = "block"
	sharedKey = "shared"
)

// sizePrefix and a number spell a size that a launch gives, see SizeParam.
const sizePrefix = "n"

// appendKernels appends the unit and the kernels; nothing if there are none.
func (p *Program) appendKernels(b []byte) []byte {
	var unit attr.List
	if len(p.Unit.Flags) > 0 {
		unit = unit.With(flagsKey, attr.Strings(p.Unit.Flags...))
	}
	if d := p.Unit.PreludeDigest(); d != "" {
		unit = unit.With(sourceKey, attr.String(d))
	}
	if len(unit) > 0 {
		b = append(unit.AppendText(append(b, "unit "...)), '\n')
	}
	for i := range p.Kernels {
		k := &p.Kernels[i]
		var as attr.List
		if d := k.SourceDigest(); d != "" {
			as = as.With(blockKey, attr.Int(k.Block)).With(gridKey, attr.Int(k.Grid)).With(sharedKey, attr.Int(k.Shared)).With(sourceKey, attr.String(d))
		}
		if _, fixed := k.Blocks.Const(); !fixed {
			as = as.With(blocksKey, attr.String(k.Blocks.String()))
		}
		if k.Sizes > 0 {
			as = as.With(SizesKey, attr.Int(int64(k.Sizes)))
		}
		b = append(append(b, "kernel "...), k.Name...)
		if len(as) > 0 {
			b = as.AppendText(append(b, ' '))
		}
		b = append(b, '\n')
		for j := range k.Body {
			b = append(k.Body[j].appendText(b), '\n')
		}
	}
	return b
}

func (s *BodyStep) appendText(b []byte) []byte {
	b = append(append(append(b, "step "...), s.Op...), " ("...)
	b = append(appendBodyTensors(b, s.Ins), ") -> ("...)
	b = append(appendBodyTensors(b, s.Outs), ')')
	if len(s.Attrs) > 0 {
		b = s.Attrs.AppendText(append(b, ' '))
	}
	return appendFrom(b, s.Node)
}

func appendBodyTensors(b []byte, ts []BodyTensor) []byte {
	for i := range ts {
		t := &ts[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		if t.Param >= 0 {
			b = strconv.AppendInt(append(b, 'p'), int64(t.Param), 10)
		} else {
			b = strconv.AppendInt(append(b, 't'), int64(t.Temp), 10)
		}
		if t.Offset != 0 {
			b = strconv.AppendInt(append(b, '+'), t.Offset, 10)
		}
		var sizes []dim.Dim
		for _, n := range slices.Concat(t.Shape, t.Strides) {
			for k := int64(len(sizes)); k < -n; k++ {
				sizes = append(sizes, dim.Sym(sizePrefix+strconv.FormatInt(k, 10)))
			}
		}
		u := t.With(sizes)
		b = text.AppendTensor(append(b, ": "...), u.DType, u.Shape, u.Strides)
	}
	return b
}

func (r *reader) unit() {
	var as attr.List
	r.Attrs(&as)
	r.p.Unit = Unit{Flags: as.Strs(flagsKey), Digest: as.Str(sourceKey, "")}
}

func (r *reader) kernel() {
	k := Kernel{Name: r.Ident("a kernel's name")}
	if !r.Bad && r.Peek() == '{' {
		var as attr.List
		r.Attrs(&as)
		k.Block, k.Grid, k.Shared = as.Int(blockKey, 0), as.Int(gridKey, 0), as.Int(sharedKey, 0)
		k.Digest = as.Str(sourceKey, "")
		k.Sizes = int(as.Int(SizesKey, 0))
		if s := as.Str(blocksKey, ""); s != "" {
			var err error
			if k.Blocks, err = dim.Parse(s); err != nil {
				r.Failf(r.I, 0, "syntax", "%s: %v", blocksKey, err)
			}
		}
	}
	r.p.Kernels = append(r.p.Kernels, k)
}

func (r *reader) step(at int) {
	if len(r.p.Kernels) == 0 {
		r.Failf(at, len("step"), "syntax", "a step comes after the kernel whose body it belongs to")
		return
	}
	s := BodyStep{Op: r.Ident("an operation")}
	r.signature(func() { s.Ins = r.bodyTensors() }, func() { s.Outs = r.bodyTensors() }, &s.Attrs)
	if !r.Bad {
		s.Node = r.from()
	}
	k := &r.p.Kernels[len(r.p.Kernels)-1]
	k.Body = append(k.Body, s)
}

func (r *reader) bodyTensors() []BodyTensor {
	var ts []BodyTensor
	for !r.Bad {
		t, err := r.bodyPlace()
		if err != nil {
			return ts
		}
		if !r.Bad && r.Eat('+') {
			t.Offset = r.Int("an offset")
		}
		r.Expect(':', "before a tensor's type")
		if r.Bad {
			break
		}
		sizes := r.p.Kernels[len(r.p.Kernels)-1].Sizes
		x := r.Tensor(func(name string) bool { n, ok := sizeNumber(name); return ok && n < sizes })
		t.DType, t.Shape, t.Strides = x.DType, r.bodySizes(x.Shape), r.bodySizes(x.Strides)
		ts = append(ts, t)
		if r.Bad || !r.Eat(',') {
			break
		}
	}
	return ts
}

// sizeNumber is the number of a size that a launch gives, by its spelling.
func sizeNumber(name string) (int, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, sizePrefix), 10, 31)
	return int(n), err == nil && name == sizePrefix+strconv.FormatUint(n, 10)
}

// bodySizes are sizes or strides of a kernel's body.
func (r *reader) bodySizes(list []dim.Dim) []int64 {
	if list == nil {
		return nil
	}
	out := make([]int64, len(list))
	for i, d := range list {
		if n, ok := d.Const(); ok && n >= 0 {
			out[i] = n
		} else if n, ok := sizeNumber(d.String()); ok {
			out[i] = SizeParam(n)
		} else {
			r.Failf(r.I, 0, "syntax", "a size of a kernel's body is a number or one of the launch's, not %s", d)
		}
	}
	return out
}

// bodyPlace reads p3 or t3; what is wrong with it is reported, too.
func (r *reader) bodyPlace() (BodyTensor, error) {
	r.Space()
	at := r.I
	name := r.Ident("a parameter or temporary")
	t := BodyTensor{Param: -1}
	n, err := strconv.ParseInt(strings.TrimLeft(name, "pt"), 10, 64)
	if r.Bad || err != nil || n > math.MaxInt32 || len(name) < 2 || name != fmt.Sprintf("%c%d", name[0], n) {
		r.Failf(at, len(name), "syntax", "expected a parameter such as p0 or a temporary such as t0, found %q", name)
		return t, fmt.Errorf("no place")
	}
	if name[0] == 'p' {
		t.Param = int(n)
	} else {
		t.Temp = int(n)
	}
	return t, nil
}
