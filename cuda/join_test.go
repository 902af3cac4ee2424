//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newMeeting(t testing.TB, timeout time.Duration) Meeting {
	t.Helper()
	m, err := NewMeeting()
	if err != nil {
		t.Fatal(err)
	}
	m.Timeout = timeout
	return m
}

// joinOn joins on a driver of its own, on which nothing may be left.
func joinOn(t testing.TB, m Meeting, rank, n int) (*World, error) {
	f := NewFake(n)
	t.Cleanup(func() {
		if l := f.sortedLeaks(); l != "" {
			t.Errorf("rank %d did not release %s", rank, l)
		}
	})
	return NewProcessWorld(t.Context(), f, m, rank, n, rank, WorldOptions{Bytes: 1 << 20, Images: images(t)})
}

func dial(t testing.TB, m Meeting) *net.UnixConn {
	t.Helper()
	for range 400 {
		if c, err := net.DialUnix("unix", nil, address(m)); err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nobody listens")
	return nil
}

// TestStrangers lets others than the ranks connect to a meeting. None of them may keep
// it from taking place, or get memory.
func TestStrangers(t *testing.T) {
	if *onGPU {
		t.Skip("the meeting is the same without GPUs")
	}
	m := newMeeting(t, 20*time.Second)
	other := newMeeting(t, 20*time.Second)
	other.Name = m.Name
	result := make(chan error, 2)
	begin := time.Now()
	go func() {
		w, err := joinOn(t, m, 0, 2)
		if err == nil {
			err = errors.Join(w.Meet(t.Context()), w.Close())
		}
		result <- err
	}()
	dial(t, m) // says nothing
	dial(t, m).Close()
	for _, b := range [][]byte{bytes.Repeat([]byte("x"), 1000), binary.LittleEndian.AppendUint32(nil, 1<<31), {2, 0, 0, 0, '{', '}'}} {
		if _, err := dial(t, m).Write(b); err != nil {
			t.Error(err)
		}
	}
	// One that listens to the greeting but cannot answer it, and memory that is not wanted.
	c := dial(t, m)
	var g greeting
	if err := send(c, greeting{Challenge: []byte("guess")}); err != nil {
		t.Error(err)
	}
	if _, err := receiveAll(c, &g, 0); err != nil || len(g.Challenge) < 16 {
		t.Errorf("greeting %v, %v", g, err)
	}
	fd, err := unix.MemfdCreate("foreign", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(c, hello{Version: protocolVersion, Rank: 1, World: 2, Proof: g.Proof}, fd); err != nil {
		t.Error(err)
	}
	unix.Close(fd)
	c.SetDeadline(time.Now().Add(5 * time.Second))
	var w message
	if fds, err := receiveAll(c, &w, 4); err == nil || len(fds) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without the secret: %v, %d descriptors, %v", w, len(fds), err)
	}
	if _, err := joinOn(t, other, 1, 2); !errors.Is(err, ErrStranger) {
		t.Errorf("with another secret: %v", err)
	}
	go func() {
		w, err := joinOn(t, m, 1, 2)
		if err == nil {
			err = errors.Join(w.Meet(t.Context()), w.Close())
		}
		result <- err
	}()
	if err := errors.Join(<-result, <-result); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > helloLimit-time.Second {
		t.Errorf("the strangers delayed the meeting by %v", d)
	}
}

// TestImpostor listens in rank 0's place, without the secret.
func TestImpostor(t *testing.T) {
	if *onGPU {
		t.Skip("the meeting is the same without GPUs")
	}
	m := newMeeting(t, 20*time.Second)
	l, err := net.ListenUnix("unix", address(m))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan int, 1)
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			got <- -1
			return
		}
		defer c.Close()
		var g greeting
		receiveAll(c, &g, 0)
		send(c, greeting{Challenge: make([]byte, 16), Proof: g.Challenge})
		var h hello
		fds, _ := receiveAll(c, &h, 1)
		closeAll(fds)
		got <- len(fds)
	}()
	if _, err := joinOn(t, m, 1, 2); !errors.Is(err, ErrStranger) {
		t.Errorf("got %v", err)
	}
	if n := <-got; n != 0 {
		t.Errorf("the impostor got %d descriptors", n)
	}
	if _, err := joinOn(t, m, 0, 2); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("rank 0, where somebody listens: %v", err)
	}
}

// TestOtherUser connects as another user, which takes the right to become one.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	m := newMeeting(t, 20*time.Second)
	l, err := net.ListenUnix("unix", address(m))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	step := make(chan error)
	leave := make(chan bool)
	go func() {
		runtime.LockOSThread() // credentials are a thread's; this one ends with the goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); e != 0 {
			step <- e
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + m.Name})
		}
		step <- err
		<-leave
	}()
	defer close(leave)
	if err := <-step; err != nil {
		t.Skipf("this process cannot become another user: %v", err)
	}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := sameUser(c); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("another user: %v", err)
	}
	if _, err := m.greet(c); err == nil {
		t.Error("another user was greeted")
	}
	mine := dial(t, m)
	if err := sameUser(mine); err != nil {
		t.Errorf("the own user: %v", err)
	}
}

