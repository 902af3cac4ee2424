package nccl

// warmUpBytes bounds the memory of one tensor of a warm-up. Which way NCCL takes
// depends on the size, but not above this one.
const warmUpBytes = 256 << 20

// WarmUp is an operation that makes NCCL connect the ranks as o does, on memory that
// nobody needs; bytes is how much. The calls that send from rank to rank connect in one
// way for all sizes.
func (o *Op) WarmUp(rank, ranks int) (r Op, bytes uint64) {
	n := uint64(ranks)
	if o.PointToPoint() {
		const part = 256
		return Op{Kind: AllToAll, DType: o.DType, Tensors: []Tensor{{Src: 0, Dst: uintptr(part * n), Bytes: part}}, Label: "connecting"}, 2 * part * n
	}
	r = *o
	r.Tensors = nil
	for _, t := range o.Tensors {
		part := Tensor{Bytes: min(t.Bytes, warmUpBytes/n&^255)}
		need := part.Bytes
		switch o.Kind {
		case AllGather:
			need, part.Src = n*part.Bytes, uintptr(uint64(rank)*part.Bytes)
		case ReduceScatter:
			need, part.Dst = n*part.Bytes, uintptr(uint64(rank)*part.Bytes)
		}
		bytes = max(bytes, need)
		r.Tensors = append(r.Tensors, part)
	}
	return r, bytes
}

// PointToPoint reports whether an operation is sends and receives.
func (o *Op) PointToPoint() bool { return o.Kind == AllToAll || o.Kind == Permute }
