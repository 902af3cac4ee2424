//go:build !amd64

package hostops

// vectorTile is 0: there is no vector unit that Go's assembler is used for.
func vectorTile() int64 { return 0 }

func tileVector(sum []float32, stride int64, a, b []float32) { tile(sum, stride, a, b) }
