package rendezvous

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-ee968945/concert/internal/stall"
)

// fileConn lets descriptors travel with the bytes of a unix socket's connection.
type fileConn struct {
	*net.UnixConn
	mu   sync.Mutex
	on   bool  // the other side is known: descriptors are received
	out  []int // to go with the next write
	in   []int // came with what was read
	gone bool
}

func (c *fileConn) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = true
}

func (c *fileConn) attach(fds []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = fds
}

// take removes the first n descriptors that came, or as many as there are.
func (c *fileConn) take(n int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, len(c.in))
	fds := c.in[:n:n]
	c.in = c.in[n:]
	return fds
}

// drop closes descriptors that were received and not taken.
func (c *fileConn) drop() {
	CloseFiles(c.take(1 << 20)...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

// Write sends the attached descriptors with the first byte.
func (c *fileConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	fds := c.out
	c.out = nil
	c.mu.Unlock()
	if len(fds) == 0 {
		return c.UnixConn.Write(b)
	}
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil && n < len(b) {
		var more int
		more, err = c.UnixConn.Write(b[n:])
		n += more
	}
	return n, err
}

// Read keeps the descriptors that come. Before the other side is known it leaves no
// room for any, and the kernel closes them.
func (c *fileConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	on := c.on
	c.mu.Unlock()
	if !on {
		return c.UnixConn.Read(b)
	}
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return max(n, 0), err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, err
	}
	var fds []int
	for i := range msgs {
		got, perr := unix.ParseUnixRights(&msgs[i])
		if perr == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd) // Go asks the kernel to, where it can
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || flags&unix.MSG_CTRUNC != 0 || len(c.in)+len(fds) > 64 {
		CloseFiles(fds...)
		return n, fmt.Errorf("more descriptors than were agreed on")
	}
	c.in = append(c.in, fds...)
	return n, nil
}

// sameUser checks the credentials that the kernel vouches for.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if credErr != nil {
		return os.NewSyscallError("getsockopt", credErr)
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the other process belongs to user %d, this one to %d", cred.Uid, os.Geteuid())
	}
	return nil
}

// delivered waits, for limit at most, until the other end's machine has all that was
// written, so that closing, or the end of this process, loses nothing: what is there is
// read, and no process has to answer for that. A unix socket's other end has it at once.
func delivered(c net.Conn, limit time.Duration) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	const first, last = 20 * time.Microsecond, 2 * time.Millisecond
	least := math.MaxInt
	for clock, pause := stall.Start(), first; err == nil && clock.Look() < limit; pause = min(2*pause, last) {
		left := 0
		if cerr := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); cerr != nil || left == 0 {
			return
		}
		if left < least {
			least, clock = left, stall.Start()
		}
		time.Sleep(pause)
	}
}

// setUserTimeout ends a connection when what was sent has not been answered for so long.
func setUserTimeout(t *net.TCPConn, d time.Duration) error {
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, serr)
}

// CloseFiles closes descriptors; those that are negative are none.
func CloseFiles(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Machine names this boot of this machine and the network namespace: equal in all
// processes that can share memory and sockets.
func Machine() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	ns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	return string(b[:min(36, len(b))]) + " " + ns, nil
}

func dupFile(fd int) (int, error) {
	if fd < 0 {
		return -1, nil
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	return n, nil
}
