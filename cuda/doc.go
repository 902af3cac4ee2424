// Package cuda is the parent of everything specific to NVIDIA GPUs: the driver (cuda/driver),
// symmetric memory (cuda/symm), collectives (cuda/coll, cuda/eager) and programs
// (cuda/device). It has the integration tests of these, on the fake driver or on GPUs.
package cuda
