//go:build unix

package tempdir

import "syscall"

// ownSession keeps what a terminal sends to its processes from the guard.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
