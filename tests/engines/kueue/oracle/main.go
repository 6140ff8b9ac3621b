// Command oracle answers whether a workload gets quota, with Kueue's own controllers, cache and scheduler.
package main

import (
	"github.com/go-logr/logr"
	"gpuflow.test/engines/lines"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	lines.Main("sigs.k8s.io/kueue", map[string]func() error{
		"kueue":     func() error { return lines.Serve(lines.Workers(), newVerdictAnswer) },
		"condition": func() error { return lines.Serve(lines.Workers(), newConditionAnswer) },
	})
}
