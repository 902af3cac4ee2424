// Package numbered does value numbering.
package numbered

// Values are values that have numbers by a key. The zero value is empty.
type Values[K comparable, V any] struct {
	All []V
	ids map[K]int32 // look-up only
}

// Number is that of a value, a new one if its key has none.
func (t *Values[K, V]) Number(key K, v V) int32 {
	id, ok := t.ids[key]
	if !ok {
		if t.ids == nil {
			t.ids = map[K]int32{}
		}
		id = int32(len(t.All))
		t.All, t.ids[key] = append(t.All, v), id
	}
	return id
}

// Pairs are numbers by two others. The zero value is empty.
type Pairs map[[2]int32]int32 // look-up only

// Of is what there is for two numbers, or else what is made.
func (p *Pairs) Of(a, b int32, make func() int32) int32 {
	q := [2]int32{a, b}
	id, ok := (*p)[q]
	if !ok {
		id = make()
		if *p == nil {
			*p = Pairs{}
		}
		(*p)[q] = id
	}
	return id
}
