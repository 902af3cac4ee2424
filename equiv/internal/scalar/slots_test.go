package scalar

import "testing"

// Numbers come back for what has them, also where all hashes are alike, and past every growth.
func TestSlots(t *testing.T) {
	for name, hash := range map[string]func(int) uint64{
		"alike": func(int) uint64 { return 7 },
		"mixed": func(k int) uint64 { return mixed(1, uint64(k)) },
	} {
		var s slots
		const n = 500
		for round := range 2 {
			for k := range n {
				p := s.find(hash(k), func(number int32) bool { return int(number) == k })
				if round == 0 {
					if p.number != 0 {
						t.Fatalf("%s: %d has number %d", name, k, p.number-1)
					}
					s.add(p, hash(k))
				}
				if int(p.number) != k+1 {
					t.Errorf("%s: %d has number %d", name, k, p.number-1)
				}
			}
		}
	}
}
