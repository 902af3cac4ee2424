package rendezvous

import (
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOtherUser connects as another user, which takes the right to become one: not even the
// secret would help.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	job := NewJob("")
	name := strings.TrimPrefix(job.Addr, "unix:")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	step, leave := make(chan error), make(chan bool)
	go func() {
		runtime.LockOSThread() // credentials are a thread's; this one ends with the goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); e != 0 {
			step <- e
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
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
	if err := sameUser(c); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("another user: %v", err)
	}
	cfg, err := job.config()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(t.Context(), c, job, cfg, serves); err == nil || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("another user shook hands: %v", err)
	}
}
