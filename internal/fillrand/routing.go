package fillrand

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
)

// Routing says how the inputs of a graph are made in which routers give each of a rank's
// Tokens tokens the best Takes of Experts experts, or, if Takes is 0, each expert the best
// 2*Tokens/Experts of the tokens, so that no rounding can order them otherwise. With random weights many of the probabilities that
// are ordered are closer together than logits in bfloat16 are exact: every
// implementation then takes other tokens, in another order, and all that is ordered by
// them differs.
//
// Of the Width channels of the model one in eight belongs to the routers: channel c if
// c mod 8 = (c div (8*Experts)) mod 8, to expert (c div 8) mod Experts, with the sign
// of s(c), negative where bit 31 of Mix(c) is set. Nothing but the embedding writes
// them, and nothing but the routers reads them with more than a random weight, so that
// every router sees the embedding's values but for a factor of the norm that is about
// the same for all tokens. The inputs that have a part in this:
//
//	table   the embedding, Rows by Width. Row v has the slot v mod Tokens, the first
//	        expert e = slot mod Experts, the number j = slot div Experts, and after e the
//	        experts (e + 1 + (j+r) mod (Experts-1)) mod Experts for r from 0 on, Takes in
//	        all, or two. Its channels have s(c) times the expert's value where they belong
//	        to one of these, and s(c) * -2 to another. The values are (Takes-1)/4, ...,
//	        1/4, 0; or, if experts take tokens, the key of j and 0. That key is the
//	        bfloat16 of the bits 0x3f80 - j*step, with step the lesser of 64 and 1920 div
//	        (Tokens/Experts), at least 3. Channel c of no router has (2^23 + Mix(c)/256) * 2^-24, negative where
//	        bit 31 of h(e) is set.
//	ids     what is looked up: token t has the row h(t) mod (Rows div Tokens) * Tokens +
//	        (t*m + b) mod Tokens, with m the least number from Tokens*5 div 8 on that is
//	        prime to Tokens: each slot once.
//	router  a router's weight, Experts by Width: s(c) * 64 * Experts / Width on the
//	        channels of the expert, else 0.
//	bias    a router's: 0.
//	norm    the scale of a router's input: as ever, but 1 on channels of routers.
//	out     what the products that are added to the residual stream read: as ever times
//	        the largest power of two that is at most 256/Width, so that the stream hardly
//	        changes the norm, and 0 where it would write channels of routers.
//	unit    as ever, but of a standard deviation of 1: rotary embeddings, with which
//	        attention does not average all tokens.
//
// A token's logits are 8 times the values of its experts and -16 for the others, about. If
// tokens take experts, neighbours are 2 apart at least. If experts take tokens, each gets
// those of which it is one of the two: as many, by keys that are step bfloat16 values
// apart, and from the next token it is exp(8) away at least. Each expert gets as many
// tokens.
type Routing struct {
	Experts int64 `json:"experts"`
	Takes   int64 `json:"takes"`
	Width   int64 `json:"width"`
	Tokens  int64 `json:"tokens"`
	Rows    int64 `json:"rows"`
	// Inputs are those that have a part, by number.
	Inputs map[int]Part `json:"inputs"`
}

// Part is what an input has to do with routing, on one rank.
type Part struct {
	Role string `json:"role"`
	// Axis is the one along which the rows of the table or of the router lie, or the
	// channels of a norm or of what is added to the stream.
	Axis int `json:"axis"`
	// First is the place on that axis of the first element that the rank has.
	First int64 `json:"first"`
}

// Roles of inputs.
const (
	roleTable  = "table"
	roleIDs    = "ids"
	roleRouter = "router"
	roleBias   = "bias"
	roleNorm   = "norm"
	roleOut    = "out"
	roleUnit   = "unit"
)

const (
	lanes    = 8      // one channel in so many is a router's
	topKey   = 0x3f80 // the largest key, 1, as bits of a bfloat16
	fall     = 1920   // how far the others may be below, in bfloat16 values: 15 octaves
	mostStep = 64
	minStep  = 3
	stair    = 0.25 // between the values of a token's experts, where tokens take experts
	low      = -2.0
	gain     = 8.0
	quiet    = 256.0
)

