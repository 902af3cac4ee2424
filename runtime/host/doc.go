// Package host is the device that every machine has: ranks compute with Go
// kernels on memory that all ranks of the world can address, and communicate
// with the signals, epochs and deadlines that the GPU device uses.
//
// Ranks are goroutines of one process (Local, or Opener with Options.Local) or processes
// (Opener). Those of one host map each other's memory files; those of different hosts, which
// rt.Env.Host tells apart, have connections, and the same results. Who they are
// and which of them died, package rendezvous says.
package host
