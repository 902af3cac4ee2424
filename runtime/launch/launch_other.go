//go:build !linux

package launch

import (
	"net"
	"syscall"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// newJob makes a job at a port that is free now.
func newJob() (*rendezvous.Job, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	return rendezvous.NewJob("tcp:" + ln.Addr().String()), nil
}

// dieWithParent does nothing where the kernel offers nothing.
func dieWithParent() *syscall.SysProcAttr { return nil }

func pinThread() (unpin func()) { return func() {} }
