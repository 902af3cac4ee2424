//go:build linux

package cuda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Single tensors between processes that share no world: one allocates memory that can be
// shared, exports a buffer in it at a meeting, and others import it there, each on the
// device of a rank of its own. The meeting is that of a world (control_join.go): both
// sides prove that they know its secret and belong to the same user, and the descriptor
// or the fabric's handle travels closed on exec. What is exported is the whole
// allocation, because no less can be mapped; the buffer says which part is meant.
//
// The memory lives until the last process has closed it. Who writes and when the others
// may read is up to the processes: nothing here waits for a device.

// Shared is an allocation on a rank's device that other processes can import.
type Shared struct {
	r      *Rank
	at     Ptr
	bytes  uint64 // a multiple of the granularity
	mem    Mem
	mapped bool
	mu     sync.Mutex
	closed bool
}

// NewShared allocates at least that many bytes, which are not cleared. The rank's world
// closes what nobody has.
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
		return nil, bad("bytes", "%d cannot be shared", bytes)
	}
	bytes = (bytes + unit - 1) / unit * unit
	mem, err := d.MemCreate(r.Ctx, r.Dev, bytes, r.how)
	if err != nil {
		return nil, fmt.Errorf("rank %d: %d bytes to share: %w", r.ID, bytes, err)
	}
	return r.mapShared(mem, bytes)
}

