// Package symm is symmetric memory: worlds of ranks that have mapped each other's memory,
// in one process or several of one machine, and groups of them with signal pads, channels
// between streams, deadlines, and an end that all ranks hear of. What is built on a group,
// such as the collectives of package coll, joins it as an Extension.
//
// Multicast through the switches of NVLink is in multicast.go, and off.
package symm
