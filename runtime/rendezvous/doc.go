// Package rendezvous is the control plane of a job: ranks find and authenticate each other,
// agree, wait at barriers, exchange memory handles, and are notified of each other's
// deaths. It carries a few kilobytes now and then, never tensors.
//
// # Connections
//
// A [Job] has an identity, a [Secret] and an address. Rank 0 has a [Listener] there, and
// the other ranks connect. The handshake is TLS 1.3, in which both sides have one key,
// derived from the secret, and accept no other: neither side sends anything, or
// receives a descriptor, before the other has proved that it knows the secret. On a unix
// socket both must also belong to the same user. An unauthenticated peer has five seconds, and
// there may be 128 of them; then the oldest is dropped. Everything received is bounded.
//
// # Sessions
//
// Sessions form a tree with rank 0 as its root. A rank's parent is its number in base 64 with the
// lowest nonzero digit cleared: rank 0 is the parent of 1 to 63, 64, 128 and so
// on, rank 64 of 65 to 127. A rank with children is a relay and listens, too. Its
// children ask rank 0 for its address, in a few encrypted bytes of a connection that they keep
// until they have their session, so that rank 0 knows of them, and they hear what
// becomes of the world. A world of 64 is a star.
//
// A connection becomes a session when the rank has said hello and its parent has answered. For
// the coordinator, which runs in the process of rank 0, a rank is
//
//	absent -> asked -> joined -> left   it called Close on the job's group
//	               \         \-> lost   its session ended without a goodbye, or broke the protocol
//	                \-> lost            likewise, before it had a session
//
// and there is no way back: a rank that joins again joins the next world. A world forms when
// barrier 0 of the job's group is decided, which is not before all ranks have connected (be it
// to hear that one is lost), unless a rank cancels it or times out: ranks that are in time
// all hear the same. After that the world admits no rank. The
// coordinator ends when no rank is joined. Ranks that are goroutines of one process
// ([NewLocal]) have the same coordinator and sessions, without connections between them.
//
// The parent of a rank whose session ends reports it to rank 0, which tells all. If a relay is lost
// so is its subtree, and the loss is attributed to the relay. If the relay had
// left, its subtree is cut off ([Cut]): no rank of it is reported as dead, nor as having left.
//
// # Barriers
//
// A [Group] is the job or some of its ranks. Every rank counts its barriers in a group; the
// nth of each is one barrier. A rank arrives at it, or cancels it, instead of arriving or
// afterwards, when its context ends. The coordinator keeps the arrivals of a barrier
// until its outcome is decided, once:
//
//	released               all have arrived; the outcome is their data
//	canceled by a rank     with its reason
//	canceled by timeout    one rank timed out; the outcome is who was missing
//	canceled by a loss     a member that is needed has left or is lost
//
// A relay collects the arrivals of its subtree, and forwards them when it is complete. When
// one rank times out, the coordinator first asks the relays who has arrived, half a second at
// most.
//
// The outcome holds for all members, including those that arrive later, and nothing is kept of a
// barrier at which all have arrived. A rank that cancels after arriving waits for the
// outcome as well: if all had arrived, the barrier is released for it, too.
//
// Messages of one session keep their order, and the coordinator never waits for a rank: so a
// notice arrives before the release of any barrier at which its sender arrives later, and
// an unresponsive rank delays no other.
//
// # Closing
//
// A session is joined, closed (its rank has left: calls end with ErrClosed), or over (there is
// no path to the coordinator: rank 0, or a relay before it, has died, or has left and its process
// has ended). Close announces that the rank leaves, and waits until its parent's machine has received
// that, for a second at most: no process has to answer, so a frozen one delays no other. Only a relay then
// also waits until its subtree, which still needs it, has left, up to its timeout.
// A rank that ends without Close is lost to the others.
package rendezvous
