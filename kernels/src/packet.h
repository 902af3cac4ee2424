// What the packet kernels share: the order in which a thread sends, forwards and
// receives, and when the epoch, which says where, has to be known.
//
// Thread t of the grid serves units t, t + threads, ... of count. A way W says what
// that means for one unit:
//
//   W::EPOCH                  where the scratch's epoch is in the control page
//   W::Unit                   what is loaded before it is known where it goes
//   W::load(p, i)             loads it for unit i
//   W::send(p, i, v, at, e)   sends it; at is the offset, from a peer's base, of the
//                             packet of unit i in our slot
//   W::forward(p, first, stride, half, e)  a hop between (OneHop has none)
//   W::take(p, i, in, e)      receives unit i, in is where its packets arrive from
//                             slot 0 on; first is the offset of the scratch
//   W::half(a, e)             the half of the scratch that the call uses, of which
//   W::slot(a, h), W::in(a, h)  are the bytes of a slot and where packets arrive
//   W::end(h, first, stride, count, e)  ends the call; only threads that serve a unit
//                             come to it
//
// Everything is sent before anything is waited for, so that all ranks' packets are
// on their way together. The first load is under way together with the epoch: it
// would take as long again. A thread that finds the group aborted ends there.
//
// What the first packets do not need is kept behind them. A compiler moves what all
// rounds of a loop share before the loop, and each instruction there delays every
// call; opaque and cold tell it that there is nothing to share.
#pragma once
#include "prelude.h"

// Way is the base of ways by packets without flags.
struct Way {
  enum { EPOCH = CTL_EPOCH };
  struct Half {
    u64 at;
  };
  DEV Half half(const Args &a, u32 e) { return Half{a.scratch + ((e & 1) ? a.half : 0)}; }
  DEV u64 slot(const Args &a, const Half &) { return a.slot; }
  DEV u64 in(const Args &a, const Half &h) { return a.peer[0] + h.at; }
  DEV void end(const Half &, u32, u32, u32, u32) {}
};
// OneHop is the base of those that forward nothing.
struct OneHop : Way {
  template <class A> DEV void forward(const A &, u32, u32, u64, u32) {}
};

template <class W, class A> DEV void packets(const A &p, u32 count) {
  const Args &a = p.a;
  u32 done = lastEpoch(a, W::EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (first < count) {
    u32 i = first;
    typename W::Unit v = W::load(p, i);
    u32 e = nextEpoch(opaque(done));
    quitIf(a, gone);
    const typename W::Half h = W::half(a, e);
    for (;;) {
      W::send(p, i, v, h.at + a.rank * W::slot(a, h) + (u64)i * 16, e);
      i = opaque(i + stride);
      if (i >= count)
        break;
      v = W::load(p, i);
    }
    W::forward(p, first, stride, h.at, e);
    i = first;
    do {
      W::take(p, i, W::in(a, h) + (u64)i * 16, e);
      i += stride;
    } while (i < count);
    W::end(h, first, stride, count, e);
  }
  // A warp of this block that has not read the epoch yet must not find the next one.
  syncBlock();
  writeEpoch(a, W::EPOCH, nextEpoch(done));
}
