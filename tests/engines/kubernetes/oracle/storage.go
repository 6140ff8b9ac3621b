package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// storage is what volume claims depend on. Claims are in the namespace of the pod that waits.
type storage struct {
	Claims     []json.RawMessage `json:"claims"`
	Volumes    []json.RawMessage `json:"volumes"`
	Classes    []json.RawMessage `json:"classes"`
	Drivers    []json.RawMessage `json:"drivers"`
	Capacities []json.RawMessage `json:"capacities"`
}

func (s *storage) objects() (found []runtime.Object, err error) {
	claims, err := decodeAll[corev1.PersistentVolumeClaim](s.Claims, nil)
	volumes, err := decodeAll[corev1.PersistentVolume](s.Volumes, err)
	classes, err := decodeAll[storagev1.StorageClass](s.Classes, err)
	drivers, err := decodeAll[storagev1.CSIDriver](s.Drivers, err)
	capacities, err := decodeAll[storagev1.CSIStorageCapacity](s.Capacities, err)
	if err != nil {
		return nil, err
	}
	for _, each := range claims {
		found = append(found, each)
	}
	for _, each := range volumes {
		found = append(found, each)
	}
	for _, each := range classes {
		found = append(found, each)
	}
	for _, each := range drivers {
		found = append(found, each)
	}
	for _, each := range capacities {
		found = append(found, each)
	}
	return found, nil
}

// answerWithStorage asks a scheduler of its own: the volume binder follows its informers, which must run for that.
func answerWithStorage(c nodeFitCase) (any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	objects, err := c.Storage.objects()
	if err != nil {
		return nil, err
	}
	b, err := newBench(ctx, objects...)
	if err != nil {
		return nil, err
	}
	b.informers.Start(ctx.Done())
	b.informers.WaitForCacheSync(ctx.Done())
	if err := b.waitForVolumes(ctx); err != nil {
		return nil, err
	}
	return b.answer(c)
}

// waitForVolumes returns when the volume binder has seen all that was there before: it hears of a claim and a volume
// that are made now after those, and a pod that mounts them fits once it has heard of both.
func (b *bench) waitForVolumes(ctx context.Context) error {
	const name = "last-of-all"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: name,
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name},
	}
	if _, err := b.client.CoreV1().PersistentVolumes().Create(ctx,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := b.client.CoreV1().PersistentVolumeClaims(name).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}}
	b.Cache.AddNode(klog.Background(), node)
	defer b.Cache.RemoveNode(klog.Background(), node)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: name}, Spec: corev1.PodSpec{
		SchedulerName: corev1.DefaultSchedulerName,
		Volumes: []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
	}}
	for range 1000 {
		if _, err := b.schedule(pod); err == nil && len(b.fits.nodes) == 1 {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return errors.New("the volume binder did not see its volumes")
}
