package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"gpuflow.test/engines/lines"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	// The kinds that are asked about register their types, conversions and defaults in the scheme.
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
)

// strategies are what the API server does before it stores an object, by kind.
var strategies = map[string]rest.RESTCreateStrategy{
	"Job": job.Strategy, "CronJob": cronjob.Strategy, "Deployment": deployment.Strategy,
	"ReplicaSet": replicaset.Strategy, "StatefulSet": statefulset.Strategy, "DaemonSet": daemonset.Strategy,
}

// objectOutput has every clause of the refusal; none when the object is stored.
type objectOutput struct {
	Clauses []string `json:"clauses"`
}

const (
	longestGeneratedBase = 58
	generatedEnd         = "xxxxx"
)

func newObjectAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var question struct {
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(input, &question); err != nil {
			return nil, err
		}
		versioned, kind, err := legacyscheme.Codecs.UniversalDeserializer().Decode(question.Object, nil, nil)
		if err != nil {
			return nil, err
		}
		strategy, known := strategies[kind.Kind]
		if !known {
			return nil, fmt.Errorf("no strategy for %s", kind.Kind)
		}
		scheme.Default(versioned)
		internal, err := scheme.ConvertToVersion(versioned, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
		if err != nil {
			return nil, err
		}
		meta := internal.(metav1.ObjectMetaAccessor).GetObjectMeta()
		meta.SetUID("uid-of-object")
		meta.SetCreationTimestamp(metav1.Now())
		if meta.GetNamespace() == "" {
			meta.SetNamespace("ns")
		}
		if base := meta.GetGenerateName(); base != "" && meta.GetName() == "" {
			meta.SetName(base[:min(len(base), longestGeneratedBase)] + generatedEnd)
		}
		ctx := genericapirequest.WithNamespace(context.Background(), meta.GetNamespace())
		strategy.PrepareForCreate(ctx, internal)
		clauses := []string{}
		for _, err := range strategy.Validate(ctx, internal) {
			clauses = append(clauses, err.Error())
		}
		slices.Sort(clauses)
		return objectOutput{slices.Compact(clauses)}, nil
	}, nil
}
