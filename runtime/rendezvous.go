package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/runtime/store"
)

// Rendezvous: how the ranks of a world find each other and agree.
//
// A store may see several worlds: one breaks, its survivors join anew. Worlds of
// one name and size are therefore numbered by generations that live in the
// store, not in any process. A generation is open until its state key is set,
// once, by compare-and-set: "ready" when some rank has seen all records, or
// "failed" with the reason. Who finds the current generation closed moves on to
// the next; who waits in one that fails learns why at once, so that all ranks
// end with the same reason and not with a chain of time-outs.
//
// In an open generation each rank publishes its record, reads all others and
// compares. Every rank sees all records, so a disagreement is found by everyone
// without another message; only the texts of programs that differ are exchanged
// on top, in order to name the first line.
//
// Rank 0 hosts the store as a rule, so it may not close it while others still
// read: it lingers until everyone has acknowledged, for a short time at most.

// protocolVersion of records; ranks must agree.
const protocolVersion = 1

// Record is what one rank publishes.
type Record struct {
	Version    int    `json:"version"`
	Nonce      string `json:"nonce"` // of the job, from the store
	Rank       int    `json:"rank"`
	World      int    `json:"world"`
	Digest     string `json:"digest"` // of everything the rank is about to run
	ArenaBytes int64  `json:"arena"`
	Host       string `json:"host"` // boot id, or the host's name where there is none
	PID        int    `json:"pid"`
	Extra      []byte `json:"extra,omitempty"` // the device's own
}

// Meeting is the outcome of a rendezvous.
type Meeting struct {
	Nonce   string   // of this world: the job's nonce with the generation
	Records []Record // by rank
	linger  func(context.Context)
}

// meetSpec is what one rank brings to a rendezvous.
type meetSpec struct {
	rec  Record
	name string // of the world; survivors of a broken one may use another
	text string // of the programs, for naming the first difference
}

// meet publishes spec.rec, waits for the others until ctx ends, and compares.
func meet(ctx context.Context, s store.Store, spec meetSpec) (*Meeting, error) {
	m := &meeting{s: s, me: spec.rec.Rank, world: spec.rec.World, spec: spec, start: time.Now()}
	m.base = fmt.Sprintf("world/%s/%d/", spec.name, m.world)
	if err := m.enter(ctx); err != nil {
		return nil, m.fail(err)
	}
	recs, err := m.gather(ctx)
	if err != nil {
		return nil, m.fail(err)
	}
	if err := m.compare(ctx, recs); err != nil {
		m.leave(m.world, time.Second)
		return nil, err
	}
	if err := m.s.Set(ctx, m.ackKey(m.me), nil); err != nil {
		return nil, m.fail(err)
	}
	return &Meeting{linger: m.linger, Nonce: fmt.Sprintf("%s-%s-%d-%d", s.Nonce(), spec.name, m.world, m.gen), Records: recs}, nil
}

// meeting is one attempt in progress.
type meeting struct {
	s         store.Store
	me, world int
	spec      meetSpec
	start     time.Time
	base      string // prefix of the keys of all generations
	gen       int64
	entered   bool
}

func (m *meeting) key(parts ...string) string {
	return m.base + strconv.FormatInt(m.gen, 10) + "/" + strings.Join(parts, "/")
}

func (m *meeting) recKey(rank int) string { return m.key("rec", strconv.Itoa(rank)) }

