//go:build linux

package cuda

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Processes of one world meet over a unix socket, at which rank 0 listens. Its name is in
// Linux's abstract space, so nothing is left in a folder; it holds a nonce, so that no two
// meetings have one name, but it is no secret: every process of the host can list it. So
// whoever connects and who listens prove to each other that they know the meeting's
// secret, by challenges that both choose, and that they belong to the same user, before
// any memory changes hands. Then every process sends what it is and a file descriptor of
// its symmetric memory, or the memory's handle in an NVLink fabric. Rank 0 compares all
// of it and sends every process all descriptors or handles. The connections stay open:
// the end of one means that a process died, and rank 0 then tells the others, who abort
// their groups at once.
//
// Rank 0 talks to all who come at the same time and gives each a few seconds to prove
// that it belongs here. A stranger, silent or not, holds nobody up.

// Meeting tells the processes of a world where to find each other and how to know each
// other. NewMeeting makes one. Who starts the processes hands it to them as its Token, in
// their environment or by a file descriptor, but not on the command line, which all users
// can read. Processes that others start get it by what brought them together, such as a
// rendezvous store.
type Meeting struct {
	Name    string        // of the socket; not secret
	Secret  string        // that every process of the world knows, and nobody else
	Timeout time.Duration // for joining and for each later meeting; 0 is one minute
}

// NewMeeting makes a meeting with a name and a secret of 128 random bits each.
func NewMeeting() (Meeting, error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return Meeting{}, err
	}
	return Meeting{Name: "concert-" + hex.EncodeToString(b[:16]), Secret: hex.EncodeToString(b[16:])}, nil
}

// Token is name and secret in one text without blanks at its ends, for ParseMeeting.
func (m Meeting) Token() string { return m.Name + " " + m.Secret }

// ParseMeeting is the reverse of Token. Its error, an *ArgumentError, does not show the
// secret.
func ParseMeeting(token string) (Meeting, error) {
	name, secret, _ := strings.Cut(token, " ")
	m := Meeting{Name: name, Secret: secret}
	return m, m.check()
}

// Part is another meeting of the same processes, which know it by its name.
func (m Meeting) Part(name string) Meeting {
	m.Name += "-" + name
	return m
}

// mostName is what a socket's address holds.
const mostName = 107

func (m Meeting) check() error {
	switch {
	case m.Name == "" || len(m.Name) > mostName || strings.ContainsAny(m.Name, " \x00"):
		return bad("Meeting.Name", "it needs 1 to %d bytes without blanks, got %q", mostName, m.Name)
	case len(m.Secret) < 16 || strings.Contains(m.Secret, " "):
		return bad("Meeting.Secret", "it needs 16 bytes or more without blanks; NewMeeting makes one, and Token hands it on")
	}
	return nil
}

func (m Meeting) timeout() time.Duration {
	if m.Timeout > 0 {
		return m.Timeout
	}
	return time.Minute
}

// proof shows that who plays a part knows the secret. Challenges of both sides are in it.
func (m Meeting) proof(part string, theirs, ours []byte) []byte {
	h := hmac.New(sha256.New, []byte(m.Secret))
	fmt.Fprintf(h, "concert %s %s %x %x", part, m.Name, theirs, ours)
	return h.Sum(nil)
}

const protocolVersion = 5

// ErrStranger means that who listens at a meeting does not belong to it.
var ErrStranger = errors.New("who listens at the meeting does not know its secret")

// greeting is the first message of either side. The one who connects begins.
type greeting struct {
	Challenge []byte
	Proof     []byte // of who listens
}

// hello is what a process says of itself.
type hello struct {
	Version int
	Proof   []byte
	Rank    int
	World   int
	Host    string
	UUID    string
	Stride  uint64
	Digest  string // of the kernels
	Share   bool
	Sharing string // how memory is shared
	// Multicast is whether groups try for it, which takes more meetings.
	Multicast bool
	Handle    []byte // of the fabric, else a file descriptor comes along
}

// helloLimit is how long who connects has to prove that it belongs here.
const helloLimit = 5 * time.Second

func challenge() ([]byte, error) {
	b := make([]byte, 16)
	_, err := rand.Read(b)
	return b, err
}

// meet joins the meeting and exchanges memory: own is this process's, the answer has
// one gift for every rank, which the caller closes. ours must be the same on every
// rank but for Rank, UUID, Handle and Proof.
func (m Meeting) meet(ctx context.Context, ours hello, own gift) (c *control, all []gift, err error) {
	ours.Handle = own.handle
	c = &control{rank: ours.Rank, world: ours.World, timeout: m.timeout(), conns: make([]*net.UnixConn, ours.World), left: make([]bool, ours.World), points: newMeetings(), handed: none}
	c.cond = sync.NewCond(&c.mu)
	defer func() {
		if err != nil {
			for _, conn := range c.conns {
				if conn != nil {
					conn.Close()
				}
			}
			closeGifts(all)
			c, all = nil, nil
		}
	}()
	limit, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	h := &hurry{}
	stop := context.AfterFunc(limit, h.now)
	if ours.Rank == 0 {
		all, err = c.lead(limit, m, ours, own, h)
	} else {
		all, err = c.follow(limit, m, ours, own, h)
	}
	stop()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("rank %d at the meeting: %w", ours.Rank, context.Cause(ctx))
	case err == nil && limit.Err() != nil: // the connections may be in a hurry
		err = &MeetingTimeoutError{Rank: ours.Rank, Waited: c.timeout}
	}
	if err != nil {
		return c, all, err
	}
	for r, conn := range c.conns {
		if conn != nil {
			conn.SetDeadline(time.Time{})
			c.readers.Add(1)
			go c.read(r, conn)
		}
	}
	return c, all, nil
}

