// Package nvrtc compiles CUDA C++ while a program runs, by NVIDIA's runtime compiler,
// which it loads by dlopen, and keeps what it compiled: the last of it in memory for the
// process, and all in a folder for the next ones.
//
// A compiled image is named by everything that it depends on: source, options,
// compiler version and architecture. Files appear by renaming, so several processes
// may share a folder; a file whose content does not fit its name's checksum is
// compiled anew.
package nvrtc
