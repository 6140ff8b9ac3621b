//go:build tools

// Package tools pins the programs that the proof ground builds from this module.
//
// Renewing go.sum needs GONOSUMDB=sigs.k8s.io/scheduler-library: the checksum database does not know that module.
// The hash in go.sum is the one in Kueue's own.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
