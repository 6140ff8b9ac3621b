package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/argoproj/argo-workflows/v4/cmd/argo/lint"
	"github.com/argoproj/argo-workflows/v4/pkg/apiclient"
	"gpuflow.test/engines/lines"
)

// lintCase is the text of a file: one or more manifests, YAML or JSON.
type lintCase struct {
	Text string `json:"text"`
}

type lintOutput struct {
	Valid  bool     `json:"valid"`
	Errors []string `json:"errors"`
}

// newLintAnswer does what `argo lint --offline FILE` does; the linter only reads files.
func newLintAnswer() (lines.Answer, error) {
	folder, err := os.MkdirTemp("", "argo-lint")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "case.yaml")
	return func(input []byte) (any, error) {
		var c lintCase
		if err := json.Unmarshal(input, &c); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(c.Text), 0o600); err != nil {
			return nil, err
		}
		return lintFile(file)
	}, nil
}

func lintFile(file string) (out lintOutput, err error) {
	out.Errors = []string{}
	ctx, client, err := apiclient.NewClientFromOptsWithContext(quietContext(), apiclient.Opts{Offline: true, OfflineFiles: []string{file}})
	if err != nil {
		// The command line gives up here too: a file it cannot read is not a valid file.
		out.Errors = append(out.Errors, err.Error())
		return out, nil
	}
	options := lint.LintOptions{Files: []string{file}, Strict: true, DefaultNamespace: "default"}
	options.ServiceClients.WorkflowsClient = client.NewWorkflowServiceClient(ctx)
	if options.ServiceClients.WorkflowTemplatesClient, err = client.NewWorkflowTemplateServiceClient(); err != nil {
		return out, err
	}
	if options.ServiceClients.CronWorkflowsClient, err = client.NewCronWorkflowServiceClient(); err != nil {
		return out, err
	}
	if options.ServiceClients.ClusterWorkflowTemplateClient, err = client.NewClusterWorkflowTemplateServiceClient(); err != nil {
		return out, err
	}
	results, err := lint.Lint(ctx, &options)
	if err != nil {
		return out, err
	}
	out.Valid = results.Success
	for _, result := range results.Results {
		for _, problem := range result.Errs {
			out.Errors = append(out.Errors, problem.Error())
		}
	}
	return out, nil
}
