package gomlx

import (
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// Buffer is a tensor in the memory of the host.
type Buffer struct {
	b     *Backend
	shape shapes.Shape

	mu   sync.Mutex
	flat any // slice of the shape's Go type; nil: finalized
}

// BufferFromFlatData makes a buffer with a copy of flat.
func (b *Backend) BufferFromFlatData(d compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	if err := b.takes(d, shape); err != nil {
		return nil, err
	}
	own := dtypes.MakeAnySlice(shape.DType, shape.Size())
	if from := dtypes.UnsafeByteSliceFromAny(flat); len(from) != len(dtypes.UnsafeByteSliceFromAny(own)) {
		return nil, errors.Errorf("concert: %d bytes for a buffer of shape %s", len(from), shape)
	}
	dtypes.CopyAnySlice(own, flat)
	return &Buffer{b: b, shape: shape, flat: own}, nil
}

func (b *Backend) takes(d compute.DeviceNum, shape shapes.Shape) error {
	switch _, ok := elementTypes[shape.DType]; {
	case b.IsFinalized():
		return errors.New("concert: the backend is finalized")
	case d != 0:
		return errors.Errorf("concert: there is no device %d", d)
	case !ok:
		return errors.Wrapf(compute.ErrNotImplemented, "concert: element type %s", shape.DType)
	}
	return nil
}

// HasSharedBuffers is true: buffers lie in the memory of the host.
func (b *Backend) HasSharedBuffers() bool { return true }

// NewSharedBuffer makes a buffer of zeros, and gives its memory.
func (b *Backend) NewSharedBuffer(d compute.DeviceNum, shape shapes.Shape) (compute.Buffer, any, error) {
	if err := b.takes(d, shape); err != nil {
		return nil, nil, err
	}
	u := &Buffer{b: b, shape: shape, flat: dtypes.MakeAnySlice(shape.DType, shape.Size())}
	return u, u.flat, nil
}

// Backend is the backend that made the buffer.
func (u *Buffer) Backend() compute.Backend { return u.b }

// Shape is the buffer's shape.
func (u *Buffer) Shape() (shapes.Shape, error) { return u.shape, nil }

// DeviceNum is 0.
func (u *Buffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

// Data is the buffer's memory.
func (u *Buffer) Data() (any, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.flat == nil {
		return nil, errors.New("concert: the buffer is finalized or donated")
	}
	return u.flat, nil
}

// Finalize lets the memory go.
func (u *Buffer) Finalize() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flat = nil
	return nil
}

// ToFlatData copies the elements to a slice of the shape's Go type.
func (u *Buffer) ToFlatData(flat any) error {
	data, err := u.Data()
	if err != nil {
		return err
	}
	if a, b := len(dtypes.UnsafeByteSliceFromAny(flat)), len(dtypes.UnsafeByteSliceFromAny(data)); a != b {
		return errors.Errorf("concert: %d bytes for a buffer of %d", a, b)
	}
	dtypes.CopyAnySlice(flat, data)
	return nil
}

// CopyToDevice copies the buffer.
func (u *Buffer) CopyToDevice(d compute.DeviceNum) (compute.Buffer, error) {
	data, err := u.Data()
	if err != nil {
		return nil, err
	}
	return u.b.BufferFromFlatData(d, data, u.shape)
}
