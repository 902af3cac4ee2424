//go:build !linux

package cuda

import (
	"context"
	"errors"
	"time"
)

var errProcesses = errors.New("worlds of several processes need Linux")

// control is empty where worlds have one process only.
type control struct{}

func (c *control) Close() error                        { return nil }
func (c *control) tell(group, rank int, reason string) {}
func (c *control) skip(error)                          {}

// Meeting is for Linux only.
type Meeting struct {
	Name    string
	Secret  string
	Timeout time.Duration
}

// Token is empty: there are no meetings.
func (m Meeting) Token() string { return "" }

// ParseMeeting fails: worlds of several processes need Linux.
func ParseMeeting(token string) (Meeting, error) { return Meeting{}, errProcesses }

// Part is the same meeting.
func (m Meeting) Part(name string) Meeting { return m }

// NewMeeting fails: worlds of several processes need Linux.
func NewMeeting() (Meeting, error) {
	return Meeting{}, errProcesses
}

// Compare returns at once: there is only one process.
func (w *World) Compare(ctx context.Context, text string) ([]string, error) {
	return []string{text}, context.Cause(ctx)
}

// Meet returns at once: there is only one process.
func (w *World) Meet(ctx context.Context) error { return context.Cause(ctx) }

// NewProcessWorld fails: worlds of several processes need Linux.
func NewProcessWorld(ctx context.Context, drv Driver, m Meeting, rank, n, dev int, o WorldOptions) (*World, error) {
	return nil, errProcesses
}
