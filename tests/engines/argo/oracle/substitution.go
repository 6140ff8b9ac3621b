package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	wfv1 "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	"github.com/argoproj/argo-workflows/v4/util/template"
	"github.com/argoproj/argo-workflows/v4/workflow/common"
	"github.com/argoproj/argo-workflows/v4/workflow/util"
	"gpuflow.test/engines/lines"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// substitutionCase is a workflow, the parameters it is submitted with, and the way to a step: the task of the
// entry point's DAG, the task of that task's DAG, and so on. Without a way the entry point is itself the step.
// Scope holds what earlier tasks gave, by Argo's names: tasks.prepare.outputs.parameters.shards, or
// workflow.outputs.parameters.shards for an exit handler.
// With Attempt the pod is that of a later attempt, and the answer holds where it may run as well.
type substitutionCase struct {
	Workflow   wfv1.Workflow     `json:"workflow"`
	Parameters map[string]string `json:"parameters"`
	Path       []string          `json:"path"`
	Scope      map[string]string `json:"scope"`
	Attempt    *attempt          `json:"attempt"`
}

// attempt is what a retry knows: how many attempts there were, and how the last one ended.
type attempt struct {
	Retries  string `json:"retries"`
	ExitCode string `json:"exitCode"`
	Status   string `json:"status"`
	Message  string `json:"message"`
}

// substitutionOutput has one pod, or one for each item of a loop, or the error that ends the step.
type substitutionOutput struct {
	Pods    []podView `json:"pods,omitempty"`
	Failure string    `json:"failure,omitempty"`
}

// podView is the step's own container after every pass. The executor's containers and its `argoexec emissary --`
// in front of the command are left out.
type podView struct {
	Task         string           `json:"task,omitempty"`
	Container    corev1.Container `json:"container"`
	Source       string           `json:"source,omitempty"`
	PodSpecPatch []string         `json:"podSpecPatch,omitempty"`
	Spec         *corev1.PodSpec  `json:"spec,omitempty"`
}

// run is the state of a workflow that substitution reads.
type run struct {
	ctx     context.Context
	wf      wfv1.Workflow
	globals common.Parameters
	scope   common.Parameters
	attempt *attempt
}

func newSubstitutionAnswer() (lines.Answer, error) {
	ctx := quietContext()
	return func(input []byte) (any, error) {
		var c substitutionCase
		if err := json.Unmarshal(input, &c); err != nil {
			return nil, err
		}
		pods, err := answerSubstitution(ctx, c)
		if err != nil {
			return substitutionOutput{Failure: err.Error()}, nil
		}
		return substitutionOutput{Pods: pods}, nil
	}, nil
}

func answerSubstitution(ctx context.Context, c substitutionCase) (pods []podView, err error) {
	r, err := submit(ctx, c)
	if err != nil {
		return nil, err
	}
	return r.follow(r.wf.Spec.Entrypoint, r.wf.Spec.Arguments, c.Path, node{name: r.wf.Name})
}

// node is a place in the running workflow; task is how the DAG above calls it.
type node struct {
	name, task string
}

func (n node) locals() common.Parameters {
	locals := common.Parameters{"node.name": n.name}
	if n.task != "" {
		locals["tasks.name"] = n.task
	}
	return locals
}

// follow walks down the DAGs. A loop on the way gives several pods.
func (r *run) follow(name string, arguments wfv1.Arguments, path []string, at node) (pods []podView, err error) {
	tmpl := r.wf.GetTemplateByName(name)
	if tmpl == nil {
		return nil, fmt.Errorf("the workflow has no template %q", name)
	}
	if len(path) == 0 {
		pod, err := r.pod(tmpl, arguments, at)
		return []podView{pod}, err
	}
	tasks, err := r.tasks(tmpl, arguments, path[0], at)
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		below, err := r.follow(task.Template, task.Arguments, path[1:], node{at.name + "." + task.Name, task.Name})
		if err != nil {
			return nil, err
		}
		pods = append(pods, below...)
	}
	return pods, nil
}

// submit sets the parameters, then replaces globals in everything but the templates, as the controller does
// when it first sees a workflow.
func submit(ctx context.Context, c substitutionCase) (*run, error) {
	r := &run{ctx: ctx, wf: c.Workflow, globals: common.Parameters{}, scope: c.Scope, attempt: c.Attempt}
	for i, parameter := range r.wf.Spec.Arguments.Parameters {
		if value, given := c.Parameters[parameter.Name]; given {
			r.wf.Spec.Arguments.Parameters[i].Value = wfv1.AnyStringPtr(value)
		}
	}
	all, err := json.Marshal(r.wf.Spec.Arguments.Parameters)
	if err != nil {
		return nil, err
	}
	r.globals[common.GlobalVarWorkflowName] = r.wf.Name
	r.globals[common.GlobalVarWorkflowNamespace] = r.wf.Namespace
	r.globals[common.GlobalVarWorkflowUID] = string(r.wf.UID)
	r.globals[common.GlobalVarWorkflowParameters] = string(all)
	r.globals[common.GlobalVarWorkflowParametersJSON] = string(all)
	for _, parameter := range r.wf.Spec.Arguments.Parameters {
		if parameter.Value == nil {
			return nil, fmt.Errorf("either value or valueFrom must be specified in order to set global parameter %s", parameter.Name)
		}
		r.globals["workflow.parameters."+parameter.Name] = parameter.Value.String()
	}
	// How the run stands, and what its steps gave to all of it, are globals.
	for name, value := range c.Scope {
		if strings.HasPrefix(name, "workflow.") {
			r.globals[name] = value
		}
	}

	spec := r.wf.Spec
	spec.Templates = nil
	return r, replaced(ctx, spec, &r.wf.Spec, r.globals)
}