// TestJoinTimeout: who does not join in time is named, to all who came, as a timeout.
func TestJoinTimeout(t *testing.T) {
	if *onGPU {
		t.Skip("the meeting is the same without GPUs")
	}
	for _, c := range []struct {
		come    []int
		missing []int
	}{{[]int{0}, []int{1, 2}}, {[]int{1}, []int{0}}, {[]int{0, 1}, []int{2}}} {
		m := newMeeting(t, 300*time.Millisecond)
		errs := make(chan error)
		for _, rank := range c.come {
			wait := m
			wait.Timeout *= time.Duration(1 + 10*rank) // rank 0 knows more
			if len(c.come) == 1 {
				wait = m
			}
			go func() {
				_, err := joinOn(t, wait, rank, 3)
				errs <- err
			}()
		}
		for range c.come {
			var late *MeetingTimeoutError
			if err := <-errs; !errors.Is(err, ErrTimeout) || !errors.As(err, &late) || !slices.Equal(late.Missing, c.missing) {
				t.Errorf("%v without %v: %v", c.come, c.missing, err)
			}
		}
	}
}

// TestCloseOnExec looks at every descriptor that a world opens or receives.
func TestCloseOnExec(t *testing.T) {
	open := func() map[int]string {
		out := map[int]string{}
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range e {
			fd, _ := strconv.Atoi(d.Name())
			if to, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil {
				out[fd] = to
			}
		}
		return out
	}
	openPoller()
	before := open()
	_, done := pairOf(t, time.Minute)
	defer done()
	seen := 0
	for fd, to := range open() {
		if before[fd] == to {
			continue
		}
		seen++
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d, %s: flags %d, %v", fd, to, flags, err)
		}
	}
	if seen < 4 { // two sockets, two memories at least
		t.Errorf("only %d descriptors", seen)
	}
	// What a message brings.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ends[i] = c.(*net.UnixConn)
	}
	if err := send(ends[0], message{}, 0, 0); err != nil {
		t.Fatal(err)
	}
	var m message
	fds, err := receiveAll(ends[1], &m, 2)
	if err != nil || len(fds) != 2 {
		t.Fatal(fds, err)
	}
	for _, fd := range fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("received descriptor %d: flags %d, %v", fd, flags, err)
		}
	}
	closeAll(fds)
	// More than are expected are not let in.
	if err := send(ends[0], message{}, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	held := countFDs()
	fds, err = receiveAll(ends[1], &m, 2)
	closeAll(fds)
	if err == nil || countFDs() != held {
		t.Errorf("three descriptors where two are expected: %v, %d more held", err, countFDs()-held)
	}
}

func TestMeetingToken(t *testing.T) {
	m := newMeeting(t, 0)
	again, err := ParseMeeting(m.Token())
	if err != nil || again != m {
		t.Errorf("%v, %v", again, err)
	}
	if n := newMeeting(t, 0); n.Name == m.Name || n.Secret == m.Secret || strings.Contains(m.Name, m.Secret) || len(m.Secret) < 32 {
		t.Errorf("%v and %v", m, n)
	}
	if p := m.Part("x"); p.Secret != m.Secret || p.Name == m.Name || p.Name == m.Part("y").Name {
		t.Errorf("part %v of %v", p, m)
	}
	var bad *ArgumentError
	for _, s := range []string{"", "name", "name ", "name short", " 0123456789abcdef", strings.Repeat("n", 108) + " 0123456789abcdef", "a b 0123456789abcdef"} {
		if _, err := ParseMeeting(s); !errors.As(err, &bad) || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, m := range []Meeting{{}, {Name: "x"}, {Secret: m.Secret}} {
		if _, err := joinOn(t, m, 0, 2); !errors.As(err, &bad) {
			t.Errorf("%v: %v", m, err)
		}
	}
}

// TestNoPeerAccess: devices that cannot reach each other form no world of one process.
func TestNoPeerAccess(t *testing.T) {
	if *onGPU {
		t.Skip("the GPUs of this machine reach each other")
	}
	f := NewFake(3)
	f.Separate(1, 2)
	_, err := NewLocalWorld(f, []int{0, 1, 2}, WorldOptions{Bytes: 1 << 20, Images: images(t)})
	var apart *NoPeerAccessError
	if !errors.As(err, &apart) || apart.Dev != 1 || apart.Peer != 2 || !strings.Contains(err.Error(), "device 1 cannot access the memory of device 2") {
		t.Errorf("got %v", err)
	}
	w, err := NewLocalWorld(f, []int{0, 1}, WorldOptions{Bytes: 1 << 20, Images: images(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if l := f.sortedLeaks(); l != "" {
		t.Errorf("not released: %s", l)
	}
}

// TestGroupsForgotten makes groups one after the other: nothing may stay of those that
// are closed.
func TestGroupsForgotten(t *testing.T) {
	ws, done := pairOf(t, time.Minute)
	defer done()
	for range 20 {
		err := both(func(i int) error {
			g, err := ws[i].NewGroup(t.Context(), []int{0, 1}, smallGroup(false, 2))
			return errors.Join(err, g.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range ws {
		if len(w.groups) != 0 || w.heap.inUse() != 0 || len(w.control.points.ruled)+len(w.control.points.open)+len(w.control.points.waiting) != 0 {
			t.Errorf("rank %d keeps %d groups, %d bytes and %+v", i, len(w.groups), w.heap.inUse(), w.control.points)
		}
	}
}
