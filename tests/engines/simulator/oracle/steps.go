package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// step is something that can happen next.
type step struct {
	what string
	then state
	// waits tells that with this step a pod of the run loses its place or has to wait for others to be evicted.
	waits bool
}

// ready tells whether the engine creates the unit's pod now.
func (s *scene) ready(st state, number int) bool {
	if !st.started || st.phase[number] != phaseNone {
		return false
	}
	u := &s.units[number]
	for _, before := range u.after {
		if st.phase[before] < phaseEnded {
			return false
		}
	}
	for _, cap := range s.caps[number] {
		underWay := 0
		for _, group := range s.world.Caps[cap].Groups {
			if !slices.Contains(group, number) && st.underWay(group) {
				underWay++
			}
		}
		if underWay >= s.world.Caps[cap].Max {
			return false
		}
	}
	return true
}

// underWay tells whether some pod of the group was created, and not all have ended.
func (s state) underWay(group []int) bool {
	begun, ended := false, true
	for _, member := range group {
		begun = begun || s.phase[member] > phaseNone || s.fails[member] > 0
		ended = ended && s.phase[member] >= phaseEnded
	}
	return begun && !ended
}

// control are the steps that the control plane takes by itself, others' first. None left: everybody who does not run waits.
func (s *scene) control(st state) (steps []step, err error) {
	if !st.started {
		for key, more := range s.world.Objects {
			if !s.counts(st, corev1.ResourceName(key), 0, more) {
				return nil, nil
			}
		}
		then := st.clone()
		then.started = true
		return []step{{what: "start", then: then}}, nil
	}
	own := len(s.world.Units)
	for number := len(s.units) - 1; number >= 0; number-- {
		if st.phase[number] == phaseOpen {
			placed, err := s.place(st, number)
			if err != nil {
				return nil, err
			}
			steps = append(steps, placed...)
		}
	}
	seen := map[int]bool{}
	for number := range own {
		if s.ready(st, number) && !seen[s.units[number].class] {
			seen[s.units[number].class] = true
			said, err := s.create(st, number)
			if err != nil {
				return nil, err
			}
			if said != nil {
				continue
			}
			then := st.clone()
			then.phase[number] = phaseOpen
			if s.units[number].wl != nil {
				then.phase[number] = phaseGated
				if !s.countsWorkload && !s.units[number].nameless {
					s.queue(&then, number)
				}
			}
			s.tidy(&then)
			steps = append(steps, step{what: "create " + s.units[number].name, then: then})
		}
		if st.phase[number] == phaseGated && !s.units[number].nameless && s.counts(st, countedWorkloads, s.workloads(st), 1) {
			then := st.clone()
			s.queue(&then, number)
			s.tidy(&then)
			steps = append(steps, step{what: "queue " + s.units[number].name, then: then})
		}
	}
	decided, err := s.decide(st)
	if err != nil {
		return nil, err
	}
	return append(steps, decided...), nil
}

func (s *scene) queue(st *state, number int) {
	st.phase[number] = phaseQueued
	st.line = append(st.line, uint8(number))
}

// create asks the API server for the unit's pod.
func (s *scene) create(st state, number int) (*refusal, error) {
	if len(s.quotas) == 0 {
		return nil, nil
	}
	key := []byte{byte(s.units[number].shape), 0}
	if st.released {
		key[1] = 1
	}
	for other := range s.world.Units {
		p := st.phase[other]
		if p > phaseNone && p < phaseEnded {
			p = phaseRunning
		}
		key = append(key, byte(p), st.fails[other])
	}
	said, known := s.charges[string(key)]
	if known {
		return said, nil
	}
	said, err := s.server.charge(s.units[number].internal, s.quotasIn(st))
	if err != nil {
		return nil, err
	}
	s.charges[string(key)] = said
	return said, nil
}

// place lists where the scheduler may bind the unit's pod; of nodes that are alike in everything the first stands for all.
func (s *scene) place(st state, number int) (steps []step, err error) {
	key := binary.LittleEndian.AppendUint16(nil, uint16(s.units[number].shape))
	key = append(key, st.holds[number])
	on := make([][]string, len(s.nodes))
	var bound []int
	for other := range s.units {
		if st.phase[other] == phaseRunning && st.node[other] >= 0 {
			bound = append(bound, other)
			on[st.node[other]] = append(on[st.node[other]], fmt.Sprintf("%d/%d", s.units[other].shape, st.holds[other]))
		}
	}
	for i := range on {
		slices.Sort(on[i])
		key = append(key, fmt.Sprint(on[i])...)
	}
	found, known := s.fits[string(key)]
	if !known {
		pod, err := s.open(number, st.holds[number])
		if err != nil {
			return nil, err
		}
		var there []placed
		for _, other := range bound {
			running, err := s.open(other, st.holds[other])
			if err != nil {
				return nil, err
			}
			there = append(there, placed{running, s.nodes[st.node[other]].Name})
		}
		names, err := s.bench.feasible(pod, s.nodes, there)
		if err != nil {
			return nil, err
		}
		for i, node := range s.nodes {
			if slices.Contains(names, node.Name) {
				found = append(found, i)
			}
		}
		s.fits[string(key)] = found
	}
	seen := map[string]bool{}
	for _, node := range found {
		alike := fmt.Sprint(s.nodeAlike[node], on[node])
		if seen[alike] {
			continue
		}
		seen[alike] = true
		then := st.clone()
		then.phase[number], then.node[number] = phaseRunning, int8(node)
		steps = append(steps, step{what: fmt.Sprintf("bind %s to %s", s.units[number].name, s.nodes[node].Name), then: then})
	}
	return steps, nil
}

