package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gpuflow.test/engines/lines"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// draCase is the claims of one pod, the nodes it may run on, and what the cluster knows of devices.
type draCase struct {
	Claims  []json.RawMessage `json:"claims"`
	Others  []json.RawMessage `json:"others"`
	Classes []json.RawMessage `json:"classes"`
	Slices  []json.RawMessage `json:"slices"`
	Nodes   []json.RawMessage `json:"nodes"`
}

// draNode is one node's answer. Status: allocated, none, invalid (a pool of the node is) or error.
type draNode struct {
	Status  string     `json:"status"`
	Devices [][]string `json:"devices,omitempty"`
	Error   string     `json:"error,omitempty"`
}

type draOutput struct {
	Nodes map[string]draNode `json:"nodes"`
}

type classes map[string]*resourcev1.DeviceClass

func (c classes) List() ([]*resourcev1.DeviceClass, error) { return nil, errors.New("not asked for") }

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io", Resource: "deviceclasses"}, name)
}

// newDRAAnswer asks the allocator that the scheduler picks at the default feature gates of this release.
func newDRAAnswer() (lines.Answer, error) {
	gates := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	features := dynamicresources.AllocatorFeatures(gates)
	cache := cel.NewCache(1000, cel.Features{
		EnableConsumableCapacity: gates.EnableDRAConsumableCapacity,
		EnableListTypeAttributes: gates.EnableDRAListTypeAttributes,
	})
	return func(input []byte) (any, error) {
		var c draCase
		if err := json.Unmarshal(input, &c); err != nil {
			return nil, err
		}
		return c.answer(features, cache)
	}, nil
}

func (c draCase) answer(features structured.Features, cache *cel.Cache) (any, error) {
	nodes, err := decodeAll[corev1.Node](c.Nodes, nil)
	claims, err := decodeAll[resourcev1.ResourceClaim](c.Claims, err)
	others, err := decodeAll[resourcev1.ResourceClaim](c.Others, err)
	slices, err := decodeAll[resourcev1.ResourceSlice](c.Slices, err)
	listed, err := decodeAll[resourcev1.DeviceClass](c.Classes, err)
	if err != nil {
		return nil, err
	}
	if err := storable(claims, slices, listed); err != nil {
		return nil, err
	}
	known := classes{}
	for _, class := range listed {
		known[class.Name] = class
	}
	allocator, err := structured.NewAllocator(context.Background(), features, allocated(others), known, slices, cache)
	if err != nil {
		return nil, err
	}
	out := draOutput{Nodes: map[string]draNode{}}
	for _, node := range nodes {
		out.Nodes[node.Name] = onNode(allocator, node, claims)
	}
	return out, nil
}

func onNode(allocator structured.Allocator, node *corev1.Node, claims []*resourcev1.ResourceClaim) draNode {
	results, err := allocator.Allocate(context.Background(), node, claims)
	switch {
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return draNode{Status: "invalid", Error: err.Error()}
	case err != nil:
		return draNode{Status: "error", Error: err.Error()}
	case len(results) != len(claims):
		return draNode{Status: "none"}
	}
	devices := [][]string{}
	for _, result := range results {
		picked := []string{}
		for _, device := range result.Devices.Results {
			picked = append(picked, fmt.Sprintf("%s=%s/%s/%s", device.Request, device.Driver, device.Pool, device.Device))
		}
		devices = append(devices, picked)
	}
	return draNode{Status: "allocated", Devices: devices}
}

// allocated gathers what the claims of other pods hold, as the scheduler's plug-in does.
func allocated(claims []*resourcev1.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case result.AdminAccess != nil && *result.AdminAccess:
			case result.ShareID == nil:
				state.AllocatedDevices.Insert(id)
			default:
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
				if result.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
				}
			}
		}
	}
	return state
}

// storable refuses what no API server would store.
func storable(claims []*resourcev1.ResourceClaim, slices []*resourcev1.ResourceSlice, listed []*resourcev1.DeviceClass) error {
	for _, claim := range claims {
		if err := valid(claim, &resource.ResourceClaim{}, checking(validation.ValidateResourceClaim)); err != nil {
			return err
		}
	}
	for _, slice := range slices {
		if err := valid(slice, &resource.ResourceSlice{}, checking(validation.ValidateResourceSlice)); err != nil {
			return err
		}
	}
	for _, class := range listed {
		if err := valid(class, &resource.DeviceClass{}, checking(validation.ValidateDeviceClass)); err != nil {
			return err
		}
	}
	return nil
}

func checking[T runtime.Object](validate func(T) field.ErrorList) func(context.Context, runtime.Object) field.ErrorList {
	return func(_ context.Context, posted runtime.Object) field.ErrorList { return validate(posted.(T)) }
}
