//go:build race

package cuda

func init() { raced = true }
