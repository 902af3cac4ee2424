//go:build !linux

package cuda

import "errors"

// control is empty where worlds have one process only.
type control struct{}

func (c *control) Close() error           { return nil }
func (c *control) whenLost(f func(error)) {}
func (w *World) meet() error              { return nil }

// Meeting is for Linux only.
type Meeting struct{ Name string }

// NewMeeting fails: worlds of several processes need Linux.
func NewMeeting() (Meeting, error) {
	return Meeting{}, errors.New("worlds of several processes need Linux")
}

// Meet returns at once: there is only one process.
func (w *World) Meet() error { return nil }
