package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	api "k8s.io/kubernetes/pkg/apis/core"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	countedWorkloads = "count/workloads.kueue.x-k8s.io"
	kueueGate        = "kueue.x-k8s.io/admission"
)

// unit is one pod that lives through a world: one of the run, or somebody else's.
type unit struct {
	name  string
	own   bool
	pod   *corev1.Pod
	shape int
	wl    *kueue.Workload
	// live and stored are what the pod costs each quota while it runs, and when it has ended.
	live, stored []corev1.ResourceList
	internal     *api.Pod
	after        []int
	class        int
	tries        int
	stays        bool
	// nameless: its WorkloadPriorityClass does not exist, and Kueue makes no Workload for it.
	nameless bool
	// fatal is why the API server refuses the pod even in an empty namespace.
	fatal *refusal
}

// scene is a world that is ready to be stepped through.
type scene struct {
	world  *world
	server *apiServer
	bench  *bench
	queues *queues
	nodes  []*corev1.Node
	quotas []*corev1.ResourceQuota
	units  []unit
	shapes map[string]int
	caps   [][]int // the caps that each unit is a member of
	start  state

	preempts       bool
	countsWorkload bool
	counted        bool // some quota counts objects that are stored
	given          []*kueue.Admission
	givenBy        map[string]uint8
	opened         map[[2]int]*corev1.Pod
	nodeAlike      []int
	fits           map[string][]int
	charges        map[string]*refusal
	decisions      map[string]decision
}

func newScene(w *world, server *apiServer, b *bench) (*scene, error) {
	s := &scene{
		world: w, server: server, bench: b, queues: newQueues(w), shapes: map[string]int{}, givenBy: map[string]uint8{},
		opened: map[[2]int]*corev1.Pod{}, fits: map[string][]int{}, charges: map[string]*refusal{}, decisions: map[string]decision{},
		given: []*kueue.Admission{nil},
	}
	s.preempts = s.queues.preempts()
	var err error
	if s.nodes, err = decodeAll[corev1.Node](w.Nodes); err != nil {
		return nil, err
	}
	if s.quotas, err = decodeAll[corev1.ResourceQuota](w.Quotas); err != nil {
		return nil, err
	}
	limitRanges, err := decodeAll[corev1.LimitRange](w.LimitRanges)
	if err != nil {
		return nil, err
	}
	for i := range w.Namespaces {
		namespace := &w.Namespaces[i]
		if namespace.Labels == nil {
			namespace.Labels = map[string]string{}
		}
		// The API server labels every namespace with its name.
		namespace.Labels[corev1.LabelMetadataName] = namespace.Name
	}
	server.load(w.Namespaces, limitRanges)
	for _, each := range s.quotas {
		if _, counted := each.Status.Hard[countedWorkloads]; counted {
			s.countsWorkload = true
		}
		for key := range each.Status.Hard {
			s.counted = s.counted || strings.HasPrefix(string(key), "count/")
		}
	}
	s.alikeNodes()
	return s, s.addUnits()
}

// alikeNodes numbers the nodes so that those which differ only in their name have the same number.
func (s *scene) alikeNodes() {
	known := map[string]int{}
	for i, node := range s.nodes {
		copied := node.DeepCopy()
		copied.ObjectMeta = metav1.ObjectMeta{Labels: copied.Labels}
		delete(copied.Labels, corev1.LabelHostname)
		text, _ := json.Marshal(copied)
		if _, seen := known[string(text)]; !seen {
			known[string(text)] = i
		}
		s.nodeAlike = append(s.nodeAlike, known[string(text)])
	}
}

func (s *scene) addUnits() error {
	for _, each := range s.world.Units {
		if err := s.addOwn(each); err != nil {
			return fmt.Errorf("%s: %w", each.Name, err)
		}
	}
	own := len(s.units)
	s.caps = make([][]int, own)
	for number, each := range s.world.Caps {
		for _, group := range each.Groups {
			for _, member := range group {
				s.caps[member] = append(s.caps[member], number)
			}
		}
	}
	s.start = state{phase: make([]phase, own), node: make([]int8, own), holds: make([]uint8, own), fails: make([]uint8, own)}
	type waiting struct {
		unit int
		at   string
	}
	var line, reserved []waiting
	for _, each := range s.world.Others {
		if err := s.addOther(each); err != nil {
			return err
		}
		number := len(s.units) - 1
		if each.Workload != nil {
			line = append(line, waiting{number, each.Workload.CreationTimestamp.UTC().Format("2006-01-02T15:04:05")})
			if each.Workload.Status.Admission != nil {
				at := ""
				for _, condition := range each.Workload.Status.Conditions {
					if condition.Type == kueue.WorkloadQuotaReserved {
						at = condition.LastTransitionTime.UTC().Format("2006-01-02T15:04:05")
					}
				}
				reserved = append(reserved, waiting{number, at})
			}
		}
	}
	byTime := func(a, b waiting) int { return strings.Compare(a.at, b.at) }
	slices.SortStableFunc(line, byTime)
	slices.SortStableFunc(reserved, byTime)
	for _, each := range line {
		s.start.line = append(s.start.line, uint8(each.unit))
	}
	for _, each := range reserved {
		s.start.reserved = append(s.start.reserved, uint8(each.unit))
	}
	return nil
}

