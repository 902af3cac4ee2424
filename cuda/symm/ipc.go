package symm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/owned"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Single tensors between processes that share no world: one allocates memory that can be
// shared, exports a buffer in it, and others import it, each on the device of a rank of its
// own. They find and know each other as the ranks of a job do (package rendezvous). What is exported is the whole
// allocation, because no less can be mapped; the buffer says which part is meant.
//
// The memory lives until the last process has closed it. Who writes and when the others
// may read is up to the processes: nothing here waits for a device.

// Shared is an allocation on a rank's device that other processes can import.
type Shared struct {
	r     *Rank
	at    driver.Ptr
	bytes uint64 // a multiple of the granularity
	mem   driver.Mem
	life  *lifecycle.Scope
}

// NewShared allocates at least that many bytes, which are not cleared. The rank's world
// closes handles that no rank took.
func (r *Rank) NewShared(bytes uint64) (*Shared, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	if r.alone != nil {
		return nil, fmt.Errorf("rank %d: %w", r.ID, r.alone)
	}
	d := r.World.drv
	unit, err := d.Granularity(r.Ctx, r.Dev, r.how)
	if err != nil {
		return nil, err
	}
	if bytes == 0 || bytes > 1<<62 {
		return nil, Invalid("bytes", "%d cannot be shared", bytes)
	}
	bytes = (bytes + unit - 1) / unit * unit
	return r.shared(bytes, func(o owned.Maker) (driver.Mem, error) { return o.Memory(r.Dev, bytes, r.how) })
}

// shared maps memory that is made or imported for the rank's device.
func (r *Rank) shared(bytes uint64, mem func(owned.Maker) (driver.Mem, error)) (_ *Shared, err error) {
	w := r.World
	if err := w.life.Begin(); err != nil {
		return nil, err
	}
	defer w.life.Done()
	s := &Shared{r: r, bytes: bytes}
	if s.life, err = w.life.New("shared memory"); err != nil {
		return nil, err
	}
	own := r.own(s.life)
	if s.mem, err = mem(own); err == nil {
		s.at, err = own.Addresses(bytes)
	}
	if err == nil {
		err = own.Mapping(s.at, bytes, s.mem)
	}
	if err == nil {
		err = w.drv.Allow(r.Ctx, s.at, bytes, []int{r.Dev})
	}
	if err == nil {
		err = s.life.Work(lifecycle.Hooks{Idle: r.drained()})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: %d shared bytes: %w", r.ID, bytes, err), s.life.EndInCall())
	}
	return s, nil
}

// given is nil for shared memory.
func (s *Shared) given() error {
	if s == nil {
		return Invalid("shared memory", "it is nil")
	}
	return nil
}

// Bytes is the size of the allocation.
func (s *Shared) Bytes() uint64 {
	if s == nil {
		return 0
	}
	return s.bytes
}

// Buffer is count elements of the allocation from byte off on.
func (s *Shared) Buffer(off uint64, t DType, count uint64) (Buffer, error) {
	if err := s.given(); err != nil {
		return Buffer{}, err
	}
	b := Buffer{At: s.at + driver.Ptr(off), Count: count, DType: t}
	if why := b.Check(); why != nil {
		return Buffer{}, Invalid("shared buffer", "%s", why)
	}
	if off > s.bytes || b.Bytes() > s.bytes-off {
		return Buffer{}, Invalid("shared buffer", "[%d, +%d) exceeds the %d bytes of the allocation", off, b.Bytes(), s.bytes)
	}
	return b, nil
}

// Close waits until the rank's device is idle, unmaps the memory and lets it go; other
// processes keep theirs. It is safe to call twice.
func (s *Shared) Close() error {
	if s == nil {
		return nil
	}
	return s.life.End(context.Background())
}

// ForeignDeviceError means that memory is on a device that the importing process does
// not see.
type ForeignDeviceError struct{ UUID string }

// Error names the device.
func (e *ForeignDeviceError) Error() string {
	return fmt.Sprintf("the memory lies on the device with UUID %s, which this process does not see", e.UUID)
}

// ImportError is what an exporter reports of a process that took the memory and could
// not use it.
type ImportError struct{ Reason string }

// Error gives the other process's reason.
func (e *ImportError) Error() string {
	return "a process that imports could not use the memory: " + e.Reason
}

// exported is what an exporter says of its memory.
type exported struct {
	UUID    string // of the device
	Bytes   uint64 // of the allocation
	Sharing string
	Off     uint64
	DType   DType
	Count   uint64
}

