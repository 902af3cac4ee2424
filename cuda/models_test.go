//go:build linux

package cuda

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/leak"
)

// Tests of collectives run in both process models: one process drives all ranks, or each
// rank has a process of its own. newRigT gives a test the world that is asked for, so that
// the tests are the same; TestProcesses runs this binary once for each rank, and every
// process runs the same tests in the same order.
//
// Such a test drives the ranks of this process only: r.g.Members() and r.local(). It makes
// data alike in all processes.

// bothModels are the tests that TestProcesses runs.
var bothModels = []string{
	"TestCollectives", "TestRankOrder", "TestUnevenAllToAll", "TestRooted", "TestSignals", "TestGroups",
	"TestWork", "TestReplay", "TestEpochWrap", "TestPushSizes", "TestPushCredits", "TestSequences",
	"TestHasMulticast", "TestQuiet", "TestQuietTimeout", "TestEngineRest", "TestInPlaceReplay", "TestTimeout",
	"TestEager", "TestEagerUneven", "TestEagerBroadcastSources", "TestWorkHandles", "TestEagerPlans", "TestEagerCaptured", "TestEagerThreads",
	"TestUnevenSizes", "TestStaleWrap", "TestExitCounters",
	"TestEagerUnusable", "TestPadSizes", "TestPadWords", "TestPadRefuses", "TestWriteValueOrder", "TestGetPut", "TestTwoStreamBarrier", "TestRings", "TestWaitValueClosed",
	"TestSoak", "TestBehind4GiB",
	"TestOverlappingGroups", "TestRecycledGroup", "TestReadAfterAbort", "TestCapturedOnly", "TestSkewedReplays",
	"TestExpertAllToAll", "TestOneShotCopies", "TestGatherMatmul",
}

// processT is what a process of one rank knows of itself.
type processT struct {
	rank, n int
	job     testJob
	worlds  int // that tests have opened
}

// process is nil in a process that drives all ranks.
var process *processT

// ranksOf is how many ranks a test has that would like n: as many as there are, where
// each has a process.
func ranksOf(n int) int {
	if process != nil {
		return min(n, process.n)
	}
	return n
}

// runAsProcess runs the tests that the command line names as one rank of several processes.
func runAsProcess(m *testing.M) int {
	p := &processT{job: jobOf(envJob)}
	p.rank, _ = strconv.Atoi(os.Getenv(envRank))
	p.n, _ = strconv.Atoi(os.Getenv(envWorld))
	process = p
	release := func() {}
	if *onGPU {
		release = holdContexts(p.rank)
	}
	defer release()
	before := leak.Now()
	code := m.Run()
	if code == 0 && !*onGPU {
		if l := before.More(); l != "" {
			fmt.Println(l)
			return 1
		}
	}
	return code
}

// world opens the world of the first n ranks; the processes of others skip the test.
func (p *processT) world(t testing.TB, n int, o symm.WorldOptions) (*switched, *symm.World) {
	t.Helper()
	p.worlds++
	switch {
	case n > p.n:
		t.Skipf("%d ranks, %d processes", n, p.n)
	case p.rank >= n:
		t.Skipf("rank %d has no part in a world of %d", p.rank, n)
	}
	sw := &switched{newDriverOf(t, n)}
	return sw, p.worldOn(t, sw, n, o)
}

// worldOn opens this process's part of the next world.
func (p *processT) worldOn(t testing.TB, drv driver.Driver, n int, o symm.WorldOptions) *symm.World {
	t.Helper()
	m := p.job.Part(strconv.Itoa(p.worlds))
	m.Timeout = 10 * time.Minute // others may be in tests in which this process has no part
	w, err := processWorld(t.Context(), drv, m, p.rank, n, p.rank, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestProcesses runs the tests of both models with a process for every rank. The fake
// driver's processes wait for each other's turns on the host's processors: they run what
// the tests run with -short, and with -short here without the longest.
func TestProcesses(t *testing.T) {
	if process != nil {
		t.Skip("this is one of the processes")
	}
	n := processRanks(t, 4)
	tests := slices.Clone(bothModels)
	if *onGPU {
		tests = append(tests, "TestBigTensor")
	}
	if testing.Short() { // what ranks of one process share is seen in one process
		tests = []string{"TestRankOrder", "TestRooted", "TestGroups", "TestWork", "TestReplay", "TestTimeout", "TestEagerPlans", "TestEagerThreads", "TestCapturedOnly"}
	}
	args := []string{"-test.run=^(" + strings.Join(tests, "|") + ")$", "-test.v", "-test.timeout=9m", fmt.Sprintf("-test.short=%v", testing.Short() || !*onGPU), fmt.Sprintf("-gpu=%v", *onGPU)}
	begin := time.Now()
	out := spawn(t, "tests", n, args...)
	t.Logf("%d processes took %v", n, time.Since(begin).Round(time.Millisecond))
	for _, o := range out {
		passed, skipped, problems := results(o.lines)
		for _, name := range tests { // rank 0 has a part in all; without its peers it could not end
			if o.rank == 0 && !passed[name] {
				if n < 4 && skipped[name] {
					t.Logf("%s needs more than %d ranks", name, n)
					continue
				}
				problems = append(problems, name+" has not passed")
			}
		}
		if o.err != nil || len(problems) > 0 {
			t.Errorf("rank %d: %v: %s\n%s", o.rank, o.err, strings.Join(problems, "; "), strings.Join(tail(o.lines, 60), "\n"))
		}
	}
}

// results reads what tests with -test.v printed: which have passed, been left out, failed.
func results(lines []string) (passed, skipped map[string]bool, failed []string) {
	passed, skipped = map[string]bool{}, map[string]bool{}
	for _, l := range lines {
		what, rest, ok := strings.Cut(strings.TrimSpace(l), ": ")
		name, _, _ := strings.Cut(rest, " ")
		switch {
		case !ok:
		case what == "--- PASS":
			passed[name] = true
		case what == "--- SKIP":
			skipped[name] = true
		case what == "--- FAIL":
			failed = append(failed, name)
		}
	}
	return passed, skipped, failed
}

func tail(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }
