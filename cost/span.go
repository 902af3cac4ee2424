package cost

import "math"

// Span is where the ranks of a group's subgroups are, as far as prices depend on it: of
// the subgroup that is worst off.
type Span struct {
	Ranks   int     // of a subgroup
	Domains int     // NVLink domains that it reaches into
	Least   int     // its ranks in the domain that has the fewest of them
	Rail    float64 // network adapters for each rank while all subgroups communicate, at most 1
	Far     float64 // part of a subgroup's ranks that are behind other switches than the rank is
	Up      float64 // part of its adapters' rate that a subgroup's ring has between switches
	UpAll   float64 // the same of what every rank sends to all others
}

// Span finds where the subgroups of a process group are: rank r is in NVLink domain
// r / RanksPerDomain and on host r / RanksPerHost. All subgroups communicate at once, so that those which leave a domain
// share its network adapters, and those which leave a switch its way to others.
func (m *Machine) Span(subgroups [][]int) Span {
	out := Span{Rail: 1, Up: 1, UpAll: 1}
	if len(subgroups) == 0 {
		return out
	}
	leave := map[int]int{}                            // by domain: ranks whose subgroup leaves it; a look-up and a maximum
	ring, all := map[int]float64{}, map[int]float64{} // by switch: adapters that are busy with what leaves it
	for _, ranks := range subgroups {
		in, behind := map[int]int{}, map[int]int{}
		for _, r := range ranks {
			in[r/m.perDomain()]++
			behind[m.leaf(r)]++
		}
		least, nearest := len(ranks), len(ranks)
		for d, n := range in {
			least = min(least, n)
			if len(in) > 1 {
				leave[d] += n
			}
		}
		for l, n := range behind {
			nearest = min(nearest, n)
			if len(behind) > 1 { // a ring leaves a switch once, on as many adapters as a domain has ranks
				ring[l] += float64(least)
				all[l] += float64(n) * float64(len(ranks)-n) / float64(len(ranks)-1)
			}
		}
		if out.Ranks == 0 || len(in) > out.Domains || len(in) == out.Domains && least < out.Least {
			out.Ranks, out.Domains, out.Least = len(ranks), len(in), least
		}
		out.Far = max(out.Far, float64(len(ranks)-nearest)/math.Max(float64(len(ranks)-1), 1))
	}
	if most := largest(leave); m.RailsPerHost > 0 && most > 0 {
		out.Rail = min(1, float64(m.RailsPerHost)/float64(max(m.RanksPerHost, 1))*float64(m.perDomain())/float64(most))
	}
	if m.Oversubscription > 1 {
		adapters := float64(m.HostsPerLeaf * max(m.RanksPerHost, 1))
		if m.RailsPerHost > 0 {
			adapters = float64(m.HostsPerLeaf * m.RailsPerHost)
		}
		out.Up = min(1, adapters/m.Oversubscription/math.Max(largest(ring)*out.Rail, 1))
		out.UpAll = min(1, adapters/m.Oversubscription/math.Max(largest(all)*out.Rail, 1))
	}
	return out
}

// largest is the largest value of a map, at least 0.
func largest[N int | float64](of map[int]N) N {
	most := N(0)
	for _, n := range of {
		most = max(most, n)
	}
	return most
}

// leaf is the number of the first switches that a rank's host is joined to.
func (m *Machine) leaf(rank int) int {
	if m.HostsPerLeaf <= 0 || m.Oversubscription <= 1 {
		return 0
	}
	return rank / max(m.RanksPerHost, 1) / m.HostsPerLeaf
}

// DomainSize is the number of ranks of an NVLink domain: ranks 0 to DomainSize-1 are the first.
func (m *Machine) DomainSize() int { return m.perDomain() }

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
