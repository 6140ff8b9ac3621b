package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/podset"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/workload"
)

const (
	queueLabel    = "kueue.x-k8s.io/queue-name"
	priorityLabel = "kueue.x-k8s.io/priority-class"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// queues are the objects of a world that Kueue reads.
type queues struct {
	world *world
	base  []client.Object
}

func newQueues(w *world) *queues {
	q := &queues{world: w}
	for i := range w.Namespaces {
		q.base = append(q.base, &w.Namespaces[i])
	}
	for i := range w.Flavors {
		q.base = append(q.base, &w.Flavors[i])
	}
	for i := range w.Cohorts {
		q.base = append(q.base, &w.Cohorts[i])
	}
	for i := range w.ClusterQueues {
		q.base = append(q.base, &w.ClusterQueues[i])
	}
	for i := range w.LocalQueues {
		q.base = append(q.base, &w.LocalQueues[i])
	}
	return q
}

// preempts tells whether any queue may evict a workload: only then does it matter who was admitted when.
func (q *queues) preempts() bool {
	for i := range q.world.ClusterQueues {
		p := q.world.ClusterQueues[i].Spec.Preemption
		if p == nil {
			continue
		}
		if never(string(p.WithinClusterQueue)) && never(string(p.ReclaimWithinCohort)) {
			continue
		}
		return true
	}
	return false
}

func never(policy string) bool { return policy == "" || policy == "Never" }

// workloadOf is the Workload that Kueue's pod integration makes of a stored pod.
func (w *world) workloadOf(pod *corev1.Pod, name string) *kueue.Workload {
	spec := *pod.Spec.DeepCopy()
	spec.SchedulingGates = nil
	made := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pod.Namespace, UID: types.UID("uid-" + name)},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(pod.Labels[queueLabel]),
			PodSets:   []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1, Template: corev1.PodTemplateSpec{Spec: spec}}},
		},
	}
	priority := int32(0)
	if class := pod.Labels[priorityLabel]; class != "" {
		priority = w.Priorities[class]
	} else if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	made.Spec.Priority = &priority
	return made
}

// decision is what the cycles of Kueue's scheduler change: who gets quota, who loses it.
type decision struct {
	admitted []int
	with     []*kueue.Admission
	evicted  []int
	// by are the claimants for which somebody was evicted.
	by []int
}

// claimant is a workload in a state: waiting, or with what it was given.
type claimant struct {
	unit     int
	workload *kueue.Workload
	holds    *kueue.Admission
	created  int
	reserved int
}

// decide lets Kueue's scheduler run until it changes something or has nothing left to try.
func (q *queues) decide(claimants []claimant) (decision, error) {
	ctx := context.Background()
	objects := append([]client.Object{}, q.base...)
	loaded := make([]*kueue.Workload, len(claimants))
	byKey := map[workload.Reference]int{}
	waiting := 0
	for i, each := range claimants {
		wl := each.workload.DeepCopy()
		wl.CreationTimestamp = metav1.NewTime(midnight.Add(time.Duration(each.created) * time.Minute))
		if each.holds != nil {
			wl.Status.Admission = each.holds.DeepCopy()
			at := metav1.NewTime(midnight.Add(24*time.Hour + time.Duration(each.reserved)*time.Minute))
			for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
					Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: at,
				})
			}
		} else {
			waiting++
		}
		loaded[i] = wl
		byKey[workload.Key(wl)] = i
		objects = append(objects, wl)
	}
	store := newStore(objects...)
	recorder := &events.FakeRecorder{}
	cache := schdcache.New(store)
	preemptions := expectations.New()
	manager := qcache.NewManagerForUnitTests(store, cache, qcache.WithPreemptionExpectations(preemptions))
	workloads := core.NewWorkloadReconciler(store, manager, cache, recorder)
	sched := scheduler.New(manager, cache, store, recorder, scheduler.WithPreemptionExpectations(preemptions))
	setAdmissionRoutineWrapper(sched, inline{})

	flavors := core.NewResourceFlavorReconciler(store, manager, cache, nil)
	for i := range q.world.Flavors {
		flavors.Create(event.TypedCreateEvent[*kueue.ResourceFlavor]{Object: &q.world.Flavors[i]})
	}
	for i := range q.world.Cohorts {
		if cache.AddOrUpdateCohort(&q.world.Cohorts[i]) == nil {
			manager.AddOrUpdateCohort(ctx, &q.world.Cohorts[i])
		}
	}
	clusterQueues := core.NewClusterQueueReconciler(store, manager, cache)
	for i := range q.world.ClusterQueues {
		clusterQueues.Create(event.TypedCreateEvent[*kueue.ClusterQueue]{Object: &q.world.ClusterQueues[i]})
	}
	localQueues := core.NewLocalQueueReconciler(store, manager, cache)
	for i := range q.world.LocalQueues {
		localQueues.Create(event.TypedCreateEvent[*kueue.LocalQueue]{Object: &q.world.LocalQueues[i]})
	}
	for i, each := range claimants {
		workloads.Create(event.TypedCreateEvent[*kueue.Workload]{Object: loaded[i]})
		if each.holds != nil {
			continue
		}
		if _, err := workloads.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(loaded[i])}); err != nil {
			return decision{}, fmt.Errorf("reconcile %s: %w", loaded[i].Name, err)
		}
	}

	var out decision
	// A scan of flavors that stopped early goes on in the next cycle, and a parked workload lets the next one try.
	for range (waiting + 1) * (len(q.world.Flavors) + 1) {
		if !offers(manager, cache) {
			break
		}
		schedule(sched, ctx)
		for i, each := range claimants {
			var now kueue.Workload
			if err := store.Get(ctx, client.ObjectKeyFromObject(loaded[i]), &now); err != nil {
				return out, err
			}
			if each.holds == nil && now.Status.Admission != nil {
				out.admitted = append(out.admitted, i)
				out.with = append(out.with, now.Status.Admission.DeepCopy())
			}
			if each.holds != nil && apimeta.IsStatusConditionTrue(now.Status.Conditions, kueue.WorkloadEvicted) {
				out.evicted = append(out.evicted, i)
				said := apimeta.FindStatusCondition(now.Status.Conditions, kueue.WorkloadPreempted)
				for j := range claimants {
					if said != nil && strings.Contains(said.Message, fmt.Sprintf("UID: %s,", loaded[j].UID)) {
						out.by = append(out.by, j)
					}
				}
			}
		}
		if len(out.admitted)+len(out.evicted) > 0 {
			break
		}
	}
	return out, nil
}

// offers tells whether a queue that is active has a workload to try; without one Kueue's loop would wait for it.
func offers(manager *qcache.Manager, cache *schdcache.Cache) bool {
	for name := range manager.Dump() {
		if cache.ClusterQueueActive(name) {
			return true
		}
	}
	return false
}

// opened is the pod as it runs when Kueue has given it its flavors.
func (q *queues) opened(pod *corev1.Pod, given *kueue.Admission) (*corev1.Pod, error) {
	pod = pod.DeepCopy()
	pod.Spec.SchedulingGates = nil
	store := newStore(q.base...)
	set := &kueue.PodSet{Name: kueue.DefaultPodSetName, Count: 1}
	info, err := podset.FromAssignment(context.Background(), store, &given.PodSetAssignments[0], set)
	if err != nil {
		return nil, err
	}
	if err := podset.Merge(logr.Discard(), &pod.ObjectMeta, &pod.Spec, info); err != nil {
		return nil, err
	}
	return pod, nil
}
