// Command judge steps a run through the API server's quotas, Kueue and the scheduler, in every order that the
// engines allow, with the engines' own code, and tells how it can end.
package main

import (
	"flag"

	"github.com/go-logr/logr"
	"gpuflow.test/engines/lines"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	logs := flag.NewFlagSet("logs", flag.ContinueOnError)
	klog.InitFlags(logs)
	logs.Set("logtostderr", "false")
	logs.Set("alsologtostderr", "false")
	logs.Set("stderrthreshold", "FATAL")
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	lines.Main("sigs.k8s.io/kueue", map[string]func() error{
		// One worker: whoever wants more cores starts more programs.
		"judge": func() error { return lines.Serve(1, newJudge) },
	})
}
