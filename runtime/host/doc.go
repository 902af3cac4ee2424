// Package host is the CPU device: ranks compute with Go
// kernels on memory shared by all ranks of the world, and communicate
// with the signals, epochs and timeouts that the GPU device uses.
//
// Ranks are goroutines of one process (Local, or Opener with Options.Local) or processes
// (Opener). Those of one host map each other's memory files; those of different hosts, as told apart by
// rt.Env.Host, use connections, with the same results. Package rendezvous finds the ranks and
// reports those that died.
package host
