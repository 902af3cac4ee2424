package gomlx

import (
	"reflect"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	rt "github.com/seed-ee968945/concert/runtime"
)

// Buffer is a tensor: a result that is where a program has left it, in the memory of a rank,
// or elements in Go's memory. The first becomes the second when somebody asks for its memory or reads
// a small one, or when the program runs again; what computes with it before that copies nothing to the host.
type Buffer struct {
	b     *Backend
	shape shapes.Shape
	dev   compute.DeviceNum

	mu    sync.Mutex // taken behind the lock of a world
	flat  any        // slice of the shape's Go type
	given bool       // somebody has flat, who may change it
	at    *place     // where flat is nil
	home  *place     // of a piece that one process has: every process gets it together

	pieces []*Buffer // of a tensor of mesh.go, which is whole where flat is set, too
	tiles  *tiling   // of these
}

// place is where a result is.
type place struct {
	l    *loaded
	rank int
	t    rt.Tensor
	room *room // that t is in, nil: the program's memory
}

// BufferFromFlatData makes a buffer with a copy of flat.
func (b *Backend) BufferFromFlatData(d compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	if err := b.takes(d, shape); err != nil {
		return nil, err
	}
	if err := elements(flat, shape); err != nil {
		return nil, err
	}
	own := dtypes.MakeAnySlice(shape.DType, shape.Size())
	dtypes.CopyAnySlice(own, flat)
	return &Buffer{b: b, dev: d, shape: shape, flat: own}, nil
}

func (b *Backend) takes(d compute.DeviceNum, shape shapes.Shape) error {
	switch {
	case b.IsFinalized():
		return errFinalized
	case d < 0 || int(d) >= b.devices:
		return errors.Errorf("concert: there is no device %d of %d", d, b.devices)
	}
	return supported(shape)
}

// elements is an error unless flat is a slice of the shape's Go type and size.
func elements(flat any, shape shapes.Shape) error {
	v := reflect.ValueOf(flat)
	if !v.IsValid() || v.Kind() != reflect.Slice || v.Type().Elem() != shape.DType.GoType() {
		return errors.Errorf("concert: a %T for a tensor of shape %s, whose elements are a []%s", flat, shape, shape.DType.GoType())
	}
	if v.Len() != shape.Size() {
		return errors.Errorf("concert: %d elements for a tensor of shape %s", v.Len(), shape)
	}
	return nil
}

// HasSharedBuffers is false, also on the host: who has a buffer's memory may change it at any time, so that it
// would have to come anew for every run, a data set for every batch that is taken from it.
func (b *Backend) HasSharedBuffers() bool { return false }

// NewSharedBuffer is an error.
func (b *Backend) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	return nil, nil, errors.Wrap(compute.ErrNotImplemented, "concert: shared buffers")
}

// Backend is the backend that made the buffer.
func (u *Buffer) Backend() compute.Backend { return u.b }

// Shape is the buffer's shape.
func (u *Buffer) Shape() (shapes.Shape, error) { return u.shape, nil }

// DeviceNum is the device that the buffer belongs to.
func (u *Buffer) DeviceNum() (compute.DeviceNum, error) { return u.dev, nil }

var errGone = errors.New("concert: the buffer is finalized or donated")

// Data is the buffer's memory. What is written there is what later computations read.
func (u *Buffer) Data() (any, error) {
	flat, err := u.fetch()
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.given, u.pieces = true, nil
	return flat, nil
}

// fetch brings the elements to Go's memory.
func (u *Buffer) fetch() (any, error) {
	if err := u.join(); err != nil {
		return nil, err
	}
	u.mu.Lock()
	from := u.home
	if from == nil {
		from = u.at
	}
	u.mu.Unlock()
	if from != nil {
		from.l.w.running.Lock()
		defer from.l.w.running.Unlock()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	err := error(nil)
	if u.home != nil {
		err = u.gather()
	} else {
		err = u.bring()
	}
	if err != nil {
		return nil, err
	}
	return u.flat, nil
}

// bring is fetch where the world and the buffer are locked.
func (u *Buffer) bring() error {
	if u.at == nil {
		if u.flat == nil {
			return errGone
		}
		return nil
	}
	w := u.at.l.w
	if w.ranks == nil {
		return errFinalized
	}
	flat := dtypes.MakeAnySlice(u.shape.DType, u.shape.Size())
	if err := w.ranks[u.at.rank].Device().Download(dtypes.UnsafeByteSliceFromAny(flat), u.at.t); err != nil {
		return errors.WithStack(err)
	}
	u.flat, u.at = flat, nil
	return nil
}

// Finalize lets the memory go.
func (u *Buffer) Finalize() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pieces {
		p.Finalize()
	}
	u.flat, u.at, u.home, u.pieces = nil, nil, nil, nil
	return nil
}

// ToFlatData copies the elements to a slice of the shape's Go type. What is large, or in pieces, stays
// where it is: the next program needs it there.
func (u *Buffer) ToFlatData(flat any) error {
	if err := elements(flat, u.shape); err != nil {
		return err
	}
	to := dtypes.UnsafeByteSliceFromAny(flat)
	u.mu.Lock()
	pieces := u.pieces != nil && u.flat == nil
	u.mu.Unlock()
	switch {
	case pieces && u.b.place == nil:
		return u.assemble(to)
	case roomy(int64(len(to))):
		return u.read(to)
	}
	data, err := u.fetch()
	if err != nil {
		return err
	}
	dtypes.CopyAnySlice(flat, data)
	return nil
}

// read copies the elements to Go's memory. They stay where they are, but where processes exchange
// them, which is not done twice.
func (u *Buffer) read(to []byte) error {
	u.mu.Lock()
	at, other := u.at, u.home != nil || u.pieces != nil
	u.mu.Unlock()
	if at != nil && !other {
		at.l.w.running.Lock()
		defer at.l.w.running.Unlock()
		u.mu.Lock()
		defer u.mu.Unlock()
		if at.l.w.ranks == nil {
			return errFinalized
		}
		if u.at == at {
			return errors.WithStack(at.l.w.ranks[at.rank].Device().Download(to, at.t))
		}
		if u.flat == nil { // saved by a run meanwhile, or gone
			return errGone
		}
		copy(to, dtypes.UnsafeByteSliceFromAny(u.flat))
		return nil
	}
	data, err := u.fetch()
	if err != nil {
		return err
	}
	copy(to, dtypes.UnsafeByteSliceFromAny(data))
	return nil
}

// CopyToDevice copies the buffer.
func (u *Buffer) CopyToDevice(d compute.DeviceNum) (compute.Buffer, error) {
	data, err := u.fetch()
	if err != nil {
		return nil, err
	}
	return u.b.BufferFromFlatData(d, data, u.shape)
}
