//go:build linux

package cuda

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return n, os.NewSyscallError("fcntl", err)
}

// sameUser checks the credentials that the kernel vouches for.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
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
	if int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("the other process belongs to user %d, this one to %d", cred.Uid, os.Getuid())
	}
	return nil
}

// send writes a length and JSON; descriptors travel with the first byte.
func send(conn *net.UnixConn, v any, fds ...int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	// One write, because several goroutines send on a connection.
	_, _, err = conn.WriteMsgUnix(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...), oob, nil)
	return err
}

// receive reads a hello and the memory that comes with it.
func receive(conn *net.UnixConn, h *hello) (gift, error) {
	fds, err := receiveAll(conn, h, 1)
	if err != nil {
		closeAll(fds)
		return none, err
	}
	var handles [][]byte
	if h.Handle != nil {
		handles = [][]byte{h.Handle}
	}
	g, err := wrap(handles, fds, 1)
	if err != nil {
		return none, err
	}
	return g[0], nil
}

// receiveAll reads a message and up to most descriptors, which are closed on exec.
func receiveAll(conn *net.UnixConn, v any, most int) (fds []int, err error) {
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(4*most))
	n, oobn, flags, _, err := conn.ReadMsgUnix(head[:], oob)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		for _, fd := range got {
			syscall.CloseOnExec(fd)
		}
		fds = append(fds, got...)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return fds, errors.New("file descriptors were cut off")
	}
	if _, err := io.ReadFull(conn, head[n:]); err != nil {
		return fds, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > 1<<20 {
		return fds, fmt.Errorf("a message of %d bytes", size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(conn, b); err != nil {
		return fds, err
	}
	return fds, json.Unmarshal(b, v)
}
