package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/node"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
)

// validate refuses a case whose quotas, LimitRanges or classes no API server would have stored.
func (q question) validate() error {
	for _, quota := range q.quotas {
		if err := valid(quota, &api.ResourceQuota{}, resourcequota.Strategy.Validate); err != nil {
			return err
		}
	}
	for _, limitRange := range q.limitRanges {
		if err := valid(limitRange, &api.LimitRange{}, limitrange.Strategy.Validate); err != nil {
			return err
		}
	}
	for _, class := range q.priorityClasses {
		if err := valid(class, &scheduling.PriorityClass{}, priorityclass.Strategy.Validate); err != nil {
			return err
		}
	}
	for _, class := range q.runtimeClasses {
		if err := valid(class, &node.RuntimeClass{}, runtimeclass.Strategy.Validate); err != nil {
			return err
		}
	}
	return nil
}

func valid(posted, internal runtime.Object, check func(context.Context, runtime.Object) field.ErrorList) error {
	if err := scheme.Convert(posted.DeepCopyObject(), internal, nil); err != nil {
		return err
	}
	if faults := check(context.Background(), internal); len(faults) > 0 {
		named, _ := meta.Accessor(posted)
		return fmt.Errorf("%T %q would not be stored: %w", posted, named.GetName(), faults.ToAggregate())
	}
	return nil
}