// tasks are the copies of one task that run, after the DAG's own arguments, the outputs of earlier tasks and
// the items of its loop have been put in.
func (r *run) tasks(dag *wfv1.Template, arguments wfv1.Arguments, name string, at node) ([]wfv1.DAGTask, error) {
	processed, err := r.process(dag, arguments, at.locals())
	if err != nil {
		return nil, err
	}
	if processed.DAG == nil {
		return nil, fmt.Errorf("template %q is no DAG", dag.Name)
	}
	found := slices.IndexFunc(processed.DAG.Tasks, func(task wfv1.DAGTask) bool { return task.Name == name })
	if found < 0 {
		return nil, fmt.Errorf("template %q has no task %q", dag.Name, name)
	}
	text, err := json.Marshal(processed.DAG.Tasks[found])
	if err != nil {
		return nil, err
	}
	// The controller's scope of a task holds what the DAG itself was given, too.
	scope := r.globals.Merge(r.scope)
	for _, parameter := range processed.Inputs.Parameters {
		scope["inputs.parameters."+parameter.Name] = parameter.Value.String()
	}
	resolved, err := template.ReplaceStrict(r.ctx, string(text), scope, []string{"tasks", "steps"})
	if err != nil {
		return nil, err
	}
	var copied wfv1.DAGTask
	if err := json.Unmarshal([]byte(resolved), &copied); err != nil {
		return nil, err
	}
	return expandTask(r.ctx, copied, scope)
}

// pod follows a template to the pod: arguments, the attempt of a retry, the pod as a whole, the patch.
func (r *run) pod(step *wfv1.Template, arguments wfv1.Arguments, at node) (view podView, err error) {
	name := util.GeneratePodName(r.wf.Name, at.name, step.Name, r.wf.NodeID(at.name), util.GetPodNameVersion())
	locals := at.locals()
	if step.RetryStrategy == nil {
		locals[common.LocalVarPodName] = name
	}
	processed, err := r.process(step, arguments, locals)
	if err != nil {
		return view, err
	}
	if step.RetryStrategy != nil {
		last := attempt{Retries: "0", ExitCode: "0"}
		if r.attempt != nil {
			last = *r.attempt
		}
		known := common.Parameters{
			common.LocalVarPodName: name, common.LocalVarRetries: last.Retries, common.LocalVarRetriesLastExitCode: last.ExitCode,
			common.LocalVarRetriesLastDuration: "0", common.LocalVarRetriesLastStatus: last.Status, common.LocalVarRetriesLastMessage: last.Message,
		}
		if processed, err = common.SubstituteParams(r.ctx, processed, r.globals, locals.Merge(known)); err != nil {
			return view, err
		}
	}
	main, source, err := mainContainer(processed)
	if err != nil {
		return view, err
	}

	spec := corev1.PodSpec{Containers: []corev1.Container{main}}
	if r.attempt != nil {
		spec.NodeSelector, spec.Affinity, spec.Tolerations = processed.NodeSelector, processed.Affinity, processed.Tolerations
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if pod, err = substitutePodParams(r.ctx, pod, r.globals, processed); err != nil {
		return view, err
	}
	view = podView{Task: at.task, Container: pod.Spec.Containers[0], Source: source}
	for _, patch := range []string{r.wf.Spec.PodSpecPatch, processed.PodSpecPatch} {
		if patch == "" {
			continue
		}
		patched := processed.DeepCopy()
		patched.PodSpecPatch = patch
		if patched, err = r.process(patched, wfv1.Arguments{}, common.Parameters{common.LocalVarPodName: name}); err != nil {
			return view, err
		}
		view.PodSpecPatch = append(view.PodSpecPatch, patched.PodSpecPatch)
	}
	if len(view.PodSpecPatch) > 0 {
		patched, err := util.ApplyPodSpecPatch(pod.Spec, view.PodSpecPatch...)
		if err != nil {
			return view, err
		}
		pod.Spec, view.Container = *patched, patched.Containers[0]
	}
	if r.attempt != nil {
		view.Spec = &pod.Spec
	}
	return view, nil
}

func (r *run) process(tmpl *wfv1.Template, arguments wfv1.Arguments, locals common.Parameters) (*wfv1.Template, error) {
	return common.ProcessArgs(r.ctx, tmpl, &arguments, r.globals, locals, false, r.wf.Namespace, nil)
}

// mainContainer is the container the template describes, named as the controller names it.
func mainContainer(tmpl *wfv1.Template) (main corev1.Container, source string, err error) {
	switch tmpl.GetType() {
	case wfv1.TemplateTypeContainer:
		main = *tmpl.Container
	case wfv1.TemplateTypeScript:
		main, source = tmpl.Script.Container, tmpl.Script.Source
	default:
		return main, "", fmt.Errorf("template %q runs no container of its own", tmpl.Name)
	}
	main.Name = common.MainContainerName
	return main, source, nil
}

func replaced(ctx context.Context, from, into any, params common.Parameters) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	result, err := template.Replace(ctx, string(text), params, true)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(result), into)
}