func address(m Meeting) *net.UnixAddr { return &net.UnixAddr{Name: "@" + m.Name, Net: "unix"} }

// guest is who has proved that it belongs here.
type guest struct {
	conn *net.UnixConn
	said hello
	gift gift
}

// door lets guests in: it talks to everybody who connects at the same time.
type door struct {
	m      Meeting
	guests chan guest
	closed chan struct{}
	talks  sync.WaitGroup
	hurry  hurry
}

// open accepts until the listener is closed.
func (d *door) open(l *net.UnixListener) {
	defer d.talks.Done()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil: // who connected is gone, or descriptors ran out for now
			select {
			case <-d.closed:
				return
			case <-time.After(5 * time.Millisecond):
			}
			continue
		}
		d.talks.Add(1)
		go d.talk(conn)
	}
}

// talk hands over who connected, or shows it out.
func (d *door) talk(conn *net.UnixConn) {
	defer d.talks.Done()
	d.hurry.until(conn, time.Now().Add(helloLimit))
	g, err := d.m.greet(conn)
	if err != nil { // a stranger, not one of ours: no reason to give up
		conn.Close()
		return
	}
	select {
	case d.guests <- g:
	case <-d.closed:
		g.gift.close()
		conn.Close()
	}
}

// shut ends all talks.
func (d *door) shut(l *net.UnixListener) {
	l.Close()
	close(d.closed)
	d.hurry.now()
	d.talks.Wait()
}

// greet is rank 0's side of the proof.
func (m Meeting) greet(conn *net.UnixConn) (guest, error) {
	g := guest{conn: conn, gift: none}
	if err := sameUser(conn); err != nil {
		return g, err
	}
	var theirs greeting
	if fds, err := receiveAll(conn, &theirs, 0); err != nil {
		closeAll(fds)
		return g, err
	}
	ours, err := challenge()
	if err != nil {
		return g, err
	}
	if err := send(conn, greeting{Challenge: ours, Proof: m.proof("rank 0", theirs.Challenge, ours)}); err != nil {
		return g, err
	}
	if g.gift, err = receive(conn, &g.said); err != nil {
		return g, err
	}
	if !hmac.Equal(g.said.Proof, m.proof("rank "+strconv.Itoa(g.said.Rank), ours, theirs.Challenge)) {
		g.gift.close()
		return g, ErrStranger
	}
	return g, nil
}

