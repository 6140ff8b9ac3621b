package main

import (
	"context"
	_ "unsafe" // for go:linkname

	corev1 "k8s.io/api/core/v1"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	_ "sigs.k8s.io/kueue/pkg/controller/tas" // for belongsToNonTASCache
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/util/routine"
	"sigs.k8s.io/kueue/pkg/util/wait"
	"sigs.k8s.io/kueue/pkg/workload"
)

// Kueue exports no single scheduling cycle: its scheduler only runs as an endless loop. These are the methods
// of that loop, called as they are; writing them again here would test a copy.

//go:linkname schedule sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func schedule(s *scheduler.Scheduler, ctx context.Context) wait.SpeedSignal

//go:linkname getAssignments sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).getAssignments
func getAssignments(s *scheduler.Scheduler, ctx context.Context, wl *workload.Info, snap *schdcache.Snapshot) (flavorassigner.Assignment, []*preemption.Target)

//go:linkname setAdmissionRoutineWrapper sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).setAdmissionRoutineWrapper
func setAdmissionRoutineWrapper(s *scheduler.Scheduler, wrapper routine.Wrapper)

//go:linkname belongsToNonTASCache sigs.k8s.io/kueue/pkg/controller/tas.belongsToNonTASCache
func belongsToNonTASCache(pod *corev1.Pod) bool

// inline runs what the scheduler would start in the background, so that a cycle is over when it returns.
type inline struct{}

func (inline) Run(work func()) { work() }
