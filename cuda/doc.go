// Package cuda runs concert's programs on NVIDIA GPUs: the driver by dlopen (package
// driver), symmetric memory by the virtual-memory API, groups of ranks in one or several
// processes, and the collective kernels of package kernels.
package cuda