// enter finds the open generation and publishes the record in it.
func (m *meeting) enter(ctx context.Context) error {
	rec, err := json.Marshal(m.spec.rec)
	if err != nil {
		return err
	}
	for {
		cur, ok, err := m.s.TryGet(ctx, m.base+"gen")
		if err != nil {
			return err
		}
		m.gen = 0
		if ok {
			if m.gen, err = strconv.ParseInt(string(cur), 10, 64); err != nil {
				return &RendezvousError{Rank: m.me, Reason: "the store holds a malformed generation", Err: err}
			}
		} else {
			cur = nil
		}
		_, closed, err := m.s.TryGet(ctx, m.key("state"))
		if err != nil {
			return err
		}
		if closed {
			next := strconv.AppendInt(nil, m.gen+1, 10)
			if _, _, err := m.s.CompareAndSet(ctx, m.base+"gen", cur, next); err != nil {
				return err
			}
			continue
		}
		was, won, err := m.s.CompareAndSet(ctx, m.recKey(m.me), nil, rec)
		if err != nil {
			return err
		}
		if !won {
			var other Record
			_ = json.Unmarshal(was, &other) // the message is worth having even if unreadable
			return &RendezvousError{Rank: m.me, Reason: fmt.Sprintf("processes %d and %d both claim to be rank %d", other.PID, m.spec.rec.PID, m.me)}
		}
		m.entered = true
		return nil
	}
}

// errGenFailed is the cause with which a failed generation ends waiting.
type errGenFailed struct {
	origin int
	err    error
}

func (e *errGenFailed) Error() string { return e.err.Error() }

// gather reads everyone's record.
func (m *meeting) gather(ctx context.Context) ([]Record, error) {
	wctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		v, err := m.s.Get(wctx, m.key("state"))
		if gone := failedState(v); err == nil && gone != nil {
			cancel(gone)
		}
	}()
	defer func() { cancel(nil); <-watched }()

	recs := make([]Record, m.world)
	for r := range recs {
		b, err := m.s.Get(wctx, m.recKey(r))
		if err != nil {
			var gone *errGenFailed
			if errors.As(context.Cause(wctx), &gone) {
				return nil, gone
			}
			return nil, err
		}
		if err := json.Unmarshal(b, &recs[r]); err != nil {
			return nil, &RendezvousError{Rank: m.me, Reason: fmt.Sprintf("record of rank %d is malformed", r), Err: err}
		}
	}
	cur, won, err := m.s.CompareAndSet(ctx, m.key("state"), nil, []byte("ready"))
	if err != nil {
		return nil, err
	}
	if gone := failedState(cur); !won && gone != nil {
		return nil, gone
	}
	return recs, nil
}

// failedState reads the state "failed RANK ERROR" of a generation; nil for any
// other.
func failedState(v []byte) *errGenFailed {
	rest, ok := bytes.CutPrefix(v, []byte("failed "))
	if !ok {
		return nil
	}
	rank, reason, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.Atoi(string(rank))
	if err != nil {
		return &errGenFailed{-1, &remoteError{"unreadable report of a failure"}}
	}
	return &errGenFailed{n, DecodeError(reason)}
}

// compare checks that all records agree with this rank's.
func (m *meeting) compare(ctx context.Context, recs []Record) error {
	mine := recs[m.me]
	for r, rec := range recs {
		switch {
		case rec.Version != mine.Version:
			return &RendezvousError{Rank: m.me, Reason: fmt.Sprintf("rank %d speaks version %d of the protocol, rank %d version %d", m.me, mine.Version, r, rec.Version)}
		case rec.Rank != r || rec.World != m.world || rec.Nonce != mine.Nonce:
			return &RendezvousError{Rank: m.me, Reason: fmt.Sprintf("record %d comes from rank %d of %d, job %.8s; expected job %.8s", r, rec.Rank, rec.World, rec.Nonce, mine.Nonce)}
		}
	}
	for r, rec := range recs {
		if rec.Digest != mine.Digest {
			return m.digestMismatch(ctx, recs, r)
		}
	}
	for r, rec := range recs {
		if rec.ArenaBytes != mine.ArenaBytes {
			return &SizeMismatchError{Op: "rendezvous", What: "arena bytes", Rank: m.me, Peer: r,
				RankValue: strconv.FormatInt(mine.ArenaBytes, 10), PeerVal: strconv.FormatInt(rec.ArenaBytes, 10)}
		}
	}
	return nil
}

