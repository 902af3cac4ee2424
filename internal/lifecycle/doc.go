// Package lifecycle ends things that live: worlds, groups, streams, memory, modules,
// captures, processes. There is one mechanism for all of them, so that no order of ending
// is a special case.
//
// Everything that lives is a Scope. A scope has one owner, the scope that it was made in,
// so scopes form a tree, and a scope never outlives its owner. What is made in a scope is
// handed to it together with the function that gives it back (Defer); scopes and functions
// stand in one list, in the order of making.
//
// # States
//
//		Open ----------> Draining ----------> Releasing ----------> Released
//		        End        |   ^      idle                 empty
//		                   v   | End
//		                Quarantined
//
//	  - Open: calls begin (Begin), scopes and resources are made.
//	  - Draining: no call begins any more, here and in all scopes below. Waits that depend on
//	    the scope are told (Bound, Hooks.Stop), and what runs is waited for: calls that have
//	    begun, and work that Hooks.Idle asks for. Hooks.Tend is called meanwhile, for work
//	    that ends only if its host does something for it. When the context of End ends, Tend
//	    hears the cause and has to cancel what still waits.
//	  - Quarantined: what was cancelled has not ended in time. Everything is kept, memory and
//	    descriptors, because what runs may use it; End reports that as a HeldError. Another
//	    End goes on with draining.
//	  - Releasing: all is idle, in the whole tree below. Lists are emptied from the end:
//	    resources are given back in the reverse order of making, a scope where it stands.
//	  - Released: nothing is left.
//
// # Rules
//
//   - A call that uses what a scope owns is between Begin and Done. Nothing is given back
//     before it is done, so it needs no lock against the end, and finds nothing missing.
//   - A call that must work while a scope drains, such as one that cancels waits, is between
//     Hold and Drop. It is short: release waits for it.
//   - The whole tree is idle before the first resource in it is given back. So work may use
//     whatever its scope, or an owner of it, has made.
//   - A resource is given back once. A function that fails is not called again: drivers
//     report earlier failures in calls that free, and have freed. The error is End's result.
//   - End may be called from any goroutine, in any state and any number of times. One call
//     drives; others, and that of an owner, wait for it. Cancelling an owner cancels what is
//     below it, whoever drives that.
//   - Functions that a scope calls must not End it, or an owner of it: they would wait for
//     themselves. No lock is held while they run.
package lifecycle
