package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpuflow.test/engines/lines"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// nodeFitCase is a pod that waits, the nodes, the pods bound to them, and the labels of each namespace.
type nodeFitCase struct {
	Pod        json.RawMessage              `json:"pod"`
	Nodes      []json.RawMessage            `json:"nodes"`
	Pods       []json.RawMessage            `json:"pods"`
	Namespaces map[string]map[string]string `json:"namespaces"`
	Gates      []string                     `json:"gates"`
	// Storage is what volume claims depend on; a case without it has no claims.
	Storage *storage `json:"storage"`
}

type nodeFitOutput struct {
	Nodes    map[string]nodeVerdict `json:"nodes"`
	Feasible []string               `json:"feasible"`
	Message  string                 `json:"message,omitempty"`
}

type nodeVerdict struct {
	Fits    bool     `json:"fits"`
	Code    string   `json:"code,omitempty"`
	Plugin  string   `json:"plugin,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
}

// bench is a whole kube-scheduler whose queue never runs; nodes and pods are put into its cache by hand.
type bench struct {
	*scheduler.Scheduler
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	fits      *fitRecorder
}

// fitRecorder is a scheduler extender that notes which nodes passed every filter and then turns them all
// away, so that the scheduler hands out its full diagnosis even when the pod fits somewhere.
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

func newNodeFitAnswer() (lines.Answer, error) {
	// Plug-ins read feature gates when they are made: one bench per set of gates.
	benches := map[string]*bench{}
	return func(input []byte) (any, error) {
		var c nodeFitCase
		if err := json.Unmarshal(input, &c); err != nil {
			return nil, err
		}
		reset, err := enable(c.Gates)
		if err != nil {
			return nil, err
		}
		defer reset()
		key := strings.Join(c.Gates, ",")
		if benches[key] == nil {
			if benches[key], err = newBench(context.Background()); err != nil {
				return nil, err
			}
		}
		if c.Storage != nil {
			return answerWithStorage(c)
		}
		return benches[key].answer(c)
	}, nil
}

// enable turns alpha gates on for one case.
func enable(gates []string) (reset func(), err error) {
	on, before := map[string]bool{}, map[string]bool{}
	for _, gate := range gates {
		on[gate] = true
		before[gate] = false
	}
	set := utilfeature.DefaultMutableFeatureGate.SetFromMap
	return func() { set(before) }, set(on)
}

func newBench(ctx context.Context, objects ...runtime.Object) (*bench, error) {
	client := fake.NewClientset(objects...)
	factory := scheduler.NewInformerFactory(client, 0)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(ctx, client, factory, nil, recorder,
		scheduler.WithParallelism(1))
	if err != nil {
		return nil, err
	}
	fits := &fitRecorder{}
	s.Extenders = []fwk.Extender{fits}
	return &bench{s, client, factory, fits}, nil
}

func (b *bench) answer(c nodeFitCase) (out nodeFitOutput, err error) {
	pod, err := decode[corev1.Pod](c.Pod)
	if err != nil {
		return out, err
	}
	nodes, err := decodeAll[corev1.Node](c.Nodes, nil)
	bound, err := decodeAll[corev1.Pod](c.Pods, err)
	if err != nil {
		return out, err
	}
	b.loadNamespaces(c.Namespaces)
	logger := klog.Background()
	for _, node := range nodes {
		b.Cache.AddNode(logger, node)
		defer b.Cache.RemoveNode(logger, node)
	}
	for i, other := range bound {
		other.UID = types.UID(fmt.Sprintf("bound-%d", i))
		// The scheduler's informer does not deliver finished pods.
		if other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed {
			continue
		}
		if err := b.Cache.AddPod(logger, other); err != nil {
			return out, err
		}
		defer b.Cache.RemovePod(logger, other)
	}

	fitError, err := b.schedule(pod)
	if err != nil {
		return out, err
	}
	out = nodeFitOutput{Nodes: map[string]nodeVerdict{}, Feasible: slices.Sorted(slices.Values(b.fits.nodes))}
	for _, node := range nodes {
		if slices.Contains(out.Feasible, node.Name) {
			out.Nodes[node.Name] = nodeVerdict{Fits: true}
		} else {
			out.Nodes[node.Name] = verdict(fitError.Diagnosis.NodeToStatus.Get(node.Name))
		}
	}
	if len(out.Feasible) == 0 {
		out.Feasible, out.Message = []string{}, fitError.Error()
	}
	return out, nil
}

// schedule runs one scheduling cycle up to the filters. It always ends in a FitError: see fitRecorder.
func (b *bench) schedule(pod *corev1.Pod) (*framework.FitError, error) {
	profile := b.Profiles[corev1.DefaultSchedulerName]
	snapshot := profile.SnapshotSharedLister().(*internalcache.Snapshot)
	if err := b.Cache.UpdateSnapshot(klog.Background(), snapshot); err != nil {
		return nil, err
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, err
	}
	b.fits.nodes = nil
	_, err = b.SchedulePod(context.Background(), profile, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
	var fitError *framework.FitError
	if !errors.As(err, &fitError) {
		return nil, fmt.Errorf("the scheduler gave no diagnosis: %w", err)
	}
	return fitError, nil
}

func (b *bench) loadNamespaces(labels map[string]map[string]string) {
	var namespaces []runtime.Object
	for name, set := range labels {
		namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}})
	}
	replace(b.informers.Core().V1().Namespaces().Informer(), namespaces)
}

func verdict(status *fwk.Status) nodeVerdict {
	reasons := slices.Sorted(slices.Values(status.Reasons()))
	return nodeVerdict{Code: status.Code().String(), Plugin: status.Plugin(), Reasons: reasons}
}