// Check reports whether the numbers are such that inputs can be made.
func (q *Routing) Check() error {
	ok := q.Experts > 2 && q.Width > 0 && q.Tokens >= q.Experts && q.Tokens%q.Experts == 0 &&
		q.Width%(lanes*q.Experts) == 0 && q.Rows >= q.Tokens && q.Width < 1<<31
	if !ok {
		return fmt.Errorf("fillrand: routing to %d experts of %d tokens, with a table of %d by %d: want at least 3 experts, a multiple of them in tokens, no more than rows, and a multiple of %d channels",
			q.Experts, q.Tokens, q.Rows, q.Width, lanes*q.Experts)
	}
	switch {
	case q.Takes < 0 || q.Takes >= q.Experts:
		return fmt.Errorf("fillrand: each token takes %d of %d experts", q.Takes, q.Experts)
	case q.Takes == 0 && fall/(q.Tokens/q.Experts) < minStep:
		return fmt.Errorf("fillrand: %d experts order %d tokens: want at most %d for each", q.Experts, q.Tokens, fall/minStep)
	}
	for k, p := range q.Inputs {
		if p.First < 0 || p.Axis < 0 || !slices.Contains([]string{roleTable, roleIDs, roleRouter, roleBias, roleNorm, roleOut, roleUnit}, p.Role) {
			return fmt.Errorf("fillrand: input %d has the part %+v in routing", k, p)
		}
	}
	return nil
}

// Fill writes the elements of an input with a part in routing to data, little-endian
// and dense. s is the input's source. It fails if Check does or the shape does not fit
// the part or data.
func (q *Routing) Fill(p Part, s Source, data []byte, d dtype.DType, shape []int64) error {
	if err := q.Check(); err != nil {
		return err
	}
	elems := intmath.Product(shape)
	ok := d.Size() > 0 && int64(len(data)) == elems*int64(d.Size()) && p.Axis < max(len(shape), 1) && d.IsInt() == (p.Role == roleIDs)
	switch p.Role {
	case roleTable, roleRouter:
		ok = ok && len(shape) == 2 && p.Axis == 0 && shape[1] == q.Width
	case roleNorm, roleOut:
		ok = ok && p.Axis < len(shape) && p.First+shape[p.Axis] <= q.Width
	case roleBias:
		ok = ok && len(shape) == 1 && p.First+shape[0] <= q.Experts
	case roleIDs:
		ok = ok && elems == q.Tokens && (d.Size() > 1 || q.Rows <= 1<<7)
	}
	if !ok {
		return fmt.Errorf("fillrand: %d bytes of %v %v do not fit the part %+v in routing", len(data), d, shape, p)
	}
	switch p.Role {
	case roleBias:
		clear(data)
		return nil
	case roleUnit:
		s.scale = math.Float32frombits(scaleOne)
		return s.Fill(data, d)
	case roleIDs:
		q.fillIDs(s, data, d)
		return nil
	case roleTable:
		c := q.channels()
		return rows(data, shape, func(out []byte, row int64) { q.tableRow(c, s, out, d, row, p.First+row) })
	case roleRouter:
		return rows(data, shape, func(out []byte, row int64) { q.routerRow(out, d, p.First+row) })
	case roleOut:
		s.scale *= q.quiet()
	}
	if err := s.Fill(data, d); err != nil {
		return err
	}
	set := 0.0
	if p.Role == roleNorm {
		set = 1
	}
	inner := intmath.Product(shape[p.Axis+1:])
	return rows(data, []int64{elems / inner, inner}, func(out []byte, row int64) {
		if c := p.First + row%shape[p.Axis]; q.ofRouter(c) {
			for ; len(out) > 0; out = out[d.Size():] {
				put(out, d, set)
			}
		}
	})
}

// quiet is what parameters whose products are added to the stream are multiplied by.
func (q *Routing) quiet() float32 {
	return float32(math.Exp2(math.Floor(math.Log2(quiet / float64(q.Width)))))
}

