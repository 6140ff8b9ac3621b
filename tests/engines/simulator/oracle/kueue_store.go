package main

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
)

// store stands in for the API server: objects by type and key. What Kueue never asks of it in these cases is
// left to the nil interface and would crash the case.
type store struct {
	client.Client
	lock    sync.Mutex
	objects map[string]client.Object
}

func newStore(objects ...client.Object) *store {
	s := &store{objects: map[string]client.Object{}}
	for _, object := range objects {
		s.objects[keyOf(object, client.ObjectKeyFromObject(object))] = object
	}
	return s
}

func keyOf(object client.Object, key client.ObjectKey) string {
	return fmt.Sprintf("%T %s", object, key)
}

func (s *store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	found, ok := s.objects[keyOf(into, key)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: reflect.TypeOf(into).Elem().Name()}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List answers the four questions Kueue asks when objects arrive.
func (s *store) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var wanted client.ListOptions
	for _, option := range options {
		option.ApplyToList(&wanted)
	}
	field := func(name string) (string, bool) {
		if wanted.FieldSelector == nil {
			return "", false
		}
		return wanted.FieldSelector.RequiresExactMatch(name)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, object := range s.objects {
		switch list := into.(type) {
		case *kueue.LocalQueueList:
			if queue, ok := object.(*kueue.LocalQueue); ok {
				if name, asked := field(indexer.QueueClusterQueueKey); !asked || name == string(queue.Spec.ClusterQueue) {
					list.Items = append(list.Items, *queue.DeepCopy())
				}
			}
		case *kueue.WorkloadList:
			// Workloads arrive one by one after the queues, as events do.
		case *corev1.LimitRangeList:
			// LimitRanges are a matter for the admission oracle.
		default:
			return fmt.Errorf("the store keeps no %T", into)
		}
	}
	return nil
}

func (s *store) Status() client.SubResourceWriter { return statusWriter{store: s} }

type statusWriter struct {
	client.SubResourceWriter
	store *store
}

// Patch is a server-side apply of a Workload's status: conditions are merged by type.
func (w statusWriter) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	patch, ok := object.(*kueue.Workload)
	if !ok {
		return fmt.Errorf("the store patches no %T", object)
	}
	w.store.lock.Lock()
	defer w.store.lock.Unlock()
	stored := w.store.objects[keyOf(patch, client.ObjectKeyFromObject(patch))].(*kueue.Workload)
	for _, condition := range patch.Status.Conditions {
		apimeta.SetStatusCondition(&stored.Status.Conditions, condition)
	}
	stored.Status.Admission = patch.Status.Admission
	stored.DeepCopyInto(patch)
	return nil
}
