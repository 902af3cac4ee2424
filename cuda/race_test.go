//go:build race

package cuda

const raced = true // by the race detector
