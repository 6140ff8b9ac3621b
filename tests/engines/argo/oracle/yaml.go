package main

import (
	"encoding/json"

	"gpuflow.test/engines/lines"
	"sigs.k8s.io/yaml"
)

// newYAMLAnswer gives what Kubernetes' own reader of YAML makes of a document, as JSON.
func newYAMLAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var text string
		if err := json.Unmarshal(input, &text); err != nil {
			return nil, err
		}
		found, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return map[string]any{"refused": true}, nil
		}
		return map[string]any{"json": string(found)}, nil
	}, nil
}
