package fusecollectives

import "testing"

// Chunks have two rows at least, and begin at tiles where there are enough.
func TestBounds(t *testing.T) {
	for rows := int64(2); rows < 3000; rows++ {
		for chunks := int64(1); chunks <= 8 && chunks <= rows/leastRows; chunks++ {
			b := bounds(rows, chunks)
			if b[0] != 0 || b[chunks] != rows || int64(len(b)) != chunks+1 {
				t.Fatal(rows, chunks, b)
			}
			for k := range chunks {
				if b[k+1]-b[k] < leastRows || b[k]%tile != 0 && rows >= chunks*tile {
					t.Fatal(rows, chunks, b)
				}
			}
		}
	}
}