// mapShared maps memory for the rank's device. It takes the memory over, and releases it if
// it fails.
func (r *Rank) mapShared(mem Mem, bytes uint64) (*Shared, error) {
	d := r.World.drv
	s := &Shared{r: r, bytes: bytes, mem: mem}
	var err error
	if s.at, err = d.Reserve(r.Ctx, bytes, 0); err == nil {
		if err = d.Map(r.Ctx, s.at, bytes, mem); err == nil {
			s.mapped = true
			err = d.Allow(r.Ctx, s.at, bytes, []int{r.Dev})
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: mapping %d shared bytes: %w", r.ID, bytes, err), s.Close())
	}
	r.mu.Lock()
	r.shares = append(r.shares, s)
	r.mu.Unlock()
	return s, nil
}

// given is nil for shared memory.
func (s *Shared) given() error {
	if s == nil {
		return bad("shared memory", "it is nil")
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
	b := Buffer{At: s.at + Ptr(off), Count: count, DType: t}
	if why := b.check(); why != "" {
		return Buffer{}, bad("shared buffer", "%s", why)
	}
	if off > s.bytes || b.Bytes() > s.bytes-off {
		return Buffer{}, bad("shared buffer", "[%d, +%d) exceeds the %d bytes of the allocation", off, b.Bytes(), s.bytes)
	}
	return b, nil
}

// Close unmaps the memory and lets it go. It is safe to call twice. No device may still
// use it by this mapping; other processes keep theirs.
func (s *Shared) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.r.mu.Lock()
	s.r.shares = slices.DeleteFunc(slices.Clone(s.r.shares), func(o io.Closer) bool { return o == s })
	s.r.mu.Unlock()
	d, c := s.r.World.drv, s.r.Ctx
	var errs []error
	if s.mapped {
		errs = append(errs, d.Unmap(c, s.at, s.bytes))
	}
	errs = append(errs, d.MemRelease(c, s.mem))
	if s.at != 0 {
		errs = append(errs, d.Unreserve(c, s.at, s.bytes))
	}
	return errors.Join(errs...)
}

// ForeignDeviceError means that memory lies on a device that the importing process does
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

// importing tells hellos of importers from those of a world's processes. It stands in the
// place of the digest, which therefore no world takes for its own.
const importing = "imports one tensor"

// Export hands b, a buffer of s, to that many importers at a meeting, and returns when
// each has mapped it, or with what has become of the others: a *PeerLostError of one that
// ended, an *ImportError, or a *MeetingTimeoutError when too few came before the meeting's
// timeout or the end of ctx.
func (s *Shared) Export(ctx context.Context, m Meeting, b Buffer, importers int) error {
	if err := errors.Join(s.given(), given(ctx), m.check()); err != nil {
		return err
	}
	if importers < 1 {
		return bad("importers", "%d", importers)
	}
	if why := b.check(); why != "" {
		return bad("shared buffer", "%s", why)
	}
	if b.At < s.at || uint64(b.At-s.at) > s.bytes || b.Bytes() > s.bytes-uint64(b.At-s.at) {
		return bad("shared buffer", "%v is not in the allocation of %d bytes at %#x", b, s.bytes, uint64(s.at))
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	g, err := s.gift()
	if err != nil {
		return err
	}
	defer g.close()
	host, err := hostIdentity()
	if err != nil {
		return err
	}
	said, err := json.Marshal(exported{UUID: fmt.Sprintf("%x", s.r.Info.UUID), Bytes: s.bytes, Sharing: s.r.how.String(),
		Off: uint64(b.At - s.at), DType: b.DType, Count: b.Count})
	if err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", address(m))
	if err != nil {
		return fmt.Errorf("the exporter cannot open the meeting: %w", err)
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, m.timeout())
	defer cancel()
	d := &door{m: m, guests: make(chan guest), closed: make(chan struct{})}
	d.talks.Add(1)
	go d.open(l)
	defer d.shut(l)
	errs := make([]error, importers)
	var hands sync.WaitGroup // one that is slow holds nobody up
	for n := 0; n < importers; n++ {
		select {
		case guest := <-d.guests:
			guest.gift.close()
			hands.Go(func() {
				errs[n] = hand(ctx, guest, host, string(said), g)
				guest.conn.Close()
			})
		case <-ctx.Done():
			errs[n] = fmt.Errorf("exporting: %d of %d importers came: %w", n, importers, ended(ctx, 0, start))
			importers = n
		}
	}
	hands.Wait()
	return errors.Join(errs...)
}

// ended is why a process, 0 exports, went away from a meeting when ctx ended.
func ended(ctx context.Context, who int, since time.Time) error {
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &MeetingTimeoutError{Rank: who, Waited: time.Since(since)}
	if who != 0 {
		e.Missing = []int{0}
	}
	return e
}

// parted is what became of a talk with another process, 0 the exporter, that failed with err.
func parted(ctx context.Context, who, other int, since time.Time, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ended(ctx, who, since)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return &PeerLostError{Rank: other}
	}
	return fmt.Errorf("talking to the other process: %w", err)
}

// gift exports the allocation unless it is closed.
func (s *Shared) gift() (gift, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return none, fmt.Errorf("shared memory: %w", ErrClosed)
	}
	return exportMem(s.r.World.drv, s.r.Ctx, s.mem, s.r.how)
}

// hand gives one importer what it came for, and hears whether it could use it.
func hand(ctx context.Context, to guest, host, said string, g gift) error {
	var h hurry
	defer context.AfterFunc(ctx, h.now)()
	h.until(to.conn, time.Time{})
	if to.said.Digest != importing || to.said.Version != protocolVersion || to.said.Host != host {
		err := &MismatchError{Rank: to.said.Rank, What: "errand, protocol version or host", Got: fmt.Sprintf("%q, %d, %s", to.said.Digest, to.said.Version, to.said.Host),
			Want: fmt.Sprintf("%q, %d, %s", importing, protocolVersion, host)}
		send(to.conn, message{Kind: msgRefuse, Text: err.Error()}) // it may be gone
		return err
	}
	w := message{Kind: msgWelcome, Text: said}
	if g.handle != nil {
		w.Handles = [][]byte{g.handle}
	}
	start := time.Now()
	if err := send(to.conn, w, g.fds()...); err != nil {
		return parted(ctx, 0, -1, start, err)
	}
	var answer message
	fds, err := receiveAll(to.conn, &answer, 0)
	closeAll(fds)
	switch {
	case err != nil:
		return parted(ctx, 0, -1, start, err)
	case answer.Kind != msgArrive:
		return &ImportError{Reason: answer.Text}
	}
	return nil
}

