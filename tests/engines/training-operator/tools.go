//go:build tools

// Package tools pins the programs that the proof ground builds from this module.
package tools

import _ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
