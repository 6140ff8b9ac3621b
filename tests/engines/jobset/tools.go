//go:build tools

// Package tools pins the programs that the proof ground builds from this module.
package tools

import _ "sigs.k8s.io/jobset"
