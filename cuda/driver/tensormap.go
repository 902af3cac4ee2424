package driver

// TensorMap says how boxes of a tensor of two-byte elements are copied between memory and
// shared memory by the copy unit of compute capability 9.0 (PTX ISA, "Tensor-maps"). Rows
// of 64 elements are there in the swizzle of 128 bytes, others as they are. What a box
// reaches beyond the tensor is read as zeros and not written.
type TensorMap struct {
	At      Ptr       // of element (0, 0, 0), a multiple of 16
	Sizes   [3]uint64 // in elements, innermost first, none 0
	Strides [2]uint64 // of the second and third dimension in bytes, multiples of 16
	Box     [2]uint32 // in elements: up to 256 of each, of the first a multiple of 8
}

// TensorMapBytes is the size of an encoded map.
const TensorMapBytes = 128
