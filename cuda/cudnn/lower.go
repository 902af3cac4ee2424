package cudnn

import "fmt"

// desc is a descriptor of the library.
type desc uintptr

// api is the backend's interface, as far as a plan needs it. on names the object in
// errors. The context is current on the thread.
type api interface {
	create(k descKind) (desc, error)
	destroy(d desc)
	setInts(on fmt.Stringer, d desc, a attribute, v ...int64) error
	setEnum(on fmt.Stringer, d desc, a attribute, t attrType, v int32) error
	setFloat(on fmt.Stringer, d desc, a attribute, v float32) error
	setTrue(on fmt.Stringer, d desc, a attribute) error
	setDescs(on fmt.Stringer, d desc, a attribute, v ...desc) error
	setHandle(on fmt.Stringer, d desc, a attribute) error
	setPointers(on fmt.Stringer, d desc, a attribute, v ...uintptr) error
	getInt(on fmt.Stringer, d desc, a attribute) (int64, error)
	getEnums(on fmt.Stringer, d desc, a attribute, t attrType, most int) ([]int32, error)
	// getDescs fills finalizable descriptors and says how many there are.
	getDescs(on fmt.Stringer, d desc, a attribute, into []desc) (int64, error)
	finalize(on fmt.Stringer, d desc) error
}

// lowering turns a graph into descriptors, all of which free destroys.
type lowering struct {
	api
	made    []desc
	tensors map[*tensor]desc
}

func (l *lowering) free() {
	for i := len(l.made) - 1; i >= 0; i-- {
		l.destroy(l.made[i])
	}
	l.made = nil
}

func (l *lowering) make(k descKind) (desc, error) {
	d, err := l.create(k)
	if err == nil {
		l.made = append(l.made, d)
	}
	return d, err
}

// setting is one attribute of a descriptor, applied in order.
type setting func(d desc) error

// build makes a descriptor, applies settings and finalises it.
func (l *lowering) build(on fmt.Stringer, k descKind, settings ...setting) (desc, error) {
	d, err := l.make(k)
	if err != nil {
		return 0, err
	}
	for _, s := range settings {
		if err := s(d); err != nil {
			return 0, err
		}
	}
	return d, l.finalize(on, d)
}

func (l *lowering) ints(on fmt.Stringer, a attribute, v ...int64) setting {
	return func(d desc) error { return l.setInts(on, d, a, v...) }
}

func (l *lowering) enum(on fmt.Stringer, a attribute, t attrType, v int32) setting {
	return func(d desc) error { return l.setEnum(on, d, a, t, v) }
}

func (l *lowering) descs(on fmt.Stringer, a attribute, v ...desc) setting {
	return func(d desc) error { return l.setDescs(on, d, a, v...) }
}

// graph gives the operation graph.
func (l *lowering) graph(g *graph) (desc, error) {
	l.tensors = map[*tensor]desc{}
	for _, t := range g.tensors {
		d, err := l.tensor(t)
		if err != nil {
			return 0, err
		}
		l.tensors[t] = d
	}
	ops := make([]desc, len(g.nodes))
	for i, n := range g.nodes {
		var err error
		if ops[i], err = l.node(n); err != nil {
			return 0, err
		}
	}
	on := descOpGraph
	return l.build(on, descOpGraph, l.descs(on, attrGraphOps, ops...),
		func(d desc) error { return l.setHandle(on, d, attrGraphHandle) })
}

func (l *lowering) tensor(t *tensor) (desc, error) {
	align := int64(tensorAlign)
	if t.role == scalar {
		align = 4
	}
	s := []setting{
		l.enum(t, attrTensorType, typeDataType, int32(t.typ)),
		l.ints(t, attrTensorDims, t.dims...),
		l.ints(t, attrTensorStrides, t.strides...),
		l.ints(t, attrTensorUID, t.uid),
		l.ints(t, attrTensorAlign, align),
	}
	switch t.role {
	case virtual:
		s = append(s, func(d desc) error { return l.setTrue(t, d, attrTensorVirtual) })
	case scalar:
		s = append(s, func(d desc) error { return l.setTrue(t, d, attrTensorByValue) })
	}
	return l.build(t, descTensor, s...)
}