// Import takes the buffer that another process exports at the meeting, and maps it for the
// rank's device, which may be another than the memory's if it can access that. It waits
// for the exporter until the meeting's timeout or the end of ctx: a *MeetingTimeoutError.
// An exporter that ends meanwhile is a *PeerLostError, memory on a device that is not to be
// seen a *ForeignDeviceError, one without access a *NoPeerAccessError. The rank's world
// closes what nobody has.
func (r *Rank) Import(ctx context.Context, m Meeting) (*Shared, Buffer, error) {
	if err := errors.Join(r.usable(), given(ctx), m.check()); err != nil {
		return nil, Buffer{}, err
	}
	if ctx.Err() != nil {
		return nil, Buffer{}, context.Cause(ctx)
	}
	host, err := hostIdentity()
	if err != nil {
		return nil, Buffer{}, err
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, m.timeout())
	defer cancel()
	var conn *net.UnixConn
	for conn == nil {
		if conn, err = net.DialUnix("unix", nil, address(m)); err == nil {
			break
		}
		conn = nil
		select {
		case <-ctx.Done():
			return nil, Buffer{}, fmt.Errorf("importing: %w", ended(ctx, 1, start))
		case <-time.After(5 * time.Millisecond):
		}
	}
	defer conn.Close()
	var h hurry
	defer context.AfterFunc(ctx, h.now)()
	h.until(conn, time.Time{})
	// A hello brings a gift. This one is empty.
	ours := hello{Version: protocolVersion, Rank: 1, Host: host, UUID: fmt.Sprintf("%x", r.Info.UUID), Digest: importing, Handle: []byte{}}
	w, fds, err := m.introduce(conn, ours, none, 1)
	switch {
	case errors.Is(err, ErrStranger):
	case err != nil:
		err = parted(ctx, 1, 0, start, err)
	case w.Kind != msgWelcome:
		err = fmt.Errorf("the exporter refused: %s", w.Text)
	}
	if err != nil {
		closeAll(fds)
		return nil, Buffer{}, fmt.Errorf("importing: %w", err)
	}
	s, b, err := r.receive(w, fds)
	if err != nil {
		send(conn, message{Kind: msgGiveUp, Text: err.Error()}) // it may be gone
		return nil, Buffer{}, fmt.Errorf("importing: %w", err)
	}
	if err := send(conn, message{Kind: msgArrive}); err != nil {
		return nil, Buffer{}, errors.Join(parted(ctx, 1, 0, start, err), s.Close())
	}
	return s, b, nil
}

// receive maps what an exporter sent. It takes the descriptors over.
func (r *Rank) receive(w message, fds []int) (*Shared, Buffer, error) {
	gifts, err := wrap(w.Handles, fds, 1)
	if err != nil {
		return nil, Buffer{}, fmt.Errorf("the exporter sent %w", err)
	}
	defer closeGifts(gifts)
	var x exported
	if err := json.Unmarshal([]byte(w.Text), &x); err != nil {
		return nil, Buffer{}, fmt.Errorf("the exporter's words: %w", err)
	}
	if err := r.reaches(x.UUID); err != nil {
		return nil, Buffer{}, err
	}
	d := r.World.drv
	how := ByFD
	if gifts[0].handle != nil {
		how = ByFabric
	}
	unit, err := d.Granularity(r.Ctx, r.Dev, how)
	if err != nil {
		return nil, Buffer{}, err
	}
	if x.Bytes == 0 || x.Bytes%unit != 0 {
		return nil, Buffer{}, fmt.Errorf("an allocation of %d bytes is no multiple of %d", x.Bytes, unit)
	}
	mem, err := gifts[0].importMem(d, r.Ctx)
	if err != nil {
		return nil, Buffer{}, err
	}
	s, err := r.mapShared(mem, x.Bytes)
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
