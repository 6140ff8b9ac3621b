package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/controller/jobs/jobset"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/workload"
)

// question is a queue tree, what is already admitted, and the workload that asks. Manifests are as the API
// server stores them.
type question struct {
	ID            string                 `json:"id"`
	Namespaces    []corev1.Namespace     `json:"namespaces"`
	Flavors       []kueue.ResourceFlavor `json:"flavors"`
	Cohorts       []kueue.Cohort         `json:"cohorts"`
	ClusterQueues []kueue.ClusterQueue   `json:"clusterQueues"`
	LocalQueues   []kueue.LocalQueue     `json:"localQueues"`
	Admitted      []kueue.Workload       `json:"admitted"`
	Workload      kueue.Workload         `json:"workload"`
	// JobSet, when it is given, is what the workload is made of: Kueue's own integration says which pod sets it has.
	JobSet *jobsetapi.JobSet `json:"jobSet"`
	// What topology-aware scheduling looks at.
	Topologies []kueue.Topology `json:"topologies"`
	Nodes      []corev1.Node    `json:"nodes"`
	Pods       []corev1.Pod     `json:"pods"`
}

// scene is a Kueue manager in one process: the controllers that fill its caches, and its scheduler.
type scene struct {
	ctx       context.Context
	store     *store
	cache     *schdcache.Cache
	queues    *qcache.Manager
	workloads *core.WorkloadReconciler
	scheduler *scheduler.Scheduler
	asking    *kueue.Workload
}

// newScene lets copies of the objects arrive as events, in the order in which each is known when the next one
// needs it.
func newScene(q question) (*scene, error) {
	q = q.copy()
	if err := q.fromJobSet(); err != nil {
		return nil, err
	}
	q.Admitted = slices.DeleteFunc(q.Admitted, q.belowCohortCycle)

	store := newStore(q.objects()...)
	recorder := &events.FakeRecorder{}
	cache := schdcache.New(store)
	preemptions := expectations.New()
	queues := qcache.NewManagerForUnitTests(store, cache, qcache.WithPreemptionExpectations(preemptions))
	s := &scene{
		ctx: context.Background(), store: store, cache: cache, queues: queues,
		workloads: core.NewWorkloadReconciler(store, queues, cache, recorder),
		scheduler: scheduler.New(queues, cache, store, recorder, scheduler.WithPreemptionExpectations(preemptions)),
		asking:    &q.Workload,
	}
	setAdmissionRoutineWrapper(s.scheduler, inline{})

	for i := range q.Topologies {
		cache.AddOrUpdateTopology(logr.Discard(), &q.Topologies[i])
	}
	for i := range q.Nodes {
		cache.TASCache().SyncNode(&q.Nodes[i])
	}
	for i := range q.Pods {
		if belongsToNonTASCache(&q.Pods[i]) {
			cache.TASCache().Update(&q.Pods[i], logr.Discard())
		}
	}
	flavors := core.NewResourceFlavorReconciler(store, queues, cache, nil)
	for i := range q.Flavors {
		flavors.Create(event.TypedCreateEvent[*kueue.ResourceFlavor]{Object: &q.Flavors[i]})
	}
	for i := range q.Cohorts {
		// A cohort that closes a cycle is refused here; what is below it stays inactive.
		if cache.AddOrUpdateCohort(&q.Cohorts[i]) == nil {
			queues.AddOrUpdateCohort(s.ctx, &q.Cohorts[i])
		}
	}
	clusterQueues := core.NewClusterQueueReconciler(store, queues, cache)
	for i := range q.ClusterQueues {
		clusterQueues.Create(event.TypedCreateEvent[*kueue.ClusterQueue]{Object: &q.ClusterQueues[i]})
	}
	localQueues := core.NewLocalQueueReconciler(store, queues, cache)
	for i := range q.LocalQueues {
		localQueues.Create(event.TypedCreateEvent[*kueue.LocalQueue]{Object: &q.LocalQueues[i]})
	}
	for i := range q.Admitted {
		s.workloads.Create(event.TypedCreateEvent[*kueue.Workload]{Object: &q.Admitted[i]})
	}
	s.workloads.Create(event.TypedCreateEvent[*kueue.Workload]{Object: s.asking})
	return s, nil
}