// The messages of an exporter and an importer: a request, an offer with the memory's handle,
// and how that went.
type (
	request struct {
		Import  string `json:"import"` // importTensor, which no rank of a world says
		Machine string `json:"machine"`
	}
	offer struct {
		exported
		Fabric  []byte `json:"fabric,omitempty"` // else a descriptor comes along
		Refused string `json:"refused,omitempty"`
	}
	imported struct {
		Used   bool   `json:"used"`
		Reason string `json:"reason,omitempty"` // if it was not used
	}
)

const (
	importTensor = "tensor 1"
	maxTalk      = 64 << 10
)

// Export hands b, a buffer of s, to that many importers, who find this process as the job
// says, and returns when each has mapped it, or with what has become of the others: a
// *PeerLostError of one that ended, an *ImportError, or a *rendezvous.TimeoutError when
// too few came before the end of ctx.
func (s *Shared) Export(ctx context.Context, job *rendezvous.Job, b Buffer, importers int) error {
	if err := errors.Join(s.given(), CheckContext(ctx), checkJob(job)); err != nil {
		return err
	}
	if importers < 1 {
		return Invalid("importers", "%d", importers)
	}
	if why := b.Check(); why != nil {
		return Invalid("shared buffer", "%s", why)
	}
	if b.At < s.at || uint64(b.At-s.at) > s.bytes || b.Bytes() > s.bytes-uint64(b.At-s.at) {
		return Invalid("shared buffer", "%v is not in the allocation of %d bytes at %#x", b, s.bytes, uint64(s.at))
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	h, err := s.export()
	if err != nil {
		return err
	}
	defer h.close()
	o := offer{exported: exported{UUID: fmt.Sprintf("%x", s.r.Info.UUID), Bytes: s.bytes, Sharing: s.r.how.String(),
		Off: uint64(b.At - s.at), DType: b.DType, Count: b.Count}, Fabric: h.fabric}
	l, err := rendezvous.Listen(ctx, job)
	if err != nil {
		return fmt.Errorf("the exporter cannot listen: %w", err)
	}
	defer l.Close()
	start := time.Now()
	errs := make([]error, importers)
	var talks sync.WaitGroup // a slow one delays no other
	for n := range importers {
		conn, err := l.Accept(ctx)
		if err != nil {
			errs[n] = fmt.Errorf("exporting: %d of %d importers came: %w", n, importers, exchangeError(ctx, 0, -1, start, err))
			break
		}
		talks.Go(func() {
			errs[n] = hand(ctx, conn, o, h)
			conn.Close()
		})
	}
	talks.Wait()
	return errors.Join(errs...)
}

func checkJob(job *rendezvous.Job) error {
	if err := job.Check(); err != nil {
		return Invalid("job", "%v", err)
	}
	return nil
}

// exchangeError is why an exchange between who and another process, 0 the exporter,
// failed, which it did with err.
func exchangeError(ctx context.Context, who, other int, since time.Time, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return &rendezvous.TimeoutError{Op: "sharing a tensor", Rank: who, Peer: other, Elapsed: time.Since(since)}
	case cause != nil:
		return cause
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return &PeerLostError{Op: "sharing a tensor", Rank: who, Peer: other}
	}
	return fmt.Errorf("exchanging messages with the other process: %w", err)
}

// export exports the allocation unless it is closed.
func (s *Shared) export() (memHandle, error) {
	if err := s.life.Begin(); err != nil {
		return noHandle, err
	}
	defer s.life.Done()
	return exportMem(s.r.World.drv, s.r.Ctx, s.mem, s.r.how)
}

// hand gives one importer what it came for, and hears whether it could use it.
func hand(ctx context.Context, to *rendezvous.Conn, o offer, h memHandle) error {
	here, err := rendezvous.Machine()
	if err != nil {
		return err
	}
	start := time.Now()
	var e request
	fds, err := to.Receive(ctx, maxTalk, &e)
	rendezvous.CloseFiles(fds...)
	if err != nil {
		return exchangeError(ctx, 0, 1, start, err)
	}
	if want := (request{importTensor, here}); e != want {
		err := &MismatchError{Op: "sharing a tensor", What: "requests", Rank: 0, Peer: 1, RankValue: fmt.Sprintf("%+v", want), PeerValue: fmt.Sprintf("%+v", e)}
		to.Send(ctx, offer{Refused: err.Error()}) // it may be gone
		return err
	}
	if h.fd >= 0 {
		err = to.Send(ctx, o, h.fd)
	} else {
		err = to.Send(ctx, o)
	}
	var answer imported
	if err == nil {
		fds, err = to.Receive(ctx, maxTalk, &answer)
		rendezvous.CloseFiles(fds...)
	}
	switch {
	case err != nil:
		return exchangeError(ctx, 0, 1, start, err)
	case !answer.Used:
		return &ImportError{Reason: answer.Reason}
	}
	return nil
}

