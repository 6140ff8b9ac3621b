package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/workload"
)

// cycle is one scheduling attempt: the condition it left, and the assignment behind it.
type cycle struct {
	Verdict        string   `json:"verdict"`
	Mode           string   `json:"mode,omitempty"`
	Reason         string   `json:"reason,omitempty"`
	Message        string   `json:"message"`
	Borrow         int      `json:"borrow"`
	PodSets        []podSet `json:"podSets,omitempty"`
	Targets        []target `json:"targets,omitempty"`
	PendingFlavors bool     `json:"pendingFlavors,omitempty"`
}

type podSet struct {
	Name     string                                 `json:"name"`
	Count    int32                                  `json:"count"`
	Mode     string                                 `json:"mode"`
	Flavors  map[corev1.ResourceName]flavorOfPodSet `json:"flavors"`
	Message  string                                 `json:"message,omitempty"`
	Attempts []attempt                              `json:"attempts,omitempty"`
	Domains  []domain                               `json:"domains,omitempty"`
}

// domain is a place in a topology, and how many pods go there.
type domain struct {
	Values []string `json:"values"`
	Count  int32    `json:"count"`
}

type flavorOfPodSet struct {
	Flavor string `json:"flavor"`
	Mode   string `json:"mode"`
	Usage  string `json:"usage"`
}

type attempt struct {
	Flavor     string   `json:"flavor"`
	Mode       string   `json:"mode"`
	Borrow     int      `json:"borrow,omitempty"`
	Preemption string   `json:"preemption,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Reasons    []string `json:"reasons,omitempty"`
}

type target struct {
	Name         string `json:"name"`
	ClusterQueue string `json:"clusterQueue"`
	Reason       string `json:"reason"`
}

// cycle asks for the assignment, then lets the scheduler act on it and reads the condition it wrote.
func (s *scene) cycle(head *workload.Info, fitsEmpty bool) (out cycle, err error) {
	snapshot, err := s.cache.Snapshot(s.ctx)
	if err != nil {
		return out, err
	}
	assignment, targets := getAssignments(s.scheduler, s.ctx, head, snapshot)
	schedule(s.scheduler, s.ctx)
	condition, err := s.condition()
	if err != nil {
		return out, err
	}
	if condition == nil {
		return out, fmt.Errorf("%s got no condition", workload.Key(s.asking))
	}
	out = cycle{
		Verdict: judge(condition, fitsEmpty), Mode: assignment.RepresentativeMode().String(), Message: condition.Message,
		Borrow: assignment.Borrowing, Targets: viewTargets(targets),
	}
	if out.Verdict != fit {
		out.Reason = condition.Reason
	}
	if next := s.head(); next != nil {
		out.PendingFlavors = next.LastAssignment.PendingFlavors()
	}
	for i := range assignment.PodSets {
		out.PodSets = append(out.PodSets, viewPodSet(&assignment.PodSets[i]))
	}
	return out, nil
}

func viewPodSet(assigned *flavorassigner.PodSetAssignment) podSet {
	view := podSet{
		Name: string(assigned.Name), Count: assigned.Count, Mode: assigned.RepresentativeMode().String(),
		Flavors: map[corev1.ResourceName]flavorOfPodSet{}, Message: assigned.Status.Message(),
	}
	for resource, flavor := range assigned.Flavors {
		usage := assigned.Requests[resource]
		view.Flavors[resource] = flavorOfPodSet{string(flavor.Name), flavor.Mode.String(), usage.String()}
	}
	if assigned.TopologyAssignment != nil {
		for _, d := range assigned.TopologyAssignment.Domains {
			view.Domains = append(view.Domains, domain{d.Values, d.Count})
		}
	}
	for _, tried := range assigned.FlavorAssignmentAttempts {
		a := attempt{
			Flavor: string(tried.Flavor), Mode: tried.Mode.String(), Borrow: tried.Borrow,
			Reason: tried.NoFitReason, Reasons: tried.Reasons,
		}
		if tried.PreemptionPossibility != nil {
			a.Preemption = tried.PreemptionPossibility.String()
		}
		view.Attempts = append(view.Attempts, a)
	}
	return view
}

// viewTargets sorts: all targets are evicted together, and the order in which they were found says nothing.
func viewTargets(targets []*preemption.Target) (views []target) {
	for _, t := range targets {
		views = append(views, target{t.WorkloadInfo.Obj.Name, string(t.WorkloadInfo.ClusterQueue), t.Reason})
	}
	slices.SortFunc(views, func(a, b target) int { return strings.Compare(a.Name, b.Name) })
	return views
}
