"""The conformance table of BENCHMARKS.md, of what the driver's tests print.

    conformance.py "fake driver=FAKE.txt" "2 H200s=TWO.txt,..." "4 H200s=FOUR.txt,..."

Each file is the output of cuda.test with -test.v. A case passes where every test of it has
passed in some file of a column, and none failed in any. Tests that no case names are listed.
"""

import re
import sys

# What is tested, and the tests that say so.
CASES = (
    ("every protocol x type x reduction, buckets, in place, guards, odd sizes and shifts, groups of 2, 3, 4", "TestCollectives/2 TestCollectives/3 TestCollectives/4"),
    ("the same, group of 8", "TestCollectives/8"),
    ("rank-order probe (2^24, 1, -2^24), bits equal in all protocols", "TestRankOrder"),
    ("uneven all_to_all with empty pieces", "TestUnevenAllToAll"),
    ("all protocols in one graph, replayed", "TestReplay"),
    ("counters and epochs across their wrap", "TestEpochWrap"),
    ("pushes of changing sizes and grids without a host between", "TestPushSizes"),
    ("random collectives one behind the other, each compared", "TestSoak"),
    ("every kernel on one rank alone, its peers' messages prefilled", "TestPrefilled"),
    ("a rank left out: typed timeout that names rank, peer and collective, contexts alive, another group works", "TestTimeout TestTimeoutNames TestAwaitsCredit"),
    ("abort from the host, also heard by ranks with nothing in flight", "TestAbort TestLeftEarly"),
    ("signals in a ring, channel and rank errors", "TestSignals"),
    ("overlapping and strict subgroups, one where another was", "TestGroups"),
    ("large all_reduces with a rest, several tensors, both engine forms", "TestEngineRest"),
    ("gathers without kernels, replayed; a rank left out or given up; joined anew", "TestQuiet TestQuietTimeout TestQuietGivenUp TestRejoinAfter TestHearing"),
    ("random sequences of rounds through staging, of kernels and of pending folds, replayed, groups to 7", "TestSequences/2_ranks,_slot_4096 TestSequences/3_ranks,_slot_0 TestSequences/4_ranks,_slot_4096 TestSequences/7_ranks,_slot_0"),
    ("the same, a group of 16", "TestSequences/16_ranks,_slot_4096 TestSequences/16_ranks,_slot_0"),
    ("broadcast, permute and reduce to a root, by packets and by copies, groups of 2, 3 and 4", "TestRooted TestRootedErrors"),
    ("all_reduce in place in several parts, replayed; graphs updated to other tensors", "TestInPlaceReplay TestGraphUpdate"),
    ("guests beside products: copies and folds", "TestGuestCopy TestGuestFold TestStagedSegments"),
    ("all cases by the driver's own code of the PTX", "TestPTX"),
    ("fabric handles: trial, refusal, sharing between processes", "TestFabricProcesses"),
    ("one process per GPU, the same tests", "TestProcesses"),
    ("SIGKILL before an eager call, survivors build a new world", "TestKilledProcess"),
    ("SIGKILL in the middle of a replayed graph, group of 2", "TestKilledInReplay/2"),
    ("the same, group of 4", "TestKilledInReplay/4"),
    ("a stalled process, deadline of 1 s; the same group and graph after joining anew", "TestStalledProcess"),
    ("a cancelled rank of one process while all replay; the group joined anew", "TestCancelledReplay"),
    ("work handles: wait on a stream, on the host, cancelled", "TestWork TestWorkCancelled"),
    ("contexts end waits: check, close, joining, meetings", "TestCheckEnds TestCloseEnds TestCloseLater TestJoinEnds TestMeetingsEnd TestMeetingTimeout TestMeetingLeft"),
    ("mismatched process refused by all", "TestMismatch"),
    ("bad calls: typed errors, nothing runs", "TestBadCalls"),
    ("every driver call fails in turn, nothing left behind", "TestEveryCallFails"),
)
# Of the fake driver or of no driver at all.
OTHERS = ("TestCutRounds TestCutInPlace TestCommandsCall TestCallErrors TestCallNumbers TestCaptureJoins TestLaunchEarly TestMark TestLoneWorld TestAwaited "
          "TestFabricTrial TestFabricTrialFails TestNoSharing TestGifts TestOpenWithoutDriver TestHeap TestJitter TestMeetingFails").split()

result = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \(")


def read(paths):
    told = {}
    for path in paths.split(","):
        for line in open(path, errors="replace"):
            if m := result.search(line):
                told.setdefault(m.group(2), set()).add(m.group(1))
    return told


def say(told, tests):
    got = [told.get(t, set()) for t in tests.split()]
    if any("FAIL" in g for g in got):
        return "**fails**"
    if all("PASS" in g for g in got):
        return "pass"
    if all("PASS" in g or "SKIP" in g for g in got):
        return "skipped"
    return "-"


columns = [a.split("=", 1) for a in sys.argv[1:]]
told = [(name, read(paths)) for name, paths in columns]
print("| case |", " | ".join(name for name, _ in told), "|")
print("|---" * (len(told) + 1) + "|")
for case, tests in CASES:
    print(f"| {case} |", " | ".join(say(t, tests) for _, t in told), "|")
named = {t.split("/")[0] for _, tests in CASES for t in tests.split()} | set(OTHERS)
left = sorted({t for _, r in told for t in r if "/" not in t} - named)
if left:
    print("\nof no case:", " ".join(left))