func (l *lowering) in(n *node, a attribute, i int) setting {
	return l.descs(n, a, l.tensors[n.ins[i]])
}

func (l *lowering) node(n *node) (desc, error) {
	out := func(a attribute) setting { return l.descs(n, a, l.tensors[n.out]) }
	switch n.kind {
	case matmul:
		how, err := l.build(n, descMatmul, l.enum(n, attrMatmulPrec, typeDataType, int32(n.prec)))
		if err != nil {
			return 0, err
		}
		return l.build(n, descOpMatmul, l.in(n, attrOpMatmulA, 0), l.in(n, attrOpMatmulB, 1), out(attrOpMatmulC), l.descs(n, attrOpMatmulDesc, how))
	case reduction:
		how, err := l.build(n, descReduction, l.enum(n, attrReducePrec, typeDataType, int32(n.prec)), l.enum(n, attrReduceOp, typeReductionOp, n.mode))
		if err != nil {
			return 0, err
		}
		return l.build(n, descOpReduction, l.descs(n, attrOpReduceDesc, how), l.in(n, attrOpReduceX, 0), out(attrOpReduceY))
	case reshape:
		return l.build(n, descOpReshape, l.in(n, attrOpReshapeX, 0), out(attrOpReshapeY))
	case pointwise:
		return l.pointwise(n)
	case convForward, convData, convFilter:
		return l.convolution(n)
	}
	return 0, fmt.Errorf("%v: kind %d", n, n.kind)
}

func (l *lowering) pointwise(n *node) (desc, error) {
	s := []setting{l.enum(n, attrPointMode, typePointMode, n.mode), l.enum(n, attrPointPrec, typeDataType, int32(n.prec))}
	if pointMode(n.mode) == modeIndex {
		s = append(s, l.ints(n, attrPointAxis, n.axis))
	}
	how, err := l.build(n, descPointwise, s...)
	if err != nil {
		return 0, err
	}
	s = []setting{l.descs(n, attrOpPointDesc, how), l.in(n, attrOpPointX, 0), l.descs(n, attrOpPointY, l.tensors[n.out])}
	for i, a := range []attribute{attrOpPointB, attrOpPointT} {
		if i+1 < len(n.ins) {
			s = append(s, l.in(n, a, i+1))
		}
	}
	for _, a := range []attribute{attrOpPointAlpha1, attrOpPointAlpha2} {
		s = append(s, func(d desc) error { return l.setFloat(n, d, a, 1) })
	}
	return l.build(n, descOpPointwise, s...)
}

// convolution gives one of the three operations. Their attributes are numbered alike: alpha,
// beta, the convolution, and the tensors in an order of their own.
func (l *lowering) convolution(n *node) (desc, error) {
	w := n.win
	mode := int32(1) // a cross-correlation
	if w.flip {
		mode = 0
	}
	how, err := l.build(n, descConvolution, l.enum(n, attrConvPrec, typeDataType, int32(n.prec)), l.enum(n, attrConvMode, typeConvMode, mode),
		l.ints(n, attrConvDims, int64(len(w.stride))), l.ints(n, attrConvPre, w.pre...), l.ints(n, attrConvPost, w.post...),
		l.ints(n, attrConvDilations, w.dilation...), l.ints(n, attrConvStrides, w.stride...))
	if err != nil {
		return 0, err
	}
	kind, first, tensors := descOpForward, attrOpForwardA, [3]*tensor{n.ins[1], n.ins[0], n.out} // filter, image, result
	switch n.kind {
	case convData:
		kind, first, tensors = descOpData, attrOpDataA, [3]*tensor{n.ins[1], n.out, n.ins[0]}
	case convFilter:
		kind, first, tensors = descOpFilter, attrOpFilterA, [3]*tensor{n.out, n.ins[0], n.ins[1]}
	}
	s := []setting{l.descs(n, first+2, how), func(d desc) error { return l.setFloat(n, d, first, 1) }, func(d desc) error { return l.setFloat(n, d, first+1, 0) }}
	for i, t := range tensors {
		s = append(s, l.descs(n, first+3+attribute(i), l.tensors[t]))
	}
	return l.build(n, kind, s...)
}