// open is a unit's pod with what Kueue gave it.
func (s *scene) open(number int, holds uint8) (*corev1.Pod, error) {
	u := &s.units[number]
	if holds == 0 {
		return u.pod, nil
	}
	at := [2]int{u.shape, int(holds)}
	if pod, known := s.opened[at]; known {
		return pod, nil
	}
	pod, err := s.queues.opened(u.pod, s.given[holds])
	if err == nil {
		s.opened[at] = pod
	}
	return pod, err
}

// decide is what Kueue's scheduler does next.
func (s *scene) decide(st state) (steps []step, err error) {
	waiting := false
	key := []byte{}
	for _, number := range st.line {
		waiting = waiting || st.phase[number] == phaseQueued
		key = append(key, number, st.holds[number])
	}
	if !waiting {
		return nil, nil
	}
	key = append(append(key, 255), st.reserved...)
	made, known := s.decisions[string(key)]
	if !known {
		var claimants []claimant
		for at, number := range st.line {
			each := claimant{unit: int(number), workload: s.units[number].wl, created: at}
			if st.holds[number] != 0 {
				each.holds = s.given[st.holds[number]]
				each.reserved = slices.Index(st.reserved, number)
			}
			claimants = append(claimants, each)
		}
		if made, err = s.queues.decide(claimants); err != nil {
			return nil, err
		}
		s.decisions[string(key)] = made
	}
	if len(made.admitted)+len(made.evicted) == 0 {
		return nil, nil
	}
	then := st.clone()
	next := step{what: "kueue:"}
	for i, at := range made.admitted {
		number := int(st.line[at])
		then.holds[number] = s.hold(made.with[i])
		then.reserved = append(then.reserved, uint8(number))
		then.phase[number] = phaseOpen
		if s.units[number].pod == nil {
			then.phase[number] = phaseRunning
		}
		next.what += " admits " + s.units[number].name + flavorsOf(made.with[i])
	}
	for _, at := range made.evicted {
		number := int(st.line[at])
		then.phase[number], then.holds[number], then.node[number] = phaseQueued, 0, -1
		then.reserved = slices.DeleteFunc(then.reserved, func(each uint8) bool { return int(each) == number })
		next.what += " evicts " + s.units[number].name
		next.waits = next.waits || s.units[number].own
	}
	for _, at := range made.by {
		next.waits = next.waits || s.units[st.line[at]].own
	}
	s.tidy(&then)
	next.then = then
	return []step{next}, nil
}

func flavorsOf(given *kueue.Admission) string {
	names := map[string]bool{}
	for _, flavor := range given.PodSetAssignments[0].Flavors {
		names[string(flavor)] = true
	}
	list := []string{}
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return fmt.Sprint(list)
}

// endings are the steps that time takes: pods end, or fail and are tried again, and others give back what they use.
func (s *scene) endings(st state) (own, others []step) {
	for number := range s.units {
		u := &s.units[number]
		if u.own && st.phase[number] == phaseEnded && s.world.Keeps == "collected" && s.counted {
			then := st.clone()
			then.phase[number] = phaseGone
			own = append(own, step{what: "collect " + u.name, then: then})
		}
		// Who holds something may give it back, placed or not; who waits goes only by being served.
		holds := st.phase[number] == phaseRunning || !u.own && st.phase[number] == phaseOpen && st.holds[number] != 0
		if !holds || u.stays {
			continue
		}
		then := st.clone()
		then.left(number)
		then.phase[number] = phaseEnded
		if u.own && s.world.Keeps == "deleted" {
			then.phase[number] = phaseGone
		}
		s.tidy(&then)
		if !u.own {
			others = append(others, step{what: "end " + u.name, then: then})
			continue
		}
		own = append(own, step{what: "end " + u.name, then: then})
		if int(st.fails[number]) < u.tries-1 {
			again := then.clone()
			again.phase[number] = phaseNone
			again.fails[number]++
			own = append(own, step{what: "fail " + u.name, then: again})
		}
	}
	if !st.released && s.releases() {
		then := st.clone()
		then.released = true
		others = append(others, step{what: "others give back their quota", then: then})
	}
	return own, others
}

// releases tells whether others use anything of the quotas.
func (s *scene) releases() bool {
	for _, each := range s.quotas {
		for _, amount := range each.Status.Used {
			if !amount.IsZero() {
				return true
			}
		}
	}
	return false
}
