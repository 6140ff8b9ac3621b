package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	// Every API group the plug-ins handle registers its types, conversions and defaults in the scheme.
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// world is a run and the cluster that it meets. Manifests are as the API server stores them.
type world struct {
	Namespaces    []corev1.Namespace     `json:"namespaces"`
	Quotas        []json.RawMessage      `json:"quotas"`
	LimitRanges   []json.RawMessage      `json:"limitranges"`
	Nodes         []json.RawMessage      `json:"nodes"`
	Flavors       []kueue.ResourceFlavor `json:"flavors"`
	Cohorts       []kueue.Cohort         `json:"cohorts"`
	ClusterQueues []kueue.ClusterQueue   `json:"clusterQueues"`
	LocalQueues   []kueue.LocalQueue     `json:"localQueues"`
	// Priorities are the WorkloadPriorityClasses by name.
	Priorities map[string]int32 `json:"priorities"`
	Others     []otherInput     `json:"others"`
	Units      []unitInput      `json:"units"`
	Caps       []capInput       `json:"caps"`
	// Keeps is what becomes of pods that succeeded: kept for good, collected at some time, or deleted at once.
	Keeps string `json:"keeps"`
	// Objects are what the engine creates once for the run before its first pod, by quota key.
	Objects map[string]int64 `json:"objects"`
	// Bound is how many states are looked at before the world is called too large.
	Bound int `json:"bound"`
}

// unitInput is one pod of the run.
type unitInput struct {
	Name  string          `json:"name"`
	Pod   json.RawMessage `json:"pod"`
	After []int           `json:"after"`
	// Class is the same for copies that cannot be told apart; they are created in the order of their numbers.
	Class int `json:"class"`
	// Tries is how often the pod may be tried, the first included.
	Tries int `json:"tries"`
}

// otherInput is a pod of somebody else, and its Workload when Kueue knows it. It has the place that its manifest says.
type otherInput struct {
	Pod      json.RawMessage `json:"pod"`
	Workload *kueue.Workload `json:"workload"`
	// Stays tells that it does not end by itself: a DaemonSet's pod.
	Stays bool `json:"stays"`
}

// capInput bounds how many groups are under way at once: begun, and not ended in all their pods.
type capInput struct {
	Groups [][]int `json:"groups"`
	Max    int     `json:"max"`
}

var scheme = legacyscheme.Scheme

// object is a pointer to a Kubernetes type.
type object[T any] interface {
	*T
	runtime.Object
}

// decode reads a manifest the way the API server does: strict JSON rules of Kubernetes, then defaulting.
func decode[T any, P object[T]](manifest []byte) (P, error) {
	into := P(new(T))
	kinds, _, err := scheme.ObjectKinds(into)
	if err != nil {
		return nil, err
	}
	if _, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(manifest, &kinds[0], into); err != nil {
		return nil, fmt.Errorf("%s: %w", kinds[0].Kind, err)
	}
	scheme.Default(into)
	return into, nil
}

func decodeAll[T any, P object[T]](manifests []json.RawMessage) (items []P, err error) {
	for _, manifest := range manifests {
		item, err := decode[T, P](manifest)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func asV1(pod *api.Pod) *corev1.Pod {
	converted := &corev1.Pod{}
	if err := scheme.Convert(pod.DeepCopy(), converted, nil); err != nil {
		panic(err)
	}
	scheme.Default(converted)
	return converted
}

func asInternal(pod *corev1.Pod) *api.Pod {
	converted := &api.Pod{}
	if err := scheme.Convert(pod.DeepCopy(), converted, nil); err != nil {
		panic(err)
	}
	return converted
}