// fromJobSet gives the workload the queue and the pod sets that Kueue takes from a JobSet.
func (q *question) fromJobSet() error {
	if q.JobSet == nil {
		return nil
	}
	podSets, err := (*jobset.JobSet)(q.JobSet).PodSets(context.Background(), nil)
	if err != nil {
		return err
	}
	q.Workload.Spec.PodSets = podSets
	q.Workload.Spec.QueueName = jobframework.QueueNameForObject(q.JobSet)
	return nil
}

func (q question) copy() question {
	q.Namespaces = copies(q.Namespaces)
	q.Flavors = copies(q.Flavors)
	q.Cohorts = copies(q.Cohorts)
	q.ClusterQueues = copies(q.ClusterQueues)
	q.LocalQueues = copies(q.LocalQueues)
	q.Admitted = copies(q.Admitted)
	q.Workload = *q.Workload.DeepCopy()
	q.Topologies = copies(q.Topologies)
	q.Nodes = copies(q.Nodes)
	q.Pods = copies(q.Pods)
	return q
}

func copies[T any, P interface {
	*T
	DeepCopyInto(*T)
}](items []T) []T {
	copied := make([]T, len(items))
	for i := range items {
		P(&items[i]).DeepCopyInto(&copied[i])
	}
	return copied
}

func (q *question) objects() (objects []client.Object) {
	for i := range q.Namespaces {
		// The API server labels every namespace with its name.
		name := q.Namespaces[i].Name
		q.Namespaces[i].Labels = labels.Merge(q.Namespaces[i].Labels, labels.Set{corev1.LabelMetadataName: name})
		objects = append(objects, &q.Namespaces[i])
	}
	for i := range q.Flavors {
		objects = append(objects, &q.Flavors[i])
	}
	for i := range q.Cohorts {
		objects = append(objects, &q.Cohorts[i])
	}
	for i := range q.ClusterQueues {
		objects = append(objects, &q.ClusterQueues[i])
	}
	for i := range q.LocalQueues {
		objects = append(objects, &q.LocalQueues[i])
	}
	for i := range q.Admitted {
		objects = append(objects, &q.Admitted[i])
	}
	return append(objects, &q.Workload)
}

// belowCohortCycle tells whether an admitted workload would make Kueue's cache recurse for ever. Its
// ClusterQueue is inactive, so it has no say in any other answer.
func (q *question) belowCohortCycle(wl kueue.Workload) bool {
	parents := map[kueue.CohortReference]kueue.CohortReference{}
	for _, cohort := range q.Cohorts {
		parents[kueue.CohortReference(cohort.Name)] = cohort.Spec.ParentName
	}
	for _, queue := range q.ClusterQueues {
		if wl.Status.Admission == nil || queue.Name != string(wl.Status.Admission.ClusterQueue) {
			continue
		}
		at := queue.Spec.CohortName
		for range len(parents) + 1 {
			at = parents[at]
		}
		return at != ""
	}
	return false
}

// reconcile lets the workload controller look at the workload, and tells whether it refused it.
func (s *scene) reconcile() (refused bool, err error) {
	key := client.ObjectKeyFromObject(s.asking)
	if _, err := s.workloads.Reconcile(s.ctx, ctrl.Request{NamespacedName: key}); err != nil {
		return false, err
	}
	condition, err := s.condition()
	return condition != nil, err
}

// condition is what the workload's status says about its quota.
func (s *scene) condition() (*metav1.Condition, error) {
	var wl kueue.Workload
	if err := s.store.Get(s.ctx, client.ObjectKeyFromObject(s.asking), &wl); err != nil {
		return nil, err
	}
	return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved), nil
}

// head is the workload as the scheduler will take it from its queue, or nil when the queue holds it back.
func (s *scene) head() *workload.Info {
	name, _ := s.queues.ClusterQueueForWorkload(s.asking)
	if !slices.Contains(s.queues.Dump()[name], workload.Key(s.asking)) {
		return nil
	}
	for _, info := range s.queues.PendingWorkloadsInfo(name) {
		if workload.Key(info.Obj) == workload.Key(s.asking) {
			head := *info
			head.ClusterQueue = name
			if info.LastAssignment != nil {
				head.LastAssignment = info.LastAssignment.Clone()
			}
			return &head
		}
	}
	panic(fmt.Sprintf("%s is queued but not pending", workload.Key(s.asking)))
}
