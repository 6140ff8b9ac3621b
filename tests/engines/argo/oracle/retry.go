package main

import (
	"encoding/json"
	"fmt"

	wfv1 "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	"github.com/argoproj/argo-workflows/v4/util/expr/argoexpr"
	"github.com/argoproj/argo-workflows/v4/util/expr/env"
	"gpuflow.test/engines/lines"
)

// retryCase is the expression of a retryStrategy and what is recorded of the last of several attempts.
type retryCase struct {
	Expression string         `json:"expression"`
	Attempts   int            `json:"attempts"`
	Phase      wfv1.NodePhase `json:"phase"`
	Message    string         `json:"message"`
	ExitCode   *string        `json:"exitCode"`
}

type retryOutput struct {
	Again   bool   `json:"again"`
	Failure string `json:"failure,omitempty"`
}

// newRetryAnswer does what processNodeRetries does with an expression: its own scope, its own evaluation.
func newRetryAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var c retryCase
		if err := json.Unmarshal(input, &c); err != nil {
			return nil, err
		}
		parent, nodes := wfv1.NodeStatus{ID: "step"}, wfv1.Nodes{}
		for i := range c.Attempts {
			id := fmt.Sprintf("step(%d)", i)
			parent.Children = append(parent.Children, id)
			nodes[id] = wfv1.NodeStatus{
				ID: id, Phase: c.Phase, Message: c.Message, Outputs: &wfv1.Outputs{ExitCode: c.ExitCode},
				NodeFlag: &wfv1.NodeFlag{Retried: true},
			}
		}
		scope := env.GetFuncMap(buildRetryStrategyLocalScope(&parent, nodes))
		again, err := argoexpr.EvalBool(c.Expression, scope)
		if err != nil {
			return retryOutput{Failure: err.Error()}, nil
		}
		return retryOutput{Again: again}, nil
	}, nil
}
