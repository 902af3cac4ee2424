// Package intmath has integer functions that the standard library lacks.
package intmath

// GCD is the greatest common divisor of two numbers by Euclid's algorithm; of a number and 0
// that number. O(log of the smaller one).
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

// Mod is the remainder of a by n > 0 that is not negative.
func Mod(a, n int64) int64 { return (a%n + n) % n }

// Product multiplies numbers: of sizes it is how many elements there are, of none 1.
func Product(list []int64) int64 {
	p := int64(1)
	for _, n := range list {
		p *= n
	}
	return p
}
