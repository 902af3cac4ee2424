// Package loopback allocates unused loopback addresses for tests.
package loopback

import (
	"fmt"
	"os"
	"sync/atomic"
)

// Addrs are addresses of one test binary. The zero Addrs is ready.
type Addrs struct{ n atomic.Uint32 }

// Next is an address of the form tcp:HOST:PORT. Its host follows from the process's id and a
// count: a port that was free a moment ago may be taken by then, as the source of a
// connection or by another test. Linux has all of 127.0.0.0/8.
func (a *Addrs) Next() string {
	pid, n := os.Getpid(), a.n.Add(1)
	return fmt.Sprintf("tcp:127.%d.%d.%d:29500", 1+pid>>8&0x7f, pid&0xff, 1+n%254)
}
