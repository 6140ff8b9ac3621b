package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// bench is a whole kube-scheduler whose queue never runs; nodes and pods are put into its cache by hand.
type bench struct {
	*scheduler.Scheduler
	informers informers.SharedInformerFactory
	fits      *fitRecorder
}

// fitRecorder is a scheduler extender that notes which nodes passed every filter and then turns them all
// away, so that nothing is bound.
type fitRecorder struct {
	fwk.Extender
	nodes []string
}

func (*fitRecorder) Name() string                  { return "fit-recorder" }
func (*fitRecorder) IsFilter() bool                { return true }
func (*fitRecorder) IsPrioritizer() bool           { return false }
func (*fitRecorder) IsInterested(*corev1.Pod) bool { return true }
func (*fitRecorder) IsIgnorable() bool             { return false }
func (*fitRecorder) IsBinder() bool                { return false }
func (*fitRecorder) SupportsPreemption() bool      { return false }
func (r *fitRecorder) Filter(_ *corev1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodeInfo, extenderv1.FailedNodesMap, extenderv1.FailedNodesMap, error) {
	for _, node := range nodes {
		r.nodes = append(r.nodes, node.Node().Name)
	}
	return nil, nil, nil, nil
}

func newBench() (*bench, error) {
	client := fake.NewClientset()
	factory := scheduler.NewInformerFactory(client, 0)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(context.Background(), client, factory, nil, recorder, scheduler.WithParallelism(1))
	if err != nil {
		return nil, err
	}
	fits := &fitRecorder{}
	s.Extenders = []fwk.Extender{fits}
	return &bench{s, factory, fits}, nil
}

// placed is a pod on a node.
type placed struct {
	pod  *corev1.Pod
	node string
}

// feasible lists the nodes that pass every filter of the scheduler for the pod, with these pods bound.
func (b *bench) feasible(pod *corev1.Pod, nodes []*corev1.Node, bound []placed) ([]string, error) {
	logger := klog.Background()
	for _, node := range nodes {
		b.Cache.AddNode(logger, node)
		defer b.Cache.RemoveNode(logger, node)
	}
	for i, each := range bound {
		other := each.pod.DeepCopy()
		other.UID = types.UID(fmt.Sprintf("bound-%d", i))
		other.Name = fmt.Sprintf("bound-%d", i)
		other.Spec.NodeName = each.node
		if err := b.Cache.AddPod(logger, other); err != nil {
			return nil, err
		}
		defer b.Cache.RemovePod(logger, other)
	}
	profile := b.Profiles[corev1.DefaultSchedulerName]
	snapshot := profile.SnapshotSharedLister().(*internalcache.Snapshot)
	if err := b.Cache.UpdateSnapshot(logger, snapshot); err != nil {
		return nil, err
	}
	asking := pod.DeepCopy()
	asking.UID = "asking"
	info, err := framework.NewPodInfo(asking)
	if err != nil {
		return nil, err
	}
	b.fits.nodes = nil
	_, err = b.SchedulePod(context.Background(), profile, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
	var fitError *framework.FitError
	if !errors.As(err, &fitError) && !errors.Is(err, scheduler.ErrNoNodesAvailable) {
		return nil, fmt.Errorf("the scheduler gave no diagnosis: %w", err)
	}
	return slices.Clone(b.fits.nodes), nil
}
