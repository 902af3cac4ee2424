package rendezvous

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// A rank whose parent is not rank 0 asks rank 0 where that is, over a connection that ends when
// it has a session there. All that is said is who asks, an address, and how the world ends that
// does not form, so it does without TLS, whose signatures would cost rank 0 as much as a
// session: both sides say a random number, and keys of AES-GCM, one for each direction, follow
// from the job's secret and both numbers. Nobody can read, change, move or repeat a record.
//
//	rank    askMark, number
//	rank 0  number, length of the job's identity, identity, a record of nothing
//	rank    a record of nothing
//
// and then what is said over TLS as well, in records.

// askMark is a byte with which no greeting of TLS begins.
const askMark = 0xC0

const (
	numberSize = 16
	maxRecord  = 16 << 10
)

// sealed is a connection over which records travel.
type sealed struct {
	net.Conn
	in, out cipher.AEAD
	got     uint64 // records
	sent    uint64
	rest    []byte // of a record that was read
}

// keys follow from the secret and both numbers.
func (s *sealed) keys(job *Job, numbers []byte, server bool) error {
	var aead [2]cipher.AEAD
	for i, direction := range []string{"concert question up", "concert question down"} {
		key, err := hkdf.Key(sha256.New, []byte(job.Secret.Reveal()), append([]byte(job.ID), numbers...), direction, 32)
		if err != nil {
			return err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		if aead[i], err = cipher.NewGCM(block); err != nil {
			return err
		}
	}
	if s.out, s.in = aead[0], aead[1]; server {
		s.out, s.in = s.in, s.out
	}
	return nil
}

// ask begins a question, and knows then that the other side is rank 0.
func (s *sealed) ask(job *Job) error {
	numbers := make([]byte, 2*numberSize)
	rand.Read(numbers[:numberSize])
	if _, err := s.Conn.Write(append([]byte{askMark}, numbers[:numberSize]...)); err != nil {
		return err
	}
	var size [1]byte
	if _, err := io.ReadFull(s.Conn, numbers[numberSize:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.Conn, size[:]); err != nil {
		return noEOF(err)
	}
	id := make([]byte, size[0])
	if _, err := io.ReadFull(s.Conn, id); err != nil {
		return noEOF(err)
	}
	if err := s.keys(job, numbers, false); err != nil {
		return err
	}
	err := s.record()
	if err == errRecord {
		err = &unauthenticatedError{other: fmt.Sprintf("%.40q", id), own: job.ID}
	}
	if err == nil {
		_, err = s.Conn.Write(s.seal(nil, nil))
	}
	return err
}

// answer takes up a question, and knows then that the other side is of
// the job.
func (s *sealed) answer(job *Job) error {
	numbers := make([]byte, 1+2*numberSize)
	rand.Read(numbers[1+numberSize:])
	if _, err := io.ReadFull(s.Conn, numbers[:1+numberSize]); err != nil {
		return noEOF(err)
	}
	numbers = numbers[1:]
	if err := s.keys(job, numbers, true); err != nil {
		return err
	}
	head := append(numbers[numberSize:], byte(len(job.ID)))
	if _, err := s.Conn.Write(s.seal(append(head, job.ID...), nil)); err != nil {
		return err
	}
	return s.record()
}

// seal appends b as a record.
func (s *sealed) seal(to, b []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, uint16(len(b)+s.out.Overhead()))
	s.sent++
	return s.out.Seal(to, nonceOf(s.sent), b, nil)
}

func nonceOf(record uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 4, 12), record) }

// errRecord is of a record that the other side has not made.
var errRecord = fmt.Errorf("a record that nobody of the job has made: %w", ErrUnauthenticated)

// record reads one.
func (s *sealed) record() error {
	var size [2]byte
	if _, err := io.ReadFull(s.Conn, size[:]); err != nil {
		return err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(s.Conn, b); err != nil {
		return noEOF(err)
	}
	s.got++
	b, err := s.in.Open(b[:0], nonceOf(s.got), b, nil)
	if err != nil || len(b) > maxRecord {
		return errRecord
	}
	s.rest = b
	return nil
}

// Read reads what records bring.
func (s *sealed) Read(b []byte) (int, error) {
	for len(s.rest) == 0 {
		if err := s.record(); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Write sends b in records.
func (s *sealed) Write(b []byte) (n int, err error) {
	for ; n < len(b); n += min(maxRecord, len(b)-n) {
		if _, err := s.Conn.Write(s.seal(nil, b[n:min(n+maxRecord, len(b))])); err != nil {
			return n, err
		}
	}
	return n, nil
}

// buffered is a connection of which something was read ahead.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func ahead(c net.Conn) *buffered { return &buffered{c, bufio.NewReaderSize(c, 512)} }

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }
