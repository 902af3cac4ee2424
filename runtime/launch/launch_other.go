//go:build !linux

package launch

import "syscall"

// dieWithParent does nothing where the kernel offers nothing.
func dieWithParent() *syscall.SysProcAttr { return nil }

func pinThread() (unpin func()) { return func() {} }
