package main

import (
	"context"
	"encoding/json"
	"slices"

	"gpuflow.test/engines/lines"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
)

// draPodCase is a pod that asks for devices, by claims or as extended resources, and what the scheduler knows.
type draPodCase struct {
	Pod     json.RawMessage   `json:"pod"`
	Nodes   []json.RawMessage `json:"nodes"`
	Claims  []json.RawMessage `json:"claims"`
	Classes []json.RawMessage `json:"classes"`
	Slices  []json.RawMessage `json:"slices"`
}

// newDRAPodAnswer runs a whole kube-scheduler with its default profile up to the filters, a new one for each case:
// what it knows of devices comes to it through its informers.
func newDRAPodAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var c draPodCase
		if err := json.Unmarshal(input, &c); err != nil {
			return nil, err
		}
		return c.answer()
	}, nil
}

func (c draPodCase) answer() (out nodeFitOutput, err error) {
	pod, err := decode[corev1.Pod](c.Pod)
	if err != nil {
		return out, err
	}
	nodes, err := decodeAll[corev1.Node](c.Nodes, nil)
	claims, err := decodeAll[resourcev1.ResourceClaim](c.Claims, err)
	listed, err := decodeAll[resourcev1.DeviceClass](c.Classes, err)
	slicesOf, err := decodeAll[resourcev1.ResourceSlice](c.Slices, err)
	if err != nil {
		return out, err
	}
	if err := storable(claims, slicesOf, listed); err != nil {
		return out, err
	}
	var objects []runtime.Object
	for _, each := range claims {
		objects = append(objects, each)
	}
	for _, each := range listed {
		objects = append(objects, each)
	}
	for _, each := range slicesOf {
		objects = append(objects, each)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b, err := newDeviceBench(ctx, objects)
	if err != nil {
		return out, err
	}
	for _, node := range nodes {
		b.Cache.AddNode(klog.Background(), node)
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

func newDeviceBench(ctx context.Context, objects []runtime.Object) (*bench, error) {
	client := fake.NewClientset(objects...)
	factory := scheduler.NewInformerFactory(client, 0)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(ctx, client, factory, nil, recorder, scheduler.WithParallelism(1))
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return nil, err
	}
	fits := &fitRecorder{}
	s.Extenders = []fwk.Extender{fits}
	return &bench{s, client, factory, fits}, nil
}
