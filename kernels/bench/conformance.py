"""The conformance table of BENCHMARKS.md, of what the driver's tests print.

    conformance.py "fake driver=FAKE.txt" "2 H200s=TWO.txt,..." "4 H200s=FOUR.txt,..."

Each file is the output of cuda.test with -test.v. A case passes where every test of it has
passed in some file of a column, and none failed in any. Tests that no case names are listed.
"""

import re
import sys

# What is tested, the tests that say so, and why they are skipped where they are.
FAKE = "fake driver"
CASES = (
    ("every protocol x type x reduction, buckets, in place, guards, odd sizes and shifts, groups of 2, 3, 4", "TestCollectives/2 TestCollectives/3 TestCollectives/4"),
    ("the same, group of 8", "TestCollectives/8"),
    ("the same, group of 16", "TestCollectives/16"),
    ("the same by the driver's own code of the PTX", "TestPTX"),
    ("rank-order probe (2^24, 1, -2^24), bits equal in all protocols", "TestRankOrder"),
    ("uneven all_to_all, empty pieces, pieces of any size, one rank without data", "TestUnevenAllToAll TestUnevenSizes TestUnevenLeftOut"),
    ("rows to experts, aligned, empty bins", "TestExpertAllToAll"),
    ("one-shot all_reduce on tensors anywhere and on symmetric ones", "TestOneShotCopies"),
    ("broadcast, permute and reduce to a root, by packets and by copies, groups of 2, 3 and 4", "TestRooted TestRootedErrors"),
    ("all protocols in one graph, replayed", "TestReplay"),
    ("counters and epochs across their wrap, with old packets in all places", "TestEpochWrap TestStaleWrap TestExitCounters TestPushCredits"),
    ("pushes of changing sizes and grids without the host in between", "TestPushSizes"),
    ("random collectives one after the other, each compared", "TestSoak"),
    ("every kernel on one rank alone, its peers' messages prefilled", "TestPrefilled"),
    ("large all_reduces with a remainder, several tensors, both engine forms; in place in several parts, replayed", "TestEngineRest TestInPlaceReplay"),
    ("gathers without kernels, replayed; a rank missing or cancelled; rejoined", "TestQuiet TestQuietTimeout TestQuietGivenUp TestRejoinAfter TestHearing"),
    ("random sequences of rounds through staging, of kernels and of pending reductions, replayed, groups of 2, 3, 4, 7",
     " ".join(f"TestSequences/{n}_ranks,_slot_{s}" for n in (2, 3, 4, 7) for s in (4096, 0))),
    ("the same, group of 16", "TestSequences/16_ranks,_slot_4096 TestSequences/16_ranks,_slot_0", "too few queues"),
    ("co-resident kernels overlapped with matmuls: copies and reductions", "TestCoresidentCopy TestCoresidentReduce TestStagedSegments"),
    ("offsets above 4 GiB", "TestBehind4GiB"),
    ("tensors above 2 GiB", "TestBigTensor", "with -big"),
    ("eager collectives with a context, private tensors of any size, captured, from several threads",
     "TestEager TestEagerUneven TestEagerRefuses TestEagerPlans TestEagerWaitsElsewhere TestEagerCaptured TestEagerThreads TestEagerUnusable TestEagerBroadcastSources TestEagerPlansKept"),
    ("their handles: waited for on a stream and on the host, cancelled, timed out", "TestWork TestWorkCancelled TestWorkCancelledBehind TestWorkQuietTimeout TestWorkHandles"),
    ("a group's calls from two streams and two threads of a rank, captured and not; streams that come and go", "TestTwoStreams TestTwoThreads TestWaitsForCallOnly TestCapturedStreams TestStreamsComeAndGo TestStreamOrderError"),
    ("signals and tokens in rings, channel and rank errors; barriers on channels, a rank late", "TestSignals TestRings TestTwoStreamBarrier"),
    ("signal pads of any size next to buffers; words written and waited for by streams; get and put, of parts and with errors", "TestPadSizes TestPadWords TestPadRefuses TestWriteValueOrder TestGetPut"),
    ("a word that nobody writes: typed timeout; aborted, closed", "TestWaitValueTimeout TestWaitValueBehindWork TestWaitValueAborted TestWaitValueClosed TestWaitValueMany TestWaitValueNumber TestWaitValueUnwilling"),
    ("overlapping and strict subgroups at once, groups in the memory of earlier ones, intact and broken", "TestGroups TestOverlappingGroups TestRecycledGroup"),
    ("captures that are never replayed; replays with a rank late in turn", "TestCapturedOnly TestSkewedReplays"),
    ("peers' memory is read when the group has been aborted", "TestReadAfterAbort"),
    ("a missing rank: typed timeout that names rank, peer and collective, contexts alive, another group works", "TestTimeout TestTimeoutNames TestAwaitsCredit"),
    ("abort from the host, also heard by ranks with nothing in flight", "TestAbort TestLeftEarly"),
    ("a context that ends: waits for work, closing", "TestCheckEnds TestCloseEnds"),
    ("bad calls: typed errors, nothing runs", "TestBadCalls"),
    ("bad arguments of every entry point", "TestBadArguments", FAKE),
    ("multicast is off, and asking for it is no error", "TestHasMulticast"),
    ("one process per GPU: the same tests", "TestProcesses"),
    ("one tensor between processes: every element is what the other wrote; its process dies", "TestTensorOfProcesses TestTensorOfDeadProcess"),
    ("SIGKILL before an eager call, survivors build a new world", "TestKilledProcess", "needs 3"),
    ("SIGKILL in the middle of a replayed graph, group of 2", "TestKilledInReplay/2"),
    ("the same, group of 4", "TestKilledInReplay/4", "needs 4"),
    ("a stalled process, deadline of 1 s; the same group and graph after rejoining", "TestStalledProcess"),
    ("a cancelled rank of one process while all replay; the group rejoined", "TestCancelledReplay"),
    ("mismatched process refused by all", "TestMismatch"),
    ("fabric handles: sharing between processes", "TestFabricProcesses", FAKE),
    ("joining: late and leaving ranks, ends of contexts; descriptors closed on exec", "TestJoinTimeout TestJoinEnds TestBarriersCanceled TestNewGroupFails TestBarrierTimeout TestBarrierLeft TestCloseOnExec", FAKE),
    ("multicast switched on: collectives, errors, failures, processes", "TestMulticastCollectives TestMulticastRefused TestMulticastEveryCallFails TestMulticastProcesses TestMulticastTimeout TestMulticastReplay", FAKE),
    ("every driver call fails in turn, nothing leaks", "TestEveryCallFails TestEveryCallFailsInUse TestEveryCallFailsInProcess TestTensorEveryCallFails", FAKE),
)
# Of the fake driver or of no driver at all.
OTHERS = ("TestCutRounds TestCutInPlace TestCommandsCall TestCallErrors TestCallNumbers TestCaptureJoins TestConditionalNodes TestLaunchEarly TestMark TestSingleRankWorld TestAwaited "
          "TestFabricTrial TestFabricTrialFails TestNoSharing TestHandleErrors TestOpenWithoutDriver TestHeap TestJitter TestCloseLater TestEagerAllocations "
          "TestGroupsForgotten TestImportFailures TestNoPeerAccess TestOrderCostsNothing TestMulticastAbsent "
          "TestMulticastBeforeEngines TestMulticastClosesWorld TestMulticastGivenUp TestMulticastGroups TestOptionalFunctions TestMulticastMismatch "
          "TestMulticastOff TestMulticastOrder TestThreads TestCapturedGroups TestWaitValueCaptured TestFactsOnce TestOpen TestTornCall TestImporterThatFails TestSlowImporter ExampleMember_AllReduce").split()

result = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \(")


def read(paths):
    told = {}
    for path in paths.split(","):
        for line in open(path, errors="replace"):
            if m := result.search(line):
                told.setdefault(m.group(2), set()).add(m.group(1))
    return told


def say(told, tests, why="skipped"):
    """One column of a case: told is its tests' results."""
    got = [told.get(t, set()) for t in tests.split()]
    if any("FAIL" in g for g in got):
        return "**fails**"
    if all("PASS" in g for g in got):
        return "pass"
    if all(got) or why == FAKE and not any("PASS" in g for g in got):
        return why
    return "-"


columns = [a.split("=", 1) for a in sys.argv[1:]]
told = [(name, read(paths)) for name, paths in columns]
print("| case |", " | ".join(name for name, _ in told), "|")
print("|---" * (len(told) + 1) + "|")
for case, *tests in CASES:
    print(f"| {case} |", " | ".join(say(t, *tests) for _, t in told), "|")
named = {t.split("/")[0] for _, tests, *_ in CASES for t in tests.split()} | set(OTHERS)
left = sorted({t for _, r in told for t in r if "/" not in t} - named)
if left:
    print("\nof no case:", " ".join(left))
