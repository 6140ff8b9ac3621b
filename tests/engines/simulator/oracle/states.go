package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	quota "k8s.io/apiserver/pkg/quota/v1"
)

type phase uint8

const (
	phaseNone    phase = iota // not created
	phaseGated                // created, Kueue has no Workload for it
	phaseQueued               // its Workload waits for quota
	phaseOpen                 // nothing but a node is missing
	phaseRunning              // on a node
	phaseEnded                // it has ended, its pod is stored
	phaseGone                 // it has ended, its pod is deleted
)

// state is a moment of a world. It is never changed: a step makes a new one.
type state struct {
	started  bool
	released bool // what others used of the quotas is free
	phase    []phase
	node     []int8
	holds    []uint8 // what Kueue gave, by number
	fails    []uint8
	line     []uint8 // who has a Workload, by the time of creation
	reserved []uint8 // who holds quota of Kueue, by the time it was given
}

func (s state) clone() state {
	s.phase, s.node, s.holds = slices.Clone(s.phase), slices.Clone(s.node), slices.Clone(s.holds)
	s.fails, s.line, s.reserved = slices.Clone(s.fails), slices.Clone(s.line), slices.Clone(s.reserved)
	return s
}

func (s state) key() string {
	key := make([]byte, 0, 4*len(s.phase)+len(s.line)+len(s.reserved)+4)
	flags := byte(0)
	if s.started {
		flags |= 1
	}
	if s.released {
		flags |= 2
	}
	key = append(key, flags)
	for i := range s.phase {
		key = append(key, byte(s.phase[i]), byte(s.node[i]+1), s.holds[i], s.fails[i])
	}
	key = append(key, s.line...)
	key = append(key, 255)
	return string(append(key, s.reserved...))
}

// left takes a unit out of Kueue's books.
func (s *state) left(unit int) {
	same := func(each uint8) bool { return int(each) == unit }
	s.line = slices.DeleteFunc(s.line, same)
	s.reserved = slices.DeleteFunc(s.reserved, same)
	s.holds[unit] = 0
	s.node[unit] = -1
}

// tidy forgets the times that nothing asks for: without preemption only the order of those who wait counts.
func (s *scene) tidy(st *state) {
	if s.preempts {
		return
	}
	slices.Sort(st.reserved)
	slices.SortStableFunc(st.line, func(a, b uint8) int {
		waitsA, waitsB := st.phase[a] == phaseQueued, st.phase[b] == phaseQueued
		switch {
		case waitsA && waitsB:
			return 0
		case waitsA:
			return 1
		case waitsB:
			return -1
		}
		return int(a) - int(b)
	})
}

// quotasIn are the quotas with what is used in a state.
func (s *scene) quotasIn(st state) []corev1.ResourceQuota {
	found := make([]corev1.ResourceQuota, len(s.quotas))
	for i, each := range s.quotas {
		now := each.DeepCopy()
		used := corev1.ResourceList{}
		for key, amount := range now.Status.Used {
			if st.released {
				amount = resource.MustParse("0")
			}
			used[key] = amount
		}
		for number := range s.world.Units {
			u := &s.units[number]
			if p := st.phase[number]; p > phaseNone && p < phaseEnded {
				used = quota.Add(used, u.live[i])
			} else if p == phaseEnded {
				used = quota.Add(used, u.stored[i])
			}
			for range st.fails[number] {
				used = quota.Add(used, u.stored[i])
			}
		}
		now.Status.Used = quota.Mask(used, quota.ResourceNames(each.Status.Used))
		found[i] = *now
	}
	return found
}

// counts tells whether the quotas have room for so many more objects of a kind that are no pods, with so many there.
func (s *scene) counts(st state, key corev1.ResourceName, there, more int64) bool {
	for _, each := range s.quotas {
		hard, limited := each.Status.Hard[key]
		if !limited || len(each.Spec.Scopes) > 0 || each.Spec.ScopeSelector != nil {
			continue
		}
		total := *resource.NewQuantity(there+more, resource.DecimalSI)
		if used, known := each.Status.Used[key]; known && !st.released {
			total.Add(used)
		}
		if total.Cmp(hard) > 0 {
			return false
		}
	}
	return true
}

// workloads is how many Workload objects of the run there are: they go when their pod is deleted.
func (s *scene) workloads(st state) (count int64) {
	for number := range s.world.Units {
		u := &s.units[number]
		if u.wl == nil {
			continue
		}
		if p := st.phase[number]; p == phaseQueued || p == phaseOpen || p == phaseRunning || p == phaseEnded {
			count++
		}
		count += int64(st.fails[number])
	}
	return count
}
