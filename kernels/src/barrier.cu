// Barrier, signal and wait of a group: one warp each.
//
// A channel has, on every rank, one counter for each peer, which that peer adds
// to, and one count for each peer, which this rank alone keeps: how many of the
// peer's signals it has consumed. signal adds one to the counters of the chosen
// peers; wait blocks until each chosen peer's counter is past the count, and
// counts it. barrier is a signal to all followed by a wait for all, on channel 0.
// The addition needs no epoch, so it leaves before anything local has been read,
// and nothing is ever reset: counters wrap and comparisons are wrap-safe.
//
// Order. These kernels announce what *earlier* kernels and copies of the stream
// did, and let *later* ones see it; they touch no data themselves. The end of a
// kernel or copy makes its writes visible to the system before the next one of
// the stream starts, and a kernel starts with no stale cached lines. So the
// additions and the polls are relaxed: a release here would only wait for writes
// of this kernel, of which there are none. A litmus run on the device (gpubench
// -mode litmus) checks the assumption with real data behind barriers. It does not
// hold for what the copy unit (cp.async.bulk) stores in peers' memory: who sends so
// has to release it (reducescatter_sent.cu).
#include "prelude.h"

DEV u64 counter(u64 ctl, u32 channel, u32 src) { return ctl + CTL_CHANNEL + 128 * channel + 4 * src; }

// Thread t serves group rank (rank+t)%n; a.units has a bit for every chosen rank.
template <bool SIGNAL, bool WAIT> DEV void channel(const Args &a) {
  u32 t = tid(), channel = a.per;
  u32 r = a.rank + t;
  r = r >= a.n ? r - a.n : r;
  if (t >= a.n || !(a.units >> r & 1))
    return;
  u32 gone = WAIT ? ldsys(a.ctl + CTL_ABORT) : 0;
  u32 want = WAIT ? ld1(counter(a.ctl, channel, r) + 64) + 1 : 0;
  if (SIGNAL)
    addRelaxed(counter(a.peer[t] + (a.ctl - a.peer[0]), channel, a.rank), 1);
  if (!WAIT)
    return;
  quitIf(a, gone);
  Wait w = {0, 0};
  for (;;) {
    u32 v = ldsys(counter(a.ctl, channel, r));
    if ((i32)(v - want) >= 0)
      break;
    if (!patient(w))
      look<true>(a, w, r, want, v);
  }
  st1(counter(a.ctl, channel, r) + 64, want);
}

GLOBAL void BOUNDS(32, 1) barrier(const Args1 p) { channel<true, true>(p.a); }
GLOBAL void BOUNDS(32, 1) signal(const Args1 p) { channel<true, false>(p.a); }
GLOBAL void BOUNDS(32, 1) wait(const Args1 p) { channel<false, true>(p.a); }
