// Package rendezvous is the control plane of a job: how its ranks find each other, prove
// that they belong together, agree, wait for each other, hand each other memory, and hear
// what has become of the others. It carries a few kilobytes now and then, never tensors.
//
// # Connections
//
// A [Job] has an identity, a [Secret] and an address. Rank 0 has a [Listener] there, and
// the other ranks connect. The handshake is TLS 1.3, in which both sides have one key that
// follows from the secret, and accept no other: neither says anything, and neither
// receives a descriptor, before the other has proved that it knows the secret. On a unix
// socket both must also be of one user. An unauthenticated peer has five seconds, and
// there may be 128 of them; then the oldest is dropped. All that is received is bounded.
//
// # Sessions
//
// Sessions lead to rank 0 over a tree. A rank's parent is the rank whose number to the base 64
// has its lowest digit that is not zero cleared: rank 0 is that of 1 to 63, 64, 128 and so
// on, rank 64 of 65 to 127. A rank with others behind it is a relay and listens, too. Its
// children ask rank 0 where, in a few sealed bytes of the same connection, and keep that
// connection until they have their session, so that rank 0 knows of them and they of what
// becomes of the world. A world of 64 is a star.
//
// A connection becomes a session when the rank has said hello and its parent has answered. For
// the coordinator, which lives in the process of rank 0, a rank is
//
//	absent -> asked -> joined -> left   it called Close on the job's group
//	               \         \-> lost   its session ended without a word, or broke the protocol
//	                \-> lost            as well: it never had one
//
// and there is no way back: who joins again, joins the next world. A world forms when
// barrier 0 of the job's group is decided, and that is not before all ranks have come, be it
// to hear that one is lost, unless a rank cancels it or its time is up: who comes in time
// hears the same as all others. After that the world takes nobody any more. The
// coordinator ends when no rank is joined. Ranks that are goroutines of one process
// ([NewLocal]) have the same coordinator and sessions, without connections between them.
//
// The parent of a rank whose session ends says so to rank 0, which says it to all. With a relay
// those behind it are lost: for them and for all others the relay is who is lost. With one that had
// left they are gone as well, but nobody is said to have died.
//
// # Barriers
//
// A [Group] is the job or some of its ranks. Every rank counts its barriers in a group; the
// nth of each is one barrier. A rank arrives at it, or cancels it: in place of arriving, or
// behind that, when its context ends. The coordinator keeps the arrivals of a barrier
// until its outcome is decided, once:
//
//	released               all have arrived; the outcome is what they brought
//	canceled by a rank     with its reason
//	canceled by time       one rank's time was up; the outcome is who was missing
//	canceled by a loss     a member that is needed has left or is lost
//
// A relay puts together who has come of those behind it, and hands that on when all have. When
// one rank's time is up, the coordinator first asks the relays who has come, half a second at
// most.
//
// The outcome holds for all members, those included that come later, and nothing is kept of a
// barrier to which all have come. A rank that cancels behind its arrival waits for the
// outcome as well: if all had arrived, the barrier is released for it, too.
//
// Messages of one session keep their order, and the coordinator never waits for a rank: so a
// notice arrives before every barrier at which its sender arrives later is released, and
// a rank that does not listen holds up nobody else.
//
// # Closing
//
// A session is joined, closed (its rank has left: calls end with ErrClosed), or over (there is
// no way to the coordinator: rank 0, or a relay before it, has died, or has left and its process
// has ended). Close says that the rank leaves, and waits until its parent's machine has that, for
// a second at most: no process has to answer, so a frozen one holds up nobody. Only a relay goes on
// to wait until those behind it have left, who still meet through it, for its timeout at most.
// Who ends without Close is lost to the others.
package rendezvous
