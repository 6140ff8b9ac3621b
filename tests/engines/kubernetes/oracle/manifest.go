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
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

var scheme = legacyscheme.Scheme

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// podView is what a case's answer tells about a pod.
type podView struct {
	Containers            map[string]resourceView `json:"containers"`
	InitContainers        map[string]resourceView `json:"initContainers,omitempty"`
	Resources             *resourceView           `json:"resources,omitempty"`
	Overhead              map[string]string       `json:"overhead,omitempty"`
	PriorityClassName     string                  `json:"priorityClassName,omitempty"`
	Priority              *int32                  `json:"priority,omitempty"`
	QOSClass              corev1.PodQOSClass      `json:"qosClass,omitempty"`
	LimitRangerAnnotation string                  `json:"limitRangerAnnotation,omitempty"`
}

type resourceView struct {
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
}

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

// decodeAll does nothing when an earlier list already failed.
func decodeAll[T any, P object[T]](manifests []json.RawMessage, err error) ([]P, error) {
	var items []P
	for _, manifest := range manifests {
		if err != nil {
			return nil, err
		}
		var item P
		if item, err = decode[T, P](manifest); err == nil {
			items = append(items, item)
		}
	}
	return items, err
}

func decodePod(manifest []byte) (*api.Pod, error) {
	posted, err := decode[corev1.Pod](manifest)
	if err != nil {
		return nil, err
	}
	if posted.Namespace == "" {
		posted.Namespace = "default"
	}
	pod := &api.Pod{}
	return pod, scheme.Convert(posted, pod, nil)
}

func asV1(pod *api.Pod) *corev1.Pod {
	converted := &corev1.Pod{}
	if err := scheme.Convert(pod.DeepCopy(), converted, nil); err != nil {
		panic(err)
	}
	return converted
}

// asStored is the pod as read back: whatever is read from storage is defaulted again.
func asStored(pod *api.Pod) *corev1.Pod {
	stored := asV1(pod)
	scheme.Default(stored)
	return stored
}

func viewOf(pod *corev1.Pod) podView {
	view := podView{
		Containers:            viewContainers(pod.Spec.Containers),
		InitContainers:        viewContainers(pod.Spec.InitContainers),
		Overhead:              printed(pod.Spec.Overhead),
		PriorityClassName:     pod.Spec.PriorityClassName,
		Priority:              pod.Spec.Priority,
		QOSClass:              pod.Status.QOSClass,
		LimitRangerAnnotation: pod.Annotations[limitRangerAnnotation],
	}
	if pod.Spec.Resources != nil {
		resources := viewResources(*pod.Spec.Resources)
		view.Resources = &resources
	}
	return view
}

func viewContainers(containers []corev1.Container) map[string]resourceView {
	views := map[string]resourceView{}
	for _, container := range containers {
		views[container.Name] = viewResources(container.Resources)
	}
	return views
}

func viewResources(resources corev1.ResourceRequirements) resourceView {
	return resourceView{Requests: printed(resources.Requests), Limits: printed(resources.Limits)}
}

func printed(resources corev1.ResourceList) map[string]string {
	texts := map[string]string{}
	for name, quantity := range resources {
		texts[string(name)] = quantity.String()
	}
	return texts
}
