package hostops

import "golang.org/x/sys/cpu"

// vectorTile is how many columns the vector unit's register tile of float32 has, 0 where there is no
// such unit.
func vectorTile() int64 {
	if cpu.X86.HasAVX {
		return 16
	}
	return 0
}

// tileVector is tile of float32 with the columns of vectorTile, bit for bit.
func tileVector(sum []float32, stride int64, a, b []float32) {
	if len(a) > 0 {
		_ = sum[3*stride+15]
		tileAVX(&sum[0], stride, &a[0], &b[0], int64(len(a))/mTile)
	}
}

//go:noescape
func tileAVX(sum *float32, stride int64, a, b *float32, depth int64)
