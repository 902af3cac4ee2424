package progen

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var donation = regexp.MustCompile(` \{donate=(\d+)\}`)

// shrinkDonations leaves inputs to the caller.
func shrinkDonations(r *reducer) {
	for i := range listText(r.best.Text).inputs {
		l := listText(r.best.Text)
		l.inputs[i].tail = donation.ReplaceAllString(l.inputs[i].tail, "")
		r.tryText(l.String())
	}
}

func shrinkReturns(r *reducer) {
	for i := len(listText(r.best.Text).rets) - 1; i >= 0; i-- {
		l := listText(r.best.Text)
		if i >= len(l.rets) {
			continue
		}
		name := l.rets[i]
		l.rets = slices.Delete(l.rets, i, i+1)
		for k := range l.inputs {
			l.inputs[k].tail = donation.ReplaceAllStringFunc(l.inputs[k].tail, func(s string) string {
				j, _ := strconv.Atoi(donation.FindStringSubmatch(s)[1])
				switch {
				case j == i:
					return ""
				case j > i:
					j--
				}
				return fmt.Sprintf(" {donate=%d}", j)
			})
		}
		l.inputs = slices.DeleteFunc(l.inputs, func(n line) bool { return n.results[0] == name && strings.HasPrefix(n.types[0], "async") })
		r.tryText(l.String())
	}
}

// shrinkLines removes operations, the last first. Who reads a result reads an operand
// or another tensor of its type instead, or a new input.
func shrinkLines(r *reducer) {
	for i := len(listText(r.best.Text).lines) - 1; i >= 0; i-- {
		l := listText(r.best.Text)
		if i >= len(l.lines) {
			continue
		}
		n := l.lines[i]
		if r.without(l, i, func(k int) string { return "" }) || r.withoutFlight(l, i) {
			continue
		}
		same := func(k int) string {
			for _, m := range slices.Backward(slices.Concat(l.inputs, l.lines[:i])) {
				for j, name := range m.results {
					if m.types[j] == n.types[k] && !strings.HasPrefix(n.types[k], "async") && (slices.Contains(n.args, name) || len(n.args) == 0) {
						return name
					}
				}
			}
			return ""
		}
		if r.without(l, i, same) {
			continue
		}
		r.without(l, i, func(k int) string { return "new" })
	}
}

// without tries the program without line i; stand names what stands for result k: a
// tensor, "new" for a new input, or nothing, which does only if nobody reads it.
func (r *reducer) without(l listing, i int, stand func(k int) string) bool {
	c := l.clone()
	n := c.lines[i]
	for k, name := range n.results {
		if !c.used(name) {
			continue
		}
		to := stand(k)
		switch to {
		case "":
			return false
		case "new":
			to = "%i" + strings.NewReplacer("%", "", "#", "_").Replace(name)
			c.inputs = append(c.inputs, line{results: []string{to}, types: []string{n.types[k]}})
		}
		c.rename(i, name, to)
	}
	c.lines = slices.Delete(c.lines, i, i+1)
	for k := range c.lines {
		c.lines[k].after = slices.DeleteFunc(slices.Clone(c.lines[k].after), func(s string) bool { return s == n.node() })
	}
	return r.tryText(c.String())
}

// withoutFlight tries the program without a wait whose results nobody reads, and
// without what it waits for.
func (r *reducer) withoutFlight(l listing, i int) bool {
	c := l.clone()
	w := c.lines[i]
	if w.op != "wait_tensor" || slices.ContainsFunc(w.results, c.used) {
		return false
	}
	gives := func(n line) bool { return slices.Contains(n.results, w.args[0]) }
	c.lines = slices.DeleteFunc(slices.Delete(c.lines, i, i+1), gives)
	c.inputs = slices.DeleteFunc(c.inputs, gives)
	return r.tryText(c.String())
}

// shrinkOperands drops operands together with the results and types that belong to
// them, attributes, and roles.
func shrinkOperands(r *reducer) {
	for i := range listText(r.best.Text).lines {
		for a := 3; a >= 0; a-- {
			l := listText(r.best.Text)
			if i >= len(l.lines) || a >= len(l.lines[i].args) {
				continue
			}
			c := l.clone()
			c.lines[i].args = slices.Delete(c.lines[i].args, a, a+1)
			if !r.tryText(c.String()) {
				r.leaveBucket(l, i, a)
			}
		}
		l := listText(r.best.Text)
		if i >= len(l.lines) {
			continue
		}
		if from := strings.IndexByte(l.lines[i].tail, '{'); from >= 0 {
			for _, attr := range split(strings.Trim(l.lines[i].tail[from:], "{}")) {
				l := listText(r.best.Text)
				rest := slices.DeleteFunc(split(strings.Trim(l.lines[i].tail[from:], "{}")), func(s string) bool { return s == attr })
				l.lines[i].tail = l.lines[i].tail[:from] + "{" + strings.Join(rest, ", ") + "}"
				if len(rest) == 0 {
					l.lines[i].tail = strings.TrimRight(l.lines[i].tail[:from], " ")
				}
				r.tryText(l.String())
			}
		}
	}
	for i := range listText(r.best.Text).inputs {
		l := listText(r.best.Text)
		if l.inputs[i].tail != "" {
			l.inputs[i].tail = ""
			r.tryText(l.String())
		}
	}
}

// shrinkAnnotations drops regions, order-only edges and what the return says.
func shrinkAnnotations(r *reducer) {
	l := listText(r.best.Text)
	l.meta = ""
	r.tryText(l.String())
	for i := range l.lines {
		l = listText(r.best.Text)
		if l.lines[i].region == "" && l.lines[i].after == nil {
			continue
		}
		c := l.clone()
		c.lines[i].region, c.lines[i].after = "", nil
		if r.tryText(c.String()) {
			continue
		}
		c = l.clone()
		c.lines[i].region = ""
		if r.tryText(c.String()) {
			l = c
		}
		l.lines[i].after = nil
		r.tryText(l.String())
	}
}

