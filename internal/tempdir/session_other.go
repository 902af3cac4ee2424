//go:build !unix

package tempdir

import "syscall"

func ownSession() *syscall.SysProcAttr { return nil }