// lead is rank 0's part of the exchange.
func (c *control) lead(ctx context.Context, m Meeting, ours hello, own gift, h *hurry) (all []gift, err error) {
	all = make([]gift, c.world)
	for i := range all {
		all[i] = none
	}
	if all[0], err = own.dup(); err != nil {
		return all, err
	}
	l, err := net.ListenUnix("unix", address(m))
	if err != nil {
		return all, fmt.Errorf("rank 0 cannot open the meeting: %w", err)
	}
	d := &door{m: m, guests: make(chan guest), closed: make(chan struct{})}
	d.talks.Add(1)
	go d.open(l)
	defer d.shut(l)
	start := time.Now()
	seen := map[string]int{ours.Host + " " + ours.UUID: 0}
	// All come before anybody is answered, so that a refusal reaches everybody.
	var wrong error
	var extra []*net.UnixConn
	for n := 1; n < c.world; n++ {
		var g guest
		select {
		case g = <-d.guests:
		case <-ctx.Done():
			late := &MeetingTimeoutError{Rank: 0, Waited: time.Since(start)}
			for r := 1; r < c.world; r++ {
				if c.conns[r] == nil {
					late.Missing = append(late.Missing, r)
				}
			}
			c.refuse(extra, late)
			return all, late
		}
		h.until(g.conn, time.Time{})
		if err := c.admit(g.said, ours, seen); err != nil {
			g.gift.close()
			extra = append(extra, g.conn)
			if wrong == nil {
				wrong = err
			}
			continue
		}
		c.conns[g.said.Rank], all[g.said.Rank] = g.conn, g.gift
	}
	if wrong != nil {
		c.refuse(extra, wrong)
		return all, wrong
	}
	var fds []int
	w := message{Kind: msgWelcome}
	for _, g := range all {
		fds = append(fds, g.fds()...)
		if g.handle != nil {
			w.Handles = append(w.Handles, g.handle)
		}
	}
	for r := 1; r < c.world; r++ {
		if err := send(c.conns[r], w, fds...); err != nil {
			return all, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return all, nil
}

// admit checks a process against rank 0.
func (c *control) admit(h, ours hello, seen map[string]int) error {
	for _, f := range []struct{ what, got, want string }{
		{"protocol version", fmt.Sprint(h.Version), fmt.Sprint(ours.Version)},
		{"world size", fmt.Sprint(h.World), fmt.Sprint(ours.World)},
		{"host", h.Host, ours.Host},
		{"way of sharing memory", h.Sharing, ours.Sharing},
		{"use of multicast", fmt.Sprint(h.Multicast), fmt.Sprint(ours.Multicast)},
		{"symmetric memory in bytes", fmt.Sprint(h.Stride), fmt.Sprint(ours.Stride)},
		{"digest of kernels", h.Digest, ours.Digest},
	} {
		if f.got != f.want {
			return &MismatchError{Rank: h.Rank, What: f.what, Got: f.got, Want: f.want}
		}
	}
	if h.Rank < 1 || h.Rank >= c.world {
		return &MismatchError{Rank: h.Rank, What: "rank", Got: fmt.Sprint(h.Rank), Want: fmt.Sprintf("a world of %d", c.world)}
	}
	if c.conns[h.Rank] != nil {
		return &MismatchError{Rank: h.Rank, What: "rank", Got: fmt.Sprint(h.Rank), Want: "another process with that rank"}
	}
	if other, ok := seen[h.Host+" "+h.UUID]; ok && !ours.Share {
		return fmt.Errorf("%w: ranks %d and %d", ErrSharedDevice, other, h.Rank)
	}
	seen[h.Host+" "+h.UUID] = h.Rank
	return nil
}

// refuse tells everybody who came why there will be no world; best effort, since
// the world fails anyway.
func (c *control) refuse(extra []*net.UnixConn, why error) {
	m := message{Kind: msgRefuse, Text: why.Error()}
	var late *MeetingTimeoutError
	if errors.As(why, &late) {
		m.Missing = late.Missing
	}
	for _, conn := range append(extra, c.conns...) {
		if conn != nil {
			conn.SetDeadline(time.Now().Add(time.Second))
			send(conn, m)
		}
	}
	for _, conn := range extra {
		conn.Close()
	}
}

// follow is every other rank's part.
func (c *control) follow(ctx context.Context, m Meeting, ours hello, own gift, h *hurry) ([]gift, error) {
	start := time.Now()
	for c.conns[0] == nil {
		conn, err := net.DialUnix("unix", nil, address(m))
		if err == nil {
			c.conns[0] = conn
			break
		}
		select {
		case <-ctx.Done():
			return nil, &MeetingTimeoutError{Rank: ours.Rank, Missing: []int{0}, Waited: time.Since(start)}
		case <-time.After(5 * time.Millisecond):
		}
	}
	conn := c.conns[0]
	h.until(conn, time.Time{})
	w, fds, err := m.introduce(conn, ours, own, c.world)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &MeetingTimeoutError{Rank: ours.Rank, Waited: time.Since(start)}
	case err == nil && w.Kind == msgRefuse && w.Missing != nil:
		err = &MeetingTimeoutError{Rank: ours.Rank, Missing: w.Missing, Waited: time.Since(start)}
	case err == nil && w.Kind == msgRefuse:
		err = fmt.Errorf("rank 0 refused the world: %s", w.Text)
	}
	if err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("rank %d at the meeting: %w", ours.Rank, err)
	}
	all, err := wrap(w.Handles, fds, c.world)
	if err != nil {
		return nil, fmt.Errorf("rank %d at the meeting: rank 0 sent %w", ours.Rank, err)
	}
	return all, nil
}

// introduce is the other side of greet. It gives rank 0's answer.
func (m Meeting) introduce(conn *net.UnixConn, ours hello, own gift, world int) (w message, fds []int, err error) {
	if err := sameUser(conn); err != nil {
		return w, nil, err
	}
	mine, err := challenge()
	if err != nil {
		return w, nil, err
	}
	if err := send(conn, greeting{Challenge: mine}); err != nil {
		return w, nil, err
	}
	var theirs greeting
	if fds, err := receiveAll(conn, &theirs, 0); err != nil {
		return w, fds, err
	}
	if !hmac.Equal(theirs.Proof, m.proof("rank 0", mine, theirs.Challenge)) {
		return w, nil, ErrStranger // and gets no memory
	}
	ours.Proof = m.proof("rank "+strconv.Itoa(ours.Rank), theirs.Challenge, mine)
	if err := send(conn, ours, own.fds()...); err != nil {
		return w, nil, err
	}
	fds, err = receiveAll(conn, &w, world)
	return w, fds, err
}

// hurry ends what waits for a socket when a context ends.
type hurry struct {
	mu    sync.Mutex
	ended bool
	open  []deadliner
}

type deadliner interface{ SetDeadline(time.Time) error }

// until sets a deadline, which is now once the context has ended.
func (h *hurry) until(s deadliner, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, s)
	if h.ended {
		t = time.Unix(1, 0)
	}
	s.SetDeadline(t) // fails where the socket is closed, which ends waits as well
}

// now moves all deadlines into the past.
func (h *hurry) now() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, s := range h.open {
		s.SetDeadline(time.Unix(1, 0))
	}
}
