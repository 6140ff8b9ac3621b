package main

import (
	"encoding/json"

	"gpuflow.test/engines/lines"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mergeCase is a pod and a strategic merge patch of it.
type mergeCase struct {
	Pod   json.RawMessage `json:"pod"`
	Patch json.RawMessage `json:"patch"`
}

// mergeOutput is the patched pod; Refused when the patch cannot be applied.
type mergeOutput struct {
	Pod     json.RawMessage `json:"pod,omitempty"`
	Refused bool            `json:"refused"`
}

func newMergeAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var question mergeCase
		if err := json.Unmarshal(input, &question); err != nil {
			return nil, err
		}
		merged, err := strategicpatch.StrategicMergePatch(question.Pod, question.Patch, v1.PodTemplateSpec{})
		if err != nil {
			return mergeOutput{Refused: true}, nil
		}
		return mergeOutput{Pod: merged}, nil
	}, nil
}
