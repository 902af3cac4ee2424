// Package host is the device that every machine has: ranks compute with Go
// kernels on memory that all ranks of the world can address, and communicate
// with the signals, epochs and deadlines that the GPU device uses.
//
// Ranks are goroutines of one process (Local, or Opener with Options.Local) or
// processes of one machine (Opener): each maps the others' memory files. Who they are
// and which of them died, package rendezvous says.
package host