func (s *scene) addOwn(in unitInput) error {
	posted, err := decode[corev1.Pod](in.Pod)
	if err != nil {
		return err
	}
	if posted.Name == "" {
		posted.Name = in.Name
	}
	if posted.Labels[queueLabel] != "" {
		// Kueue's webhook does this before the pod is validated.
		posted.Spec.SchedulingGates = append(posted.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueueGate})
	}
	made := unit{name: in.Name, own: true, after: in.After, class: in.Class, tries: max(in.Tries, 1)}
	stored, said, err := s.server.create(posted, s.emptyQuotas())
	if err != nil {
		return err
	}
	if said != nil {
		made.fatal = said
		s.units = append(s.units, made)
		return nil
	}
	made.pod, made.shape = stored, s.shapeOf(stored)
	made.internal = asInternal(stored)
	if stored.Labels[queueLabel] != "" {
		made.wl = s.world.workloadOf(stored, in.Name)
		class := stored.Labels[priorityLabel]
		_, known := s.world.Priorities[class]
		made.nameless = class != "" && !known
	}
	ended := made.internal.DeepCopy()
	ended.Status.Phase = api.PodSucceeded
	for _, each := range s.quotas {
		live, err := s.cost(each, made.internal)
		if err != nil {
			return err
		}
		stored, err := s.cost(each, ended)
		if err != nil {
			return err
		}
		made.live, made.stored = append(made.live, live), append(made.stored, stored)
	}
	s.units = append(s.units, made)
	return nil
}

// cost is what a stored pod adds to the usage of a quota, as its controller counts.
func (s *scene) cost(each *corev1.ResourceQuota, pod *api.Pod) (corev1.ResourceList, error) {
	matches, err := s.server.measure.Matches(each, pod)
	if err != nil || !matches {
		return corev1.ResourceList{}, err
	}
	used, err := s.server.usage(pod)
	if err != nil {
		return nil, err
	}
	return quota.Mask(used, quota.ResourceNames(each.Status.Hard)), nil
}

// emptyQuotas are the quotas of the world when nobody uses anything.
func (s *scene) emptyQuotas() []corev1.ResourceQuota {
	empty := make([]corev1.ResourceQuota, len(s.quotas))
	for i, each := range s.quotas {
		empty[i] = *each.DeepCopy()
		for key := range empty[i].Status.Used {
			empty[i].Status.Used[key] = resource.MustParse("0")
		}
	}
	return empty
}

func (s *scene) addOther(in otherInput) error {
	number := len(s.units)
	made := unit{name: fmt.Sprintf("other-%d", number), stays: in.Stays}
	at, node := phaseRunning, -1
	if len(in.Pod) > 0 && string(in.Pod) != "null" {
		pod, err := decode[corev1.Pod](in.Pod)
		if err != nil {
			return err
		}
		made.name, made.pod = pod.Name, pod
		if pod.Spec.NodeName != "" {
			node = slices.IndexFunc(s.nodes, func(each *corev1.Node) bool { return each.Name == pod.Spec.NodeName })
		} else {
			at = phaseOpen
		}
		pod = pod.DeepCopy()
		pod.Spec.NodeName = ""
		pod.Status = corev1.PodStatus{}
		made.pod, made.shape = pod, s.shapeOf(pod)
	}
	holds := uint8(0)
	if in.Workload != nil {
		made.name, made.wl = in.Workload.Name, in.Workload.DeepCopy()
		made.wl.Status = kueue.WorkloadStatus{}
		if made.wl.UID == "" {
			made.wl.UID = "uid-" + in.Workload.UID
		}
		if given := in.Workload.Status.Admission; given != nil {
			holds = s.hold(given)
		} else {
			at = phaseQueued
		}
	}
	s.units = append(s.units, made)
	s.start.phase = append(s.start.phase, at)
	s.start.node = append(s.start.node, int8(node))
	s.start.holds = append(s.start.holds, holds)
	s.start.fails = append(s.start.fails, 0)
	return nil
}

func (s *scene) shapeOf(pod *corev1.Pod) int {
	text, _ := json.Marshal([]any{pod.Labels, pod.Spec, pod.Namespace})
	number, known := s.shapes[string(text)]
	if !known {
		number = len(s.shapes)
		s.shapes[string(text)] = number
	}
	return number
}

// hold numbers what Kueue gave to a workload.
func (s *scene) hold(given *kueue.Admission) uint8 {
	text, _ := json.Marshal(given)
	number, known := s.givenBy[string(text)]
	if !known {
		s.given = append(s.given, given)
		number = uint8(len(s.given) - 1)
		s.givenBy[string(text)] = number
	}
	return number
}
