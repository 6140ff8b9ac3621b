package main

import (
	"context"
	_ "unsafe" // for go:linkname

	wfv1 "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	"github.com/argoproj/argo-workflows/v4/workflow/common"
	_ "github.com/argoproj/argo-workflows/v4/workflow/controller"
	corev1 "k8s.io/api/core/v1"
)

// Parts of the controller that it does not export, called as they are.

//go:linkname expandTask github.com/argoproj/argo-workflows/v4/workflow/controller.expandTask
func expandTask(ctx context.Context, task wfv1.DAGTask, globalScope map[string]string) ([]wfv1.DAGTask, error)

//go:linkname substitutePodParams github.com/argoproj/argo-workflows/v4/workflow/controller.substitutePodParams
func substitutePodParams(ctx context.Context, pod *corev1.Pod, globalParams common.Parameters, tmpl *wfv1.Template) (*corev1.Pod, error)

//go:linkname buildRetryStrategyLocalScope github.com/argoproj/argo-workflows/v4/workflow/controller.buildRetryStrategyLocalScope
func buildRetryStrategyLocalScope(node *wfv1.NodeStatus, nodes wfv1.Nodes) map[string]any
