package launch

import (
	"runtime"
	"syscall"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// newJob makes a job whose socket has a name of its own and needs no folder.
func newJob() (*rendezvous.Job, error) { return rendezvous.NewJob(""), nil }

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
