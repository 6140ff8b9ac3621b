package main

import (
	"encoding/json"
	"time"

	wfv1 "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	"github.com/robfig/cron/v3"
	"gpuflow.test/engines/lines"
)

// cronCase is a schedule with its time zone, and how many of its times after a moment are asked for.
type cronCase struct {
	Schedule string    `json:"schedule"`
	Timezone string    `json:"timezone"`
	After    time.Time `json:"after"`
	Count    int       `json:"count"`
}

// newCronAnswer gives the times at which the controller starts runs of a CronWorkflow.
func newCronAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var c cronCase
		if err := json.Unmarshal(input, &c); err != nil {
			return nil, err
		}
		spec := wfv1.CronWorkflowSpec{Schedules: []string{c.Schedule}, Timezone: c.Timezone}
		schedule, err := cron.ParseStandard(spec.GetSchedulesWithTimezone()[0])
		if err != nil {
			return nil, err
		}
		times, moment := []string{}, c.After
		for range c.Count {
			moment = schedule.Next(moment)
			times = append(times, moment.UTC().Format(time.RFC3339))
		}
		return map[string]any{"times": times}, nil
	}, nil
}
