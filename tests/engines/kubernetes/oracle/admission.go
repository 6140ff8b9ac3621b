package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gpuflow.test/engines/lines"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	api "k8s.io/kubernetes/pkg/apis/core"
	registrypod "k8s.io/kubernetes/pkg/registry/core/pod"
)

// admissionCase is a pod as posted and what stands in its namespace. A null list of classes means that the
// plug-in which reads them does not run.
type admissionCase struct {
	Pod             json.RawMessage   `json:"pod"`
	Quotas          []json.RawMessage `json:"quotas"`
	LimitRanges     []json.RawMessage `json:"limitranges"`
	PriorityClasses []json.RawMessage `json:"priorityclasses"`
	RuntimeClasses  []json.RawMessage `json:"runtimeclasses"`
	Namespace       struct {
		Labels map[string]string `json:"labels"`
	} `json:"namespace"`
}

type admissionOutput struct {
	Status         int                          `json:"status"`
	Stage          string                       `json:"stage"`
	Message        string                       `json:"message"`
	Clauses        []string                     `json:"clauses,omitempty"`
	Usage          map[string]string            `json:"usage,omitempty"`
	Used           map[string]map[string]string `json:"used,omitempty"`
	Pod            *podView                     `json:"pod"`
	PodAtAdmission *podView                     `json:"pod_at_admission,omitempty"`
	Alternatives   []admissionOutput            `json:"alternatives,omitempty"`
}

// question is a decoded case; every answer works on copies of it.
type question struct {
	pod             *api.Pod
	quotas          []*corev1.ResourceQuota
	limitRanges     []*corev1.LimitRange
	priorityClasses []*schedulingv1.PriorityClass
	runtimeClasses  []*nodev1.RuntimeClass
	runPriority     bool
	runRuntimeClass bool
	labels          map[string]string
}

func newAdmissionAnswer() (lines.Answer, error) {
	server, err := newServer()
	if err != nil {
		return nil, err
	}
	return func(input []byte) (any, error) {
		q, err := decodeQuestion(input)
		if err != nil {
			return nil, err
		}
		return server.answer(q)
	}, nil
}

func decodeQuestion(input []byte) (q question, err error) {
	var c admissionCase
	if err = json.Unmarshal(input, &c); err != nil {
		return q, err
	}
	if q.pod, err = decodePod(c.Pod); err != nil {
		return q, err
	}
	q.quotas, err = decodeAll[corev1.ResourceQuota](c.Quotas, err)
	q.limitRanges, err = decodeAll[corev1.LimitRange](c.LimitRanges, err)
	q.priorityClasses, err = decodeAll[schedulingv1.PriorityClass](c.PriorityClasses, err)
	q.runtimeClasses, err = decodeAll[nodev1.RuntimeClass](c.RuntimeClasses, err)
	q.runPriority, q.runRuntimeClass = c.PriorityClasses != nil, c.RuntimeClasses != nil
	q.labels = c.Namespace.Labels
	if err != nil {
		return q, err
	}
	return q, q.validate()
}

// answer creates the pod in the given order of LimitRanges and quotas, then in every other order: the server
// lists them anew, in random order, when it mutates, when it validates and when it charges. Each complete
// answer that differs is an alternative.
func (s *server) answer(q question) (admissionOutput, error) {
	s.load(q)
	var answers []admissionOutput
	var failures []error
	try := func(mutating, validating []*corev1.LimitRange, quotas []*corev1.ResourceQuota) (stage string) {
		answer, err := s.create(q, mutating, validating, quotas)
		if err != nil {
			failures = append(failures, err)
		} else if !slices.ContainsFunc(answers, answer.same) {
			answers = append(answers, answer)
		}
		return answer.Stage
	}
	for _, mutating := range permutations(q.limitRanges) {
		// A later order matters only where it decides which of several refusals comes first.
		switch try(mutating, q.limitRanges, q.quotas) {
		case "limitrange":
			for _, validating := range permutations(q.limitRanges)[1:] {
				try(mutating, validating, q.quotas)
			}
		case "quota":
			for _, quotas := range permutations(q.quotas)[1:] {
				try(mutating, q.limitRanges, quotas)
			}
		}
	}
	if len(failures) > 0 {
		return admissionOutput{}, errors.Join(failures...)
	}
	given := answers[0]
	given.Alternatives = answers[1:]
	return given, nil
}

