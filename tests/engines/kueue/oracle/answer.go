package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"gpuflow.test/engines/lines"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/workload"
)

const (
	fit     = "Fit"     // quota is reserved
	preempt = "Preempt" // others are evicted for it
	waits   = "Wait"    // it would fit if nothing else held quota
	never   = "Never"   // it would not
	blocked = "Blocked" // a queue is stopped, missing or inactive, or the workload itself is refused
)

type output struct {
	ID string `json:"id,omitempty"`
	cycle
	ClusterQueue string  `json:"clusterQueue,omitempty"`
	CQReason     string  `json:"cqReason,omitempty"`
	CQMessage    string  `json:"cqMessage,omitempty"`
	LaterCycles  []cycle `json:"laterCycles,omitempty"`
	Loops        bool    `json:"loops,omitempty"`
	FinalVerdict string  `json:"finalVerdict,omitempty"`
	FitsEmpty    *bool   `json:"fitsEmpty,omitempty"`
}

// newVerdictAnswer looks with the granular reasons of UnadmittedWorkloadsObservability, which is off by default
// and changes nothing but reasons. It is set once: feature gates belong to the process.
func newVerdictAnswer() (lines.Answer, error) {
	gates := map[string]bool{string(features.UnadmittedWorkloadsObservability): true}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return nil, err
	}
	return func(input []byte) (any, error) {
		var q question
		if err := json.Unmarshal(input, &q); err != nil {
			return nil, err
		}
		return answer(q)
	}, nil
}

// newConditionAnswer gives only the QuotaReserved condition, as Kueue writes it with its default gates.
func newConditionAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var q question
		if err := json.Unmarshal(input, &q); err != nil {
			return nil, err
		}
		s, err := newScene(q)
		if err != nil {
			return nil, err
		}
		refused, err := s.reconcile()
		if err != nil {
			return nil, err
		}
		if !refused {
			schedule(s.scheduler, s.ctx)
		}
		condition, err := s.condition()
		if err != nil {
			return nil, err
		}
		return map[string]string{"status": string(condition.Status), "reason": condition.Reason, "message": condition.Message}, nil
	}, nil
}

func answer(q question) (out output, err error) {
	s, err := newScene(q)
	if err != nil {
		return out, err
	}
	out.ID = q.ID
	name, _ := s.queues.ClusterQueueForWorkload(s.asking)
	out.ClusterQueue = string(name)

	refused, err := s.reconcile()
	if err != nil {
		return out, err
	}
	if refused {
		condition, err := s.condition()
		out.Verdict, out.Reason, out.Message = blocked, condition.Reason, condition.Message
		out.CQReason, out.CQMessage = s.inactive(name)
		return out, err
	}

	fits, err := fitsEmpty(q)
	if err != nil {
		return out, err
	}
	cycles, loops, err := s.run(fits)
	if err != nil {
		return out, err
	}
	out.cycle, out.LaterCycles, out.Loops = cycles[0], cycles[1:], loops
	out.FinalVerdict, out.FitsEmpty = cycles[len(cycles)-1].Verdict, &fits
	return out, nil
}

// inactive is why a ClusterQueue admits nothing. Kueue has no words of its own for a cycle of cohorts: it
// says Ready=False because of Ready.
func (s *scene) inactive(name kueue.ClusterQueueReference) (reason, message string) {
	status, reason, message := s.cache.ClusterQueueReadiness(name)
	switch {
	case status == metav1.ConditionTrue || reason == "NotFound":
		return "", ""
	case reason == "Ready":
		return "CohortCycle", ""
	}
	return reason, message
}

// run lets the scheduler try until it admits, preempts, has no flavor left to try, or comes back to where it
// was: a scan of flavors that stopped early goes on in the next cycle.
func (s *scene) run(fitsEmpty bool) (cycles []cycle, loops bool, err error) {
	var seen []*workload.AssignmentClusterQueueState
	for {
		head := s.head()
		if head == nil {
			return nil, false, fmt.Errorf("%s is not offered to the scheduler", workload.Key(s.asking))
		}
		before := func(state *workload.AssignmentClusterQueueState) bool {
			return reflect.DeepEqual(state.LastTriedFlavorIdx, head.LastAssignment.LastTriedFlavorIdx)
		}
		if head.LastAssignment != nil && slices.ContainsFunc(seen, before) {
			return cycles, true, nil
		}
		if head.LastAssignment != nil {
			seen = append(seen, head.LastAssignment)
		}
		cycle, err := s.cycle(head, fitsEmpty)
		if err != nil {
			return nil, false, err
		}
		cycles = append(cycles, cycle)
		if !cycle.PendingFlavors {
			return cycles, false, nil
		}
	}
}

// fitsEmpty asks again with nothing admitted, and with no pods but those of the nodes' own: the difference between
// waiting and never.
func fitsEmpty(q question) (bool, error) {
	q.Admitted = nil
	q.Pods = slices.DeleteFunc(slices.Clone(q.Pods), func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "DaemonSet" })
	})
	s, err := newScene(q)
	if err != nil {
		return false, err
	}
	cycles, _, err := s.run(false)
	if err != nil {
		return false, err
	}
	return cycles[len(cycles)-1].Verdict == fit, nil
}

// judge turns a condition into a verdict.
func judge(condition *metav1.Condition, fitsEmpty bool) string {
	switch {
	case condition.Status == metav1.ConditionTrue:
		return fit
	case condition.Reason == kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads:
		return preempt
	case fitsEmpty:
		return waits
	}
	return never
}