// leaveBucket drops operand a of a collective of several, and what its wait gives.
func (r *reducer) leaveBucket(l listing, i, a int) {
	c := l.clone()
	n := &c.lines[i]
	if len(n.types) != 1 || !strings.HasPrefix(n.types[0], "async(") {
		return
	}
	elems := split(strings.TrimSuffix(strings.TrimPrefix(n.types[0], "async("), ")"))
	if len(elems) != len(n.args) {
		return
	}
	n.args, elems = slices.Delete(n.args, a, a+1), slices.Delete(elems, a, a+1)
	n.types = []string{"async(" + strings.Join(elems, ", ") + ")"}
	if len(elems) == 1 {
		n.types = []string{"async " + elems[0]}
	}
	for k := i + 1; k < len(c.lines); k++ {
		w := &c.lines[k]
		if w.op != "wait_tensor" || w.args[0] != n.results[0] {
			continue
		}
		if c.used(w.results[a]) {
			return
		}
		old := slices.Delete(slices.Clone(w.results), a, a+1)
		w.types = slices.Delete(slices.Clone(w.types), a, a+1)
		base, _, _ := strings.Cut(w.results[0], "#")
		w.results = nil
		for j, name := range old {
			to := fmt.Sprintf("%s#%d", base, j)
			if len(old) == 1 {
				to = base
			}
			w.results = append(w.results, to)
			c.rename(k+1, name, to)
		}
	}
	r.tryText(c.String())
}

// shrinkWorld tries smaller worlds with groups of consecutive ranks.
func shrinkWorld(r *reducer) {
	l := listText(r.best.Text)
	world, _ := strconv.Atoi(strings.TrimPrefix(l.head[0], "world "))
	for w := 1; w < world; w++ {
		c := listText(r.best.Text)
		c.head[0] = fmt.Sprintf("world %d", w)
		for i, h := range c.head {
			name, lists, ok := strings.Cut(h, " = ")
			if !ok {
				continue
			}
			first, _, _ := strings.Cut(lists, "]")
			size := min(strings.Count(first, ",")+1, w)
			for w%size != 0 {
				size--
			}
			var subs []string
			for from := 0; from < w; from += size {
				var ranks []string
				for k := range size {
					ranks = append(ranks, fmt.Sprint(from+k))
				}
				subs = append(subs, "["+strings.Join(ranks, ", ")+"]")
			}
			c.head[i] = name + " = [" + strings.Join(subs, ", ") + "]"
		}
		d := r.best
		d.Text, d.Symbols = c.String(), nil
		for _, a := range r.best.Symbols {
			d.Symbols = append(d.Symbols, a[:w])
		}
		if r.try(d) {
			return
		}
	}
}

var number = regexp.MustCompile(`\b\d+\b`)

// shrinkNumbers puts smaller numbers in place of all equal ones in the body.
func shrinkNumbers(r *reducer) {
	seen := map[string]bool{} // look-up only
	for {
		at := strings.Index(r.best.Text, "func ")
		head, body := r.best.Text[:at], r.best.Text[at:]
		next := ""
		for _, n := range number.FindAllString(body, -1) {
			if v, err := strconv.ParseInt(n, 10, 64); err == nil && v > 1 && !seen[n] {
				next = n
				break
			}
		}
		if next == "" {
			return
		}
		seen[next] = true
		v, _ := strconv.ParseInt(next, 10, 64)
		for _, small := range []int64{1, 2, v / 2} {
			all := regexp.MustCompile(`\b` + next + `\b`)
			if small < v && r.tryText(head+all.ReplaceAllString(body, fmt.Sprint(small))) {
				break
			}
		}
	}
}

var types = regexp.MustCompile(`\b(f64|f16|bf16|i64|i32|i8|u8|bool)\[`)

// shrinkTypes puts f32 in place of other element types.
func shrinkTypes(r *reducer) {
	for _, t := range types.FindAllString(r.best.Text, -1) {
		r.tryText(strings.ReplaceAll(r.best.Text, " "+t, " f32["))
	}
}

// shrinkDeclarations removes inputs, groups and symbols that nobody needs, and puts
// one group in place of another.
func shrinkDeclarations(r *reducer) {
	for i := len(listText(r.best.Text).inputs) - 1; i >= 0; i-- {
		l := listText(r.best.Text)
		if !l.used(l.inputs[i].results[0]) {
			l.inputs = slices.Delete(l.inputs, i, i+1)
			r.tryText(l.String())
		}
	}
	for i := len(listText(r.best.Text).head) - 1; i > 0; i-- {
		l := listText(r.best.Text)
		name := strings.Fields(l.head[i])[1]
		l.head = slices.Delete(l.head, i, i+1)
		if !strings.HasPrefix(name, "@") {
			c := r.best
			c.Text, c.Symbols = l.String(), withoutSymbol(c.Symbols, name)
			r.try(c)
			continue
		}
		if r.tryText(l.String()) {
			continue
		}
		for _, h := range l.head[1:] {
			if other := strings.Fields(h)[1]; strings.HasPrefix(other, "@") && r.tryText(strings.ReplaceAll(l.String(), " on "+name, " on "+other)) {
				break
			}
		}
	}
}

func withoutSymbol(assignments [][]map[string]int64, name string) [][]map[string]int64 {
	var out [][]map[string]int64
	for _, a := range assignments {
		var ranks []map[string]int64
		for _, m := range a {
			rest := maps.Clone(m)
			delete(rest, name)
			ranks = append(ranks, rest)
		}
		out = append(out, ranks)
	}
	return out
}
