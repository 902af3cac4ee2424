// Package cuda is the folder of all that knows NVIDIA GPUs, from the driver (cuda/driver)
// by symmetric memory (cuda/symm) and collectives (cuda/coll, cuda/eager) to programs
// (cuda/device). It holds the tests that run these together, on the fake driver or on GPUs.
package cuda
