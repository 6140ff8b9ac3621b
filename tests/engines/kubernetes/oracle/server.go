package main

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	api "k8s.io/kubernetes/pkg/apis/core"
	apischedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/capabilities"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecurity"
)

// server holds the admission plug-ins of the API server and the objects of the case they are asked about.
type server struct {
	objects     admission.ObjectInterfaces
	informers   informers.SharedInformerFactory
	limitRanges []*corev1.LimitRange
	quotas      quotaList
	// clauses are the single errors of the LimitRange that refused; its message only has them joined.
	clauses []string

	limitRanger  *limitranger.LimitRanger
	priority     *priority.Plugin
	runtimeClass *runtimeclass.RuntimeClass
	podSecurity  admission.ValidationInterface
	evaluator    resourcequota.Evaluator
	podEvaluator quota.Evaluator
}

// mutator and validator name the plug-in, because the answer says who refused.
type mutator struct {
	stage string
	admission.MutationInterface
}

type validator struct {
	stage    string
	Validate func(context.Context, admission.Attributes, admission.ObjectInterfaces) error
}

func newServer() (*server, error) {
	// Every cluster set-up tool starts the API server with --allow-privileged.
	capabilities.Setup(true, 0)
	client := fake.NewClientset()
	s := &server{
		objects:      admission.NewObjectInterfacesFromScheme(scheme),
		informers:    informers.NewSharedInformerFactory(client, 0),
		priority:     priority.NewPlugin(),
		runtimeClass: runtimeclass.NewRuntimeClass(),
	}
	factory := limitRangeFactory{s.informers, &s.limitRanges}

	var err error
	if s.limitRanger, err = limitranger.NewLimitRanger(clauseKeeper{&limitranger.DefaultLimitRangerActions{}, s}); err != nil {
		return nil, err
	}
	quotas, err := quotainstall.NewQuotaConfigurationForAdmission(s.informers, nil)
	if err != nil {
		return nil, err
	}
	registry := generic.NewRegistry(quotas.Evaluators())
	s.podEvaluator = registry.Get(api.Resource("pods"))
	s.evaluator = resourcequota.NewQuotaEvaluator(&s.quotas, quotas.IgnoredResources(), registry, nil, nil, 1, make(chan struct{}))

	start := initializer.New(client, nil, factory, nil, utilfeature.DefaultFeatureGate,
		compatibility.DefaultBuildEffectiveVersion(), make(chan struct{}), nil)
	plugins := admission.NewPlugins()
	podsecurity.Register(plugins)
	security, err := plugins.InitPlugin(podsecurity.PluginName, nil, start)
	if err != nil {
		return nil, err
	}
	s.podSecurity = security.(admission.ValidationInterface)
	for _, plugin := range []admission.Interface{s.limitRanger, s.priority, s.runtimeClass} {
		start.Initialize(plugin)
		if err := admission.ValidateInitialization(plugin); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// load puts the cluster-wide objects of a case where the plug-ins look for them.
func (s *server) load(q question) {
	replace(s.informers.Scheduling().V1().PriorityClasses().Informer(), slices.Concat(q.priorityClasses, systemClasses()))
	replace(s.informers.Node().V1().RuntimeClasses().Informer(), q.runtimeClasses)
	replace(s.informers.Core().V1().Namespaces().Informer(), []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: q.pod.Namespace, Labels: maps.Clone(q.labels)}},
	})
}

// systemClasses are the classes that the server makes sure always exist, as it stores them.
func systemClasses() []*schedulingv1.PriorityClass {
	classes := apischedulingv1.SystemPriorityClasses()
	for _, class := range classes {
		scheme.Default(class)
	}
	return classes
}

func replace[T any](informer cache.SharedIndexInformer, items []T) {
	objects := make([]any, len(items))
	for i, item := range items {
		objects[i] = item
	}
	if err := informer.GetIndexer().Replace(objects, ""); err != nil {
		panic(err)
	}
}

// mutators are the plug-ins that change pods, in the API server's order.
func (s *server) mutators(q question) []mutator {
	plugins := []mutator{{"limitrange", s.limitRanger}}
	if q.runPriority {
		plugins = append(plugins, mutator{"priority", s.priority})
	}
	if q.runRuntimeClass {
		plugins = append(plugins, mutator{"runtimeclass", s.runtimeClass})
	}
	return plugins
}

// validators are the plug-ins that judge pods, in the API server's order.
func (s *server) validators(q question) []validator {
	plugins := []validator{{"limitrange", s.limitRanger.Validate}, {"podsecurity", s.podSecurity.Validate}}
	if q.runRuntimeClass {
		plugins = append(plugins, validator{"runtimeclass", s.runtimeClass.Validate})
	}
	return append(plugins, validator{"quota", s.chargeQuotas})
}

func (s *server) chargeQuotas(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	measured := admission.NewAttributesRecord(a.GetObject().DeepCopyObject(), nil, a.GetKind(), a.GetNamespace(), a.GetName(),
		a.GetResource(), a.GetSubresource(), a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo())
	return s.evaluator.Evaluate(measured)
}

// usage is what the pod evaluator of ResourceQuota measures.
func (s *server) usage(pod *api.Pod) (map[string]string, error) {
	measured, err := s.podEvaluator.Usage(pod)
	return printed(measured), err
}

// used is every quota's status.used after the pod was charged.
func (s *server) used() map[string]map[string]string {
	used := map[string]map[string]string{}
	for _, quota := range s.quotas.items {
		used[quota.Name] = printed(quota.Status.Used)
	}
	return used
}

// clauseKeeper is LimitRanger's own behaviour; it also notes the single errors before they are joined.
type clauseKeeper struct {
	limitranger.LimitRangerActions
	server *server
}

func (k clauseKeeper) ValidateLimit(limitRange *corev1.LimitRange, kind string, obj runtime.Object) error {
	err := k.LimitRangerActions.ValidateLimit(limitRange, kind, obj)
	if all, ok := err.(utilerrors.Aggregate); ok {
		for _, one := range all.Errors() {
			k.server.clauses = append(k.server.clauses, one.Error())
		}
	}
	return err
}
