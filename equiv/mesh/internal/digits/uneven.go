package digits

// Uneven is what functions panic with where digits cut each other so that neither is a part of the
// other: the step that they belong to is not known. Package normal recovers it.
type Uneven struct{}

// Attempt reports whether f does something, false where digits are uneven.
func Attempt(f func() bool) (ok bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case Uneven:
			ok = false
		default:
			panic(r)
		}
	}()
	return f()
}

// Complement are the digits of a shape without some, which are sorted; dimension by dimension.
func Complement(shape []int64, ds []Digit) []Digit {
	var out []Digit
	for dim, n := range shape {
		top := n
		for _, d := range ds {
			if d.Dim == dim {
				if end := d.Stride * d.Size; top%end != 0 {
					panic(Uneven{})
				} else if end < top {
					out = append(out, Of(dim, end, top/end))
				}
				top = d.Stride
			}
		}
		if top > 1 {
			out = append(out, Of(dim, 1, top))
		}
	}
	return out
}

// Singles are the digits of lists that have one each.
func Singles(l [][]Digit) []Digit {
	out := make([]Digit, len(l))
	for i, ds := range l {
		if len(ds) != 1 {
			panic(Uneven{})
		}
		out[i] = ds[0]
	}
	return out
}
