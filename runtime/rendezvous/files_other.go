//go:build !linux

package rendezvous

import (
	"errors"
	"net"
	"time"
)

// fileConn carries no descriptors where processes cannot share memory in the way
// concert needs.
type fileConn struct{ *net.UnixConn }

func (c *fileConn) open()          {}
func (c *fileConn) attach([]int)   {}
func (c *fileConn) take(int) []int { return nil }
func (c *fileConn) drop()          {}

func sameUser(*net.UnixConn) error { return nil }

// delivered trusts that the kernel sends what a closed connection has written.
func delivered(net.Conn, time.Duration) {}

// setUserTimeout leaves the connection to keepalives.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }

// CloseFiles does nothing.
func CloseFiles(...int) {}

// Machine names this boot of this machine and the network namespace: equal in all
// processes that can share memory and sockets.
func Machine() (string, error) { return "", errors.ErrUnsupported }

func dupFile(int) (int, error) { return 0, errors.ErrUnsupported }