// Import takes the buffer that another process exports, and maps it for the rank's device,
// which may be another than the memory's if it can access that. It waits for the exporter
// until ctx ends: a *rendezvous.TimeoutError. An exporter of another job is an error that
// matches rendezvous.ErrUnauthenticated, one that ends meanwhile a *PeerLostError, memory on
// a device that is not to be seen a *ForeignDeviceError, one without access a
// *NoPeerAccessError. The rank's world closes handles that no rank took.
func (r *Rank) Import(ctx context.Context, job *rendezvous.Job) (*Shared, Buffer, error) {
	if err := errors.Join(r.usable(), CheckContext(ctx), checkJob(job)); err != nil {
		return nil, Buffer{}, err
	}
	if ctx.Err() != nil {
		return nil, Buffer{}, context.Cause(ctx)
	}
	here, err := rendezvous.Machine()
	if err != nil {
		return nil, Buffer{}, err
	}
	start := time.Now()
	conn, err := rendezvous.Dial(ctx, job)
	if err != nil {
		if !errors.Is(err, rendezvous.ErrUnauthenticated) {
			err = exchangeError(ctx, 1, 0, start, err)
		}
		return nil, Buffer{}, fmt.Errorf("importing: %w", err)
	}
	defer conn.Close()
	var o offer
	var fds []int
	if err = conn.Send(ctx, request{importTensor, here}); err == nil {
		fds, err = conn.Receive(ctx, maxTalk, &o)
	}
	defer rendezvous.CloseFiles(fds...)
	switch {
	case err != nil:
		return nil, Buffer{}, fmt.Errorf("importing: %w", exchangeError(ctx, 1, 0, start, err))
	case o.Refused != "":
		return nil, Buffer{}, fmt.Errorf("importing: the exporter refused: %s", o.Refused)
	}
	h := memHandle{fd: -1, fabric: o.Fabric}
	if len(fds) == 1 {
		h = memHandle{fd: fds[0]}
	}
	s, b, err := r.receive(&o.exported, h)
	if err != nil {
		conn.Send(ctx, imported{Reason: err.Error()}) // it may be gone
		return nil, Buffer{}, fmt.Errorf("importing: %w", err)
	}
	if err := conn.Send(ctx, imported{Used: true}); err != nil {
		return nil, Buffer{}, errors.Join(exchangeError(ctx, 1, 0, start, err), s.Close())
	}
	return s, b, nil
}

// receive maps what an exporter sent. The handle stays the caller's.
func (r *Rank) receive(x *exported, h memHandle) (*Shared, Buffer, error) {
	if err := r.reaches(x.UUID); err != nil {
		return nil, Buffer{}, err
	}
	d := r.World.drv
	how := driver.ByFD
	if h.fabric != nil {
		how = driver.ByFabric
	}
	unit, err := d.Granularity(r.Ctx, r.Dev, how)
	if err != nil {
		return nil, Buffer{}, err
	}
	if x.Bytes == 0 || x.Bytes%unit != 0 {
		return nil, Buffer{}, fmt.Errorf("an allocation of %d bytes is no multiple of %d", x.Bytes, unit)
	}
	s, err := r.shared(x.Bytes, func(o owned.Maker) (driver.Mem, error) { return o.Imported(h.importMem(d, r.Ctx)) })
	if err != nil {
		return nil, Buffer{}, err
	}
	b, err := s.Buffer(x.Off, x.DType, x.Count)
	if err != nil {
		return nil, Buffer{}, errors.Join(err, s.Close())
	}
	return s, b, nil
}

// reaches says whether the rank's device can use memory of the device with that UUID.
func (r *Rank) reaches(uuid string) error {
	d := r.World.drv
	infos, err := d.Devices()
	if err != nil {
		return err
	}
	for dev, info := range infos {
		if fmt.Sprintf("%x", info.UUID) != uuid {
			continue
		}
		if dev == r.Dev {
			return nil
		}
		ok, err := d.CanAccessPeer(r.Dev, dev)
		if err == nil && !ok {
			err = &NoPeerAccessError{Dev: r.Dev, Peer: dev}
		}
		return err
	}
	return &ForeignDeviceError{UUID: uuid}
}
