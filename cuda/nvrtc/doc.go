// Package nvrtc compiles CUDA C++ at run time with NVIDIA's runtime compiler,
// which it loads by dlopen. Results are cached: the most recent in memory, all of them in a
// folder for later processes.
//
// The cache key covers everything that an image depends on: source, options,
// compiler version and architecture. Files are created by renaming, so several processes
// may share a folder; a file whose content does not match the checksum in its name is
// compiled anew.
package nvrtc
