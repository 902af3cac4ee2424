// Package symm implements symmetric memory: worlds of ranks that have mapped each other's memory,
// in one process or several of one machine, and groups of them with signal pads, channels
// between streams, timeouts, and aborts that reach all ranks. What is built on a group,
// such as the collectives of package coll, joins it as an Extension.
//
// NVLink multicast is in multicast.go, and off.
package symm
