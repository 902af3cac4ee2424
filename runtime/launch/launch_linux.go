package launch

import (
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that started it
// ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// pinThread keeps the goroutine's thread alive and to itself until the returned
// function is called.
func pinThread() (unpin func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