// digestMismatch fetches the other program's text, if it can be had soon, and
// finds the first line that differs.
func (m *meeting) digestMismatch(ctx context.Context, recs []Record, peer int) error {
	e := &DigestMismatchError{Op: "rendezvous", Rank: m.me, Peer: peer, RankDigest: recs[m.me].Digest, PeerDigest: recs[peer].Digest}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	text := m.spec.text
	text = text[:min(len(text), store.MaxValue)]
	if err := m.s.Set(ctx, m.key("text", strconv.Itoa(m.me)), []byte(text)); err != nil {
		return e
	}
	other, err := m.s.Get(ctx, m.key("text", strconv.Itoa(peer)))
	if err != nil {
		return e
	}
	e.Line, e.RankLine, e.PeerLine = firstDifference(text, string(other))
	return e
}

// consequences are the lines of a program's text that follow from its signature and
// instructions: where its memory lies. They stand before what they follow from, so
// that the first of them to differ says nothing about why.
var consequences = []string{"events ", "arena ", "buffer "}

// firstDifference returns the first line of a, counted from 1, that differs from b's,
// and that line of each; 0 if they are equal. Consequences count only where nothing
// else differs.
func firstDifference(a, b string) (line int, la, lb string) {
	if line, la, lb = differ(a, b, consequences); line == 0 {
		line, la, lb = differ(a, b, nil)
	}
	return line, la, lb
}

// differ is firstDifference without the lines that begin with one of skip. Line is
// one beyond the last line of a where b only goes on.
func differ(a, b string, skip []string) (line int, la, lb string) {
	const keep = 300 // bytes of a line worth showing
	next := func(text *string) (l string, lines int) {
		for *text != "" {
			l, *text, _ = strings.Cut(*text, "\n")
			lines++
			if !slices.ContainsFunc(skip, func(s string) bool { return strings.HasPrefix(l, s) }) {
				return l, lines
			}
		}
		return "", lines + 1
	}
	for a != "" || b != "" {
		var n int
		la, n = next(&a)
		line += n
		lb, _ = next(&b)
		if la != lb {
			return line, la[:min(len(la), keep)], lb[:min(len(lb), keep)]
		}
	}
	return 0, "", ""
}

// linger returns when every rank has read everything, or ctx ends. Rank 0, which
// hosts the store as a rule, calls it before it closes the store. It is not part
// of meeting: a rank that dies right after it has published its record must not
// keep rank 0 from connecting to the others.
func (m *meeting) linger(ctx context.Context) {
	for r := range m.world {
		if m.me != 0 {
			return
		}
		if _, err := m.s.Get(ctx, m.ackKey(r)); err != nil {
			return
		}
	}
}

func (m *meeting) ackKey(rank int) string { return m.key("ack", strconv.Itoa(rank)) }

// leave notes that this rank has learnt of a failure; rank 0 stays until n ranks
// have, or limit has passed, so that they can still read the store that it hosts.
func (m *meeting) leave(n int, limit time.Duration) {
	if !m.entered {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	got, err := m.s.Add(ctx, m.key("left"), 1)
	for m.me == 0 && err == nil && got < int64(n) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Millisecond):
			got, err = m.s.Add(ctx, m.key("left"), 0)
		}
	}
}

// fail turns what went wrong into this package's errors, and tells the ranks
// that wait in the same generation.
func (m *meeting) fail(err error) error {
	var gone *errGenFailed
	if errors.As(err, &gone) {
		m.leave(m.world-len(m.absent()), 500*time.Millisecond)
		return m.adopt(gone)
	}
	present := m.world
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		present, err = m.timeout()
	case errors.Is(err, context.Canceled):
		err = &AbortedError{Op: "rendezvous", Rank: m.me, Origin: m.me, Err: err}
	default:
		err = storeFailure(m.me, m.start, err)
	}
	if m.entered {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		state := fmt.Appendf(nil, "failed %d %s", m.me, EncodeError(err, 1<<16))
		_, _, _ = m.s.CompareAndSet(ctx, m.key("state"), nil, state) // best effort: the others have deadlines of their own
		m.leave(present, 500*time.Millisecond)
	}
	return err
}

