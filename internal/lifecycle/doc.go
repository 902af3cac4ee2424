// Package lifecycle shuts down everything with a lifetime: worlds, groups, streams, memory, modules,
// captures, processes. One mechanism serves all of them, so that no shutdown order
// is a special case.
//
// Everything with a lifetime is a Scope. A scope has one owner, the scope that it was created in,
// so scopes form a tree, and a scope never outlives its owner. A resource is
// registered in its scope together with its release function (Defer); child scopes and release functions
// are in one list, in the order of creation.
//
// # States
//
//		Open ----------> Draining ----------> Releasing ----------> Released
//		        End        |   ^      idle                 empty
//		                   v   | End
//		                Quarantined
//
//	  - Open: calls begin (Begin), scopes and resources are created.
//	  - Draining: no new call begins, here or in any scope below. Waits that depend on
//	    the scope are told (Bound, Hooks.Stop), and running work is awaited: calls that have
//	    begun, and then, when there is none in the tree, work that Hooks.Idle reports.
//	    Hooks.Tend is called meanwhile, for work that completes only with the host's help. When the context of End is done, Tend
//	    gets the cause and has to cancel what still waits.
//	  - Quarantined: cancelled work has not ended in time. Everything is kept, memory and
//	    descriptors, because it may still be in use; End reports that as a HeldError. Another
//	    End resumes draining.
//	  - Releasing: the whole tree below is idle. Lists are emptied from the end:
//	    resources are released in the reverse order of creation, child scopes in their place.
//	  - Released: nothing is left.
//
// # Rules
//
//   - A call that uses a scope's resources runs between Begin and Done. Nothing is released
//     before Done, so it needs no lock against shutdown.
//   - A call that must work while a scope drains, such as one that cancels waits, runs between
//     Hold and Drop. It is short: release waits for it.
//   - The whole tree is idle before its first resource is released. So work may use
//     whatever its scope, or an owner of it, has created.
//   - A resource is released once. A release function that fails is not called again: drivers
//     report earlier failures in calls that free, and have freed. The error is End's result.
//   - End may be called from any goroutine, in any state and any number of times. One call
//     does the work; others, and the owner's, wait for it. Cancelling an owner cancels everything
//     below it, whoever is doing the work.
//   - Functions that a scope calls must not End it or an owner of it: they would wait for
//     themselves. No lock is held while they run.
package lifecycle
