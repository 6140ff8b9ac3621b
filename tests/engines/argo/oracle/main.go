// Command oracle answers whether Argo Workflows accepts a manifest, what its substitution makes of a step,
// whether it tries a step again, when it starts the runs of a schedule, and what Kubernetes reads in a YAML text.
package main

import (
	"context"
	"io"

	"github.com/argoproj/argo-workflows/v4/util/logging"
	"gpuflow.test/engines/lines"
)

func main() {
	lines.Main("github.com/argoproj/argo-workflows/v4", map[string]func() error{
		"cron":         func() error { return lines.Serve(lines.Workers(), newCronAnswer) },
		"lint":         func() error { return lines.Serve(lines.Workers(), newLintAnswer) },
		"retry":        func() error { return lines.Serve(lines.Workers(), newRetryAnswer) },
		"substitution": func() error { return lines.Serve(lines.Workers(), newSubstitutionAnswer) },
		"yaml":         func() error { return lines.Serve(lines.Workers(), newYAMLAnswer) },
	})
}

func quietContext() context.Context {
	logger := logging.NewSlogLoggerCustom(logging.Error, logging.Text, io.Discard)
	return logging.WithLogger(context.Background(), logger)
}