// adopt makes another rank's report of a failure this rank's own.
func (m *meeting) adopt(gone *errGenFailed) error {
	var t *TimeoutError
	if errors.As(gone.err, &t) {
		c := *t
		c.Rank, c.Elapsed = m.me, time.Since(m.start)
		return &c
	}
	return &AbortedError{Op: "rendezvous", Rank: m.me, Origin: gone.origin, Err: gone.err}
}

// absent lists the ranks that have no record in this generation.
func (m *meeting) absent() (ranks []int) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	for r := range m.world {
		if _, ok, err := m.s.TryGet(ctx, m.recKey(r)); err == nil && !ok {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// timeout names who did not come, and counts who did.
func (m *meeting) timeout() (present int, err error) {
	e := &TimeoutError{Op: "rendezvous", Rank: m.me, Missing: m.absent(), Elapsed: time.Since(m.start)}
	if len(e.Missing) > 0 {
		e.Peer = e.Missing[0]
	} else {
		e.Detail = "all ranks came, but the store, which rank 0 hosts, did not answer in time"
	}
	return m.world - len(e.Missing), e
}

// storeFailure explains an error of the store, which rank 0 hosts: not reaching
// it means that rank 0 has not come, losing it that rank 0 is gone.
func storeFailure(me int, start time.Time, err error) error {
	var ce *store.ConnError
	switch {
	case me != 0 && errors.As(err, &ce) && ce.Op == "dial":
		return &TimeoutError{Op: "rendezvous", Rank: me, Peer: 0, Missing: []int{0}, Elapsed: time.Since(start),
			Detail: fmt.Sprintf("nobody answers at %s, where rank 0 hosts the store", ce.Addr)}
	case me != 0 && (errors.As(err, &ce) || errors.Is(err, store.ErrClosed)):
		return &PeerLostError{Op: "rendezvous", Rank: me, Peer: 0}
	}
	var own *RendezvousError
	if errors.As(err, &own) {
		return err
	}
	return &RendezvousError{Rank: me, Reason: "the store failed", Err: err}
}

// beforeFirst returns a failure to join with the collective that comes first in
// the rank's programs, and so cannot run, after the word rendezvous: whoever reads
// the message finds the place in the program where the ranks would have met.
// Programs without a text (emitted code carries none) leave err as it is.
func beforeFirst(err error, mods []*Module, world int) error {
	var op *string // of a copy: ranks of one process may share the error
	named := err
	switch e := err.(type) {
	case *TimeoutError:
		c := *e
		op, named = &c.Op, &c
	case *PeerLostError:
		c := *e
		op, named = &c.Op, &c
	case *DigestMismatchError:
		c := *e
		op, named = &c.Op, &c
	case *SizeMismatchError:
		c := *e
		op, named = &c.Op, &c
	case *AbortedError:
		c := *e
		op, named = &c.Op, &c
	}
	if op == nil || *op != "rendezvous" {
		return err
	}
	if first := firstCollective(mods, world); first != "" {
		*op += " before " + first
	}
	return named
}

// firstCollective names the first collective of the first module that has one.
func firstCollective(mods []*Module, world int) string {
	for _, m := range mods {
		if m.Text == "" {
			if first := m.listing(world).first; first != "" {
				return first
			}
			continue
		}
		p, err := program.Parse(m.Name, m.Text)
		if err != nil {
			continue // Join does not need the text either
		}
		for i := range p.Instrs {
			in := &p.Instrs[i]
			if op, ok := ParseCollOp(in.Op); ok && in.Kind == program.Collective && in.Group >= 0 {
				c := Collective{Op: op, Group: p.Groups[in.Group].Name, Label: in.Node}
				return c.Name()
			}
		}
	}
	return ""
}

// hostID names the machine: ranks with equal ids can share memory.
func hostID() string {
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(b))
	}
	h, _ := os.Hostname()
	return h
}
