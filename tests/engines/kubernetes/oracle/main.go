// Command oracle answers questions about quantities, the admission of pods and of objects, patches, node fit and devices with Kubernetes' own code.
package main

import (
	"flag"

	"gpuflow.test/engines/lines"
	"k8s.io/klog/v2"
)

func main() {
	logs := flag.NewFlagSet("logs", flag.ContinueOnError)
	klog.InitFlags(logs)
	// Feature gates and slow traces are logged as warnings: only answers and fatal errors leave this program.
	logs.Set("logtostderr", "false")
	logs.Set("alsologtostderr", "false")
	logs.Set("stderrthreshold", "FATAL")
	klog.SetLogger(klog.Logger{})

	lines.Main("k8s.io/kubernetes", map[string]func() error{
		"quantity":  func() error { return lines.Serve(lines.Workers(), newQuantityAnswer) },
		"admission": func() error { return lines.Serve(lines.Workers(), newAdmissionAnswer) },
		// Feature gates belong to the process, so node fit is judged one case at a time.
		"nodefit": func() error { return lines.Serve(1, newNodeFitAnswer) },
		"dra":     func() error { return lines.Serve(lines.Workers(), newDRAAnswer) },
		"merge":   func() error { return lines.Serve(lines.Workers(), newMergeAnswer) },
		"dra-pod": func() error { return lines.Serve(1, newDRAPodAnswer) },
		"objects": func() error { return lines.Serve(lines.Workers(), newObjectAnswer) },
	})
}