// rows calls f for the rows of a matrix, on all cores.
func rows(data []byte, shape []int64, f func(out []byte, row int64)) error {
	if shape[0] == 0 || len(data) == 0 {
		return nil
	}
	size := int64(len(data)) / shape[0]
	workers := min(int64(runtime.GOMAXPROCS(0)), shape[0])
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for row := w; row < shape[0]; row += workers {
				f(data[row*size:(row+1)*size], row)
			}
		})
	}
	wg.Wait()
	return nil
}

// ofRouter reports whether a channel belongs to a router.
func (q *Routing) ofRouter(c int64) bool { return c%lanes == c/(lanes*q.Experts)%lanes }

// expert is the one that a router's channel belongs to.
func (q *Routing) expert(c int64) int64 { return c / lanes % q.Experts }

// sign is s(c).
func sign(c int64) float64 {
	if Mix(uint32(c))>>31 != 0 {
		return -1
	}
	return 1
}

// channel is what the table has on a channel: a magnitude, or a router's expert and
// sign.
type channel struct {
	expert int64 // -1: none
	value  float64
}

func (q *Routing) channels() []channel {
	out := make([]channel, q.Width)
	for i := range out {
		c := int64(i)
		if q.ofRouter(c) {
			out[i] = channel{q.expert(c), sign(c)}
		} else {
			out[i] = channel{-1, float64(1<<23+Mix(uint32(c))>>8) / (1 << 24)}
		}
	}
	return out
}

// key is that of number j.
func (q *Routing) key(j int64) float64 {
	step := min(mostStep, fall/(q.Tokens/q.Experts))
	return float64(dtype.BF16ToF32(uint16(topKey - step*j)))
}

// values are what a slot of the table has on the channels of each expert.
func (q *Routing) values(slot int64) []float64 {
	out := slices.Repeat([]float64{low}, int(q.Experts))
	j, first := slot/q.Experts, slot%q.Experts
	after := func(r int64) int64 { return (first + 1 + (j+r)%(q.Experts-1)) % q.Experts }
	if q.Takes == 0 {
		out[first], out[after(0)] = q.key(j), 0
		return out
	}
	out[first] = stair * float64(q.Takes-1)
	for r := range q.Takes - 1 {
		out[after(r)] = stair * float64(q.Takes-2-r)
	}
	return out
}

// tableRow writes a row of the table: number row of the rank's, v of all.
func (q *Routing) tableRow(cs []channel, s Source, out []byte, d dtype.DType, row, v int64) {
	values := q.values(v % q.Tokens)
	for c := range cs {
		x := cs[c].value
		if e := cs[c].expert; e >= 0 {
			x *= values[e]
		} else if s.Hash(uint64(row*q.Width+int64(c)))>>31 != 0 {
			x = -x
		}
		put(out[c*d.Size():], d, x)
	}
}

// routerRow writes the weights of an expert.
func (q *Routing) routerRow(out []byte, d dtype.DType, e int64) {
	for c := range q.Width {
		x := 0.0
		if q.ofRouter(c) && q.expert(c) == e {
			x = sign(c) * gain * float64(lanes*q.Experts) / float64(q.Width)
		}
		put(out[int(c)*d.Size():], d, x)
	}
}

// fillIDs writes the rows that tokens look up.
func (q *Routing) fillIDs(s Source, data []byte, d dtype.DType) {
	m := q.Tokens * 5 / 8
	for intmath.GCD(m, q.Tokens) > 1 {
		m++
	}
	for t := range q.Tokens {
		id := int64(s.Hash(uint64(t)))%(q.Rows/q.Tokens)*q.Tokens + (t*m+int64(s.b))%q.Tokens
		put(data[int(t)*d.Size():], d, float64(id))
	}
}

// put writes one element: a float as float32 and then as its type, or an integer.
func put(out []byte, d dtype.DType, x float64) {
	if d.IsFloat() {
		dtype.StoreFloat(d, out, float64(float32(x)))
	} else {
		dtype.StoreInt(d, out, int64(x))
	}
}
