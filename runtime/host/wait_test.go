package host_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/runtime/launch"
)

// gate makes the ranks of spec wait for each other before they join, and then calls open, if
// not nil: how long processes take to start is no part of what deadlines bound.
func gate(t *testing.T, spec *launch.Spec, open func()) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "gate"))
	if err != nil {
		t.Fatal(err)
	}
	ranks := spec.World
	if spec.Ranks != nil {
		ranks = len(spec.Ranks)
	}
	spec.Env = append(spec.Env, envGate+"="+ln.Addr().String())
	var wg sync.WaitGroup
	wg.Go(func() {
		for range ranks {
			c, err := ln.Accept()
			if err != nil {
				return // the test has ended without it
			}
			defer c.Close()
		}
		if open != nil {
			open()
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
}

// pass waits at the gate.
func pass() error {
	at := os.Getenv(envGate)
	if at == "" {
		return nil
	}
	c, err := net.Dial("unix", at)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.ReadAll(c)
	return err
}

// running is for how many milliseconds this process ran while f did: of a stall it counts a few.
func running(f func()) (ms int) {
	const step = 5
	tick := time.NewTicker(step * time.Millisecond)
	defer tick.Stop()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	for {
		select {
		case <-done:
			return ms
		case <-tick.C:
			ms += step
		}
	}
}

// missing runs a job of which one rank does not join, with a deadline of joining. A machine that
// stands still may keep others from it as well: then all get more time, up to what no stall takes.
func missing(t *testing.T, rank int, run func(out *output, join time.Duration) error) (said string, err error) {
	t.Helper()
	names := regexp.MustCompile(`(?:waiting for|too late:) ranks? ([0-9, ]+)`)
	for join := time.Second; ; join *= 4 {
		out := &output{}
		err = run(out, join)
		others := false
		for _, r := range rest(rank) {
			if e := launch.ErrorOf(err, r); e != nil {
				m := names.FindStringSubmatch(e.Stderr)
				others = others || m != nil && strings.TrimSpace(m[1]) != strconv.Itoa(rank)
			}
		}
		if !others || join > time.Minute {
			return out.String(), err
		}
		t.Logf("others than rank %d are missing after %v: %v", rank, join, err)
	}
}
