package main

import (
	"encoding/json"
	"slices"

	"gpuflow.test/engines/lines"
)

// verdict is how a run can end in a world.
type verdict struct {
	// Truth is always (nobody waits, whatever the order), may-queue (in some order somebody waits, and in some order
	// the run ends), or never (it ends in no order); empty when the world is too large.
	Truth  string `json:"truth"`
	States int    `json:"states"`
	// Waits is the way to the first moment at which a pod of the run waits, and who it is.
	Waits   []string `json:"waits,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
	// Ends is a way to the end of the run.
	Ends []string `json:"ends,omitempty"`
	// Refused is what the API server says to a pod that it never creates.
	Refused string `json:"refused,omitempty"`
}

func newJudge() (lines.Answer, error) {
	server, err := newAPIServer()
	if err != nil {
		return nil, err
	}
	b, err := newBench()
	if err != nil {
		return nil, err
	}
	return func(input []byte) (any, error) {
		var w world
		if err := json.Unmarshal(input, &w); err != nil {
			return nil, err
		}
		s, err := newScene(&w, server, b)
		if err != nil {
			return nil, err
		}
		return s.judge()
	}, nil
}

func (s *scene) judge() (out verdict, err error) {
	for number := range s.world.Units {
		if fatal := s.units[number].fatal; fatal != nil {
			out.Truth, out.Refused = "never", s.units[number].name+": "+fatal.message
			return out, nil
		}
	}
	ends, err := s.search(&out, true)
	if err != nil || ends == tooLarge {
		return out, err
	}
	waits, err := s.search(&out, false)
	if err != nil || waits == tooLarge && ends != notFound {
		return out, err
	}
	switch {
	case ends == notFound:
		out.Truth = "never"
	case waits == found:
		out.Truth = "may-queue"
	default:
		out.Truth = "always"
	}
	return out, nil
}

type result int

const (
	notFound result = iota
	found
	tooLarge
)

// search looks for a way to the end of the run, or for a moment at which a pod of the run waits. It looks first
// where that is likely: everybody ends at once, or nobody does.
func (s *scene) search(out *verdict, forEnd bool) (result, error) {
	type node struct {
		st     state
		parent int
		what   string
	}
	nodes := []node{{st: s.start, parent: -1}}
	seen := map[string]bool{s.start.key(): true}
	stack := []int{0}
	way := func(at int) (steps []string) {
		for ; at > 0; at = nodes[at].parent {
			steps = append(steps, nodes[at].what)
		}
		slices.Reverse(steps)
		return steps
	}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		st := nodes[at].st
		out.States++
		if out.States > s.world.Bound {
			return tooLarge, nil
		}
		control, err := s.control(st)
		if err != nil {
			return notFound, err
		}
		own, others := s.endings(st)
		if forEnd && s.ended(st) {
			out.Ends = way(at)
			return found, nil
		}
		if !forEnd {
			if len(control) == 0 {
				if waiting := s.waiting(st); len(waiting) > 0 {
					out.Waits, out.Waiting = way(at), waiting
					return found, nil
				}
			}
			for _, each := range control {
				if each.waits {
					out.Waits = append(way(at), each.what)
					return found, nil
				}
			}
		}
		// The last of them is looked at first.
		next := slices.Concat(others, own, control)
		if forEnd {
			next = slices.Concat(control, own, others)
		}
		for _, each := range next {
			key := each.then.key()
			if seen[key] {
				continue
			}
			seen[key] = true
			nodes = append(nodes, node{each.then, at, each.what})
			stack = append(stack, len(nodes)-1)
		}
	}
	return notFound, nil
}

func (s *scene) ended(st state) bool {
	for number := range s.world.Units {
		if st.phase[number] < phaseEnded {
			return false
		}
	}
	return true
}

// waiting are the pods of the run that do not run though their turn has come.
func (s *scene) waiting(st state) (names []string) {
	if !st.started {
		return []string{"run"}
	}
	for number := range s.world.Units {
		if p := st.phase[number]; p > phaseNone && p < phaseRunning || s.ready(st, number) {
			names = append(names, s.units[number].name)
		}
	}
	return names
}
