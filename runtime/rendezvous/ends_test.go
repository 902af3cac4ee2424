package rendezvous

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
)

// endingConn calls end when a read has brought the rest of a message.
type endingConn struct {
	net.Conn
	reads int
	end   func()
}

func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.reads++; c.reads == 2 {
		c.end()
	}
	return n, err
}

// TestReceiveAtTheEnd: a context that ends when a message has come leaves the connection to who
// has it then.
func TestReceiveAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		ctx, end := context.WithCancel(t.Context())
		late := &endingConn{Conn: b, end: end}
		from, to := &Conn{raw: a, tls: a}, &Conn{raw: late, tls: late}
		go func() {
			from.write(message{Kind: kindHello})
			from.write(message{Kind: kindGone})
		}()
		for _, c := range []context.Context{ctx, t.Context()} {
			var m message
			if _, err := to.Receive(c, maxHello, &m); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
}
