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
	var leave, in tally         // by domain: ranks whose subgroup leaves it, and ranks of the subgroup
	var behind, ring, all tally // by switch: ranks of the subgroup, and adapters that are busy with what leaves it
	for _, ranks := range subgroups {
		in.clear()
		behind.clear()
		for _, r := range ranks {
			in.add(r/m.DomainSize(), 1)
			behind.add(m.leaf(r), 1)
		}
		least, nearest := float64(len(ranks)), float64(len(ranks))
		for _, d := range in.keys {
			least = min(least, in.sum[d])
			if len(in.keys) > 1 {
				leave.add(d, in.sum[d])
			}
		}
		for _, l := range behind.keys {
			n := behind.sum[l]
			nearest = min(nearest, n)
			if len(behind.keys) > 1 { // a ring leaves a switch once, on as many adapters as a domain has ranks
				ring.add(l, least)
				all.add(l, n*(float64(len(ranks))-n)/float64(len(ranks)-1))
			}
		}
		if domains := len(in.keys); out.Ranks == 0 || domains > out.Domains || domains == out.Domains && int(least) < out.Least {
			out.Ranks, out.Domains, out.Least = len(ranks), domains, int(least)
		}
		out.Far = max(out.Far, (float64(len(ranks))-nearest)/math.Max(float64(len(ranks)-1), 1))
	}
	if most := leave.largest(); m.RailsPerHost > 0 && most > 0 {
		out.Rail = min(1, float64(m.RailsPerHost)/float64(max(m.RanksPerHost, 1))*float64(m.DomainSize())/most)
	}
	if m.Oversubscription > 1 {
		adapters := float64(m.HostsPerLeaf * max(m.RanksPerHost, 1))
		if m.RailsPerHost > 0 {
			adapters = float64(m.HostsPerLeaf * m.RailsPerHost)
		}
		out.Up = min(1, adapters/m.Oversubscription/math.Max(ring.largest()*out.Rail, 1))
		out.UpAll = min(1, adapters/m.Oversubscription/math.Max(all.largest()*out.Rail, 1))
	}
	return out
}

// tally adds up by small numbers, such as those of domains. A map would do, at ten times the
// time for thousands of ranks.
type tally struct {
	sum  []float64
	keys []int // of sum that are not 0, in the order in which they came
}

func (t *tally) add(key int, by float64) {
	for len(t.sum) <= key {
		t.sum = append(t.sum, 0)
	}
	if t.sum[key] == 0 {
		t.keys = append(t.keys, key)
	}
	t.sum[key] += by
}

func (t *tally) clear() {
	for _, k := range t.keys {
		t.sum[k] = 0
	}
	t.keys = t.keys[:0]
}

// largest is the largest sum, at least 0.
func (t *tally) largest() float64 {
	most := 0.0
	for _, k := range t.keys {
		most = max(most, t.sum[k])
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
func (m *Machine) DomainSize() int {
	if m.RanksPerDomain > 0 {
		return m.RanksPerDomain
	}
	return max(m.RanksPerHost, 1)
}

// crossingShare is the part of what a rank sends to all others that leaves its domain.
func (s Span) crossingShare() float64 {
	return float64(s.Ranks-s.Least) / math.Max(float64(s.Ranks-1), 1)
}
