package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Dial connects to the job's listener, trying again until ctx ends, because it may
// start last. A listener of another job is a *MismatchError at once.
func Dial(ctx context.Context, job *Job) (*Conn, error) { return dial(ctx, job, dials) }

func dial(ctx context.Context, job *Job, as side) (*Conn, error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	var cfg *tls.Config // a question needs none
	if as == dials {
		var err error
		if cfg, err = job.config(); err != nil {
			return nil, err
		}
	}
	network, addr, _ := strings.Cut(job.Addr, ":")
	const firstPause, lastPause = time.Millisecond, 50 * time.Millisecond
	refused := false
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			var c *Conn
			if c, err = handshake(ctx, raw, job, cfg, as); err == nil {
				return c, nil
			}
			var other *unauthenticatedError
			if errors.As(err, &other) && (as != asks || refused) { // once, what was sealed may have been disturbed
				return nil, fmt.Errorf("who listens at %s is not of this job: %w", job.Addr, err)
			}
			refused = other != nil
			// A listener that ends hangs up: the next one may be about to begin.
		}
		select {
		case <-ctx.Done():
			return nil, &dialError{addr: job.Addr, why: context.Cause(ctx), last: err}
		case <-time.After(pause):
		}
	}
}

// dialError says that there was no answer until the context ended.
type dialError struct {
	addr      string
	why, last error
}

func (e *dialError) Error() string {
	return fmt.Sprintf("nobody answers at %s: %v", e.addr, e.last)
}

func (e *dialError) Unwrap() []error { return []error{e.why, e.last} }
