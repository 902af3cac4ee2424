package store

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The wire format, so that programs in other languages can join a job. All
// numbers are big-endian.
//
//	frame    = length u32 (of what follows), version u8, code u8, id u64, body
//	request  body = key length u16, key, payload
//	response body = payload; code is a status; id repeats the request's
//
//	code      payload of the request             payload of the response
//	1 hello   "concert-store"                    nonce
//	2 set     value                              -
//	3 get     - (waits until the key exists)     value
//	4 tryget  -                                  found u8, value
//	5 add     delta i64                          sum i64
//	6 cas     hasOld u8, old length u32, old, new  swapped u8, current value
//	7 cancel  - (id names the get to give up)    none; the get answers "canceled"
//
// A connection starts with hello. Requests may be answered out of order.
const (
	wireVersion = 1
	helloMagic  = "concert-store"
	frameHead   = 1 + 1 + 8
	maxFrame    = frameHead + 2 + MaxKey + 5 + 2*MaxValue
)

// Request codes.
const (
	opHello = iota + 1
	opSet
	opGet
	opTryGet
	opAdd
	opCAS
	opCancel
)

// Response codes.
const (
	stOK       = iota
	stRefused  // payload: reason
	stVersion  // payload: reason; the connection ends
	stClosed   // the service is ending
	stCanceled // answer to a canceled get
)

// frame is one message in either direction.
type frame struct {
	version, code uint8
	id            uint64
	body          []byte
}

// writeFrame sends f with one Write call.
func writeFrame(w io.Writer, f frame) error {
	b := make([]byte, 0, 4+frameHead+len(f.body))
	b = binary.BigEndian.AppendUint32(b, uint32(frameHead+len(f.body)))
	b = append(b, f.version, f.code)
	b = binary.BigEndian.AppendUint64(b, f.id)
	_, err := w.Write(append(b, f.body...))
	return err
}

// maxHello bounds the first frame of a connection, so that a stranger cannot
// make the other side allocate much.
const maxHello = 1 << 10

// readFrame reads one message of at most max bytes. A length outside the limits
// is a *ProtocolError, found before anything is allocated for it.
func readFrame(r io.Reader, max uint32) (frame, error) {
	var head [4 + frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < frameHead || n > max {
		return frame{}, &ProtocolError{Reason: fmt.Sprintf("frame of %d bytes", n)}
	}
	f := frame{version: head[4], code: head[5], id: binary.BigEndian.Uint64(head[6:])}
	if n -= frameHead; n > 0 {
		f.body = make([]byte, n)
		if _, err := io.ReadFull(r, f.body); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
	}
	return f, nil
}

// request builds the body of a request.
func request(key string, payload ...[]byte) []byte {
	n := 2 + len(key)
	for _, p := range payload {
		n += len(p)
	}
	b := make([]byte, 0, n)
	b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	for _, p := range payload {
		b = append(b, p...)
	}
	return b
}

// splitRequest is request's inverse.
func splitRequest(b []byte) (key string, payload []byte, ok bool) {
	if len(b) < 2 {
		return "", nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return "", nil, false
	}
	return string(b[2 : 2+n]), b[2+n:], true
}

// casPayload packs the old value of a compare-and-set.
func casPayload(old []byte) []byte {
	b := make([]byte, 5, 5+len(old))
	if old != nil {
		b[0] = 1
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(old)))
	return append(b, old...)
}

// splitCAS is casPayload's inverse; what follows old is the new value.
func splitCAS(p []byte) (old, new []byte, ok bool) {
	if len(p) < 5 {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(p[1:]))
	if uint64(len(p)-5) < n {
		return nil, nil, false
	}
	old, new = p[5:5+n], p[5+n:]
	if p[0] == 0 {
		old = nil
	}
	return old, new, true
}