// same compares two answers up to LimitRanger's note, which names only the last LimitRange that set something.
func (o admissionOutput) same(other admissionOutput) bool {
	return reflect.DeepEqual(o.withoutNote(), other.withoutNote())
}

func (o admissionOutput) withoutNote() admissionOutput {
	pod := *o.Pod
	pod.LimitRangerAnnotation = ""
	o.Pod = &pod
	if o.PodAtAdmission != nil {
		admitted := *o.PodAtAdmission
		admitted.LimitRangerAnnotation = ""
		o.PodAtAdmission = &admitted
	}
	return o
}

// create does what the API server does with a posted pod, in its order: mutating admission, the registry's
// own preparation and validation, validating admission.
func (s *server) create(q question, mutating, validating []*corev1.LimitRange, quotas []*corev1.ResourceQuota) (out admissionOutput, err error) {
	s.limitRanges, s.clauses = mutating, nil
	s.quotas.items = s.quotas.items[:0]
	for _, quota := range quotas {
		s.quotas.items = append(s.quotas.items, *quota.DeepCopy())
	}

	pod := q.pod.DeepCopy()
	ctx := genericapirequest.WithNamespace(context.Background(), pod.Namespace)
	rest.FillObjectMetaSystemFields(pod)
	attributes := admission.NewAttributesRecord(pod, nil, api.Kind("Pod").WithVersion("v1"), pod.Namespace, pod.Name,
		api.Resource("pods").WithVersion("v1"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{})

	for _, plugin := range s.mutators(q) {
		if err := plugin.Admit(ctx, attributes, s.objects); err != nil {
			return refused(plugin.stage, err, nil, pod)
		}
	}
	invalid := rest.BeforeCreate(registrypod.Strategy, ctx, pod)
	// Measuring a pod can rewrite its quantities, so it is done on a copy, here and when quotas are charged: the
	// pod that a running server stores does not show it.
	if out.Usage, err = s.usage(pod.DeepCopy()); err != nil {
		return out, err
	}
	if invalid != nil {
		refusal, err := refused("validation", invalid, nil, pod)
		refusal.Usage = out.Usage
		return refusal, err
	}
	s.limitRanges = validating
	for _, plugin := range s.validators(q) {
		if err := plugin.Validate(ctx, attributes, s.objects); err != nil {
			refusal, err := refused(plugin.stage, err, s.clauses, pod)
			refusal.Usage = out.Usage
			return refusal, err
		}
	}

	out.Status, out.Stage, out.Used = 201, "created", s.used()
	admitted := viewOf(asV1(pod))
	stored := viewOf(asStored(pod))
	out.Pod = &stored
	if !reflect.DeepEqual(stored, admitted) {
		out.PodAtAdmission = &admitted
	}
	return out, nil
}

// refused reads the API error. Where Go's map order makes the order of clauses random, they are sorted and
// the message is the server's with the clauses in that order.
func refused(stage string, err error, clauses []string, pod *api.Pod) (out admissionOutput, _ error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return out, fmt.Errorf("%s failed: %w", stage, err)
	}
	view := viewOf(asV1(pod))
	out = admissionOutput{Status: int(status.Status().Code), Stage: stage, Message: status.Status().Message, Pod: &view}
	if details := status.Status().Details; stage == "validation" && details != nil {
		for _, cause := range details.Causes {
			clauses = append(clauses, cause.Field+": "+cause.Message)
		}
	}
	if len(clauses) > 0 {
		clauses = slices.Clone(clauses)
		slices.Sort(clauses)
		out.Clauses = slices.Compact(clauses)
		separator := map[bool]string{true: " is invalid: ", false: " is forbidden: "}[stage == "validation"]
		subject, _, _ := strings.Cut(out.Message, separator)
		out.Message = subject + separator + joined(out.Clauses)
	}
	return out, nil
}

// joined is how Kubernetes prints several errors as one.
func joined(clauses []string) string {
	errs := make([]error, len(clauses))
	for i, clause := range clauses {
		errs[i] = errors.New(clause)
	}
	return utilerrors.NewAggregate(errs).Error()
}

// permutations lists every order of the items, the given one first.
func permutations[T any](items []T) [][]T {
	if len(items) < 2 {
		return [][]T{items}
	}
	var all [][]T
	for i := range items {
		rest := slices.Concat(items[:i], items[i+1:])
		for _, tail := range permutations(rest) {
			all = append(all, slices.Concat([]T{items[i]}, tail))
		}
	}
	return all
}
