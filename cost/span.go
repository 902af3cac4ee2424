package cost

import "math"

// Span is where the ranks of a group's subgroups are, as far as prices depend on it: of
// the subgroup that is worst off.
type Span struct {
	Ranks   int     // of a subgroup
	Domains int     // NVLink domains that it reaches into
	Least   int     // its ranks in the domain that has the fewest of them
	Rail    float64 // network adapters for each rank while all subgroups communicate, at most 1
}

// Span finds where the subgroups of a process group are: rank r is in NVLink domain
// r / RanksPerDomain. All subgroups communicate at once, so that those which leave a domain
// share its network adapters.
func (m *Machine) Span(subgroups [][]int) Span {
	out := Span{Rail: 1}
	if len(subgroups) == 0 {
		return out
	}
	per := m.perDomain()
	leave := map[int]int{} // by domain: ranks whose subgroup leaves it; a look-up and a maximum
	for _, ranks := range subgroups {
		in := map[int]int{}
		for _, r := range ranks {
			in[r/per]++
		}
		least := len(ranks)
		for d, n := range in {
			least = min(least, n)
			if len(in) > 1 {
				leave[d] += n
			}
		}
		if out.Ranks == 0 || len(in) > out.Domains || len(in) == out.Domains && least < out.Least {
			out.Ranks, out.Domains, out.Least = len(ranks), len(in), least
		}
	}
	most := 0
	for _, n := range leave {
		most = max(most, n)
	}
	if m.RailsPerHost > 0 && most > 0 {
		rails := float64(m.RailsPerHost) * float64(per) / math.Max(float64(m.RanksPerHost), 1)
		out.Rail = min(1, rails/float64(most))
	}
	return out
}

// perDomain is the number of ranks that NVLink joins.
func (m *Machine) perDomain() int {
	if m.RanksPerDomain > 0 {
		return m.RanksPerDomain
	}
	return max(m.RanksPerHost, 1)
}

// outside is the part of what a rank sends to all others that leaves its domain.
func (s Span) outside() float64 {
	return float64(s.Ranks-s.Least) / math.Max(float64(s.Ranks-1), 1)
}
