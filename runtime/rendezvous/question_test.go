package rendezvous

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/leak"
)

// TestOneRule: sessions, and connections that carry tensors, agree on keys in one way, which
// outlasts quantum computers.
func TestOneRule(t *testing.T) {
	leak.Check(t)
	for _, session := range []bool{false, true} {
		job := NewJob("")
		job.asked = session
		l, err := Listen(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := l.Accept(t.Context()); err == nil {
				c.Close()
			}
		}()
		c, err := Dial(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if s := c.tls.(*tls.Conn).ConnectionState(); s.Version != tls.VersionTLS13 || s.CurveID != tls.X25519MLKEM768 {
			t.Errorf("session %v: version %x, keys by %v", session, s.Version, s.CurveID)
		}
		c.Close()
		l.Close()
	}
}

// FuzzSealed takes up a question of anybody: who does not know the secret is refused.
func FuzzSealed(f *testing.F) {
	f.Add([]byte("\xc00123456789abcdef"), []byte{0, 16})
	f.Fuzz(func(t *testing.T, number, rest []byte) {
		s := &sealed{Conn: &script{in: bytes.NewReader(slices.Concat(number, rest))}}
		if err := s.answer(NewJob("")); err == nil {
			t.Fatalf("%x is believed", rest)
		}
		s = &sealed{Conn: &script{in: bytes.NewReader(slices.Concat(number, rest))}}
		if err := s.ask(NewJob("")); err == nil {
			t.Fatalf("%x is believed to be rank 0", rest)
		}
	})
}

// script is a connection from which something comes, and that takes everything.
type script struct {
	net.Conn
	in io.Reader
}

func (s *script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error) { return len(b), nil }
