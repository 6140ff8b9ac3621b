package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	registrypod "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecurity"
)

// apiServer is the part of the API server that pods are created through.
type apiServer struct {
	objects     admission.ObjectInterfaces
	informers   informers.SharedInformerFactory
	limitRanges []*corev1.LimitRange
	quotas      quotaList
	ending      map[string]bool // namespaces that are being deleted

	limitRanger *limitranger.LimitRanger
	priority    *priority.Plugin
	podSecurity admission.ValidationInterface
	evaluator   resourcequota.Evaluator
	measure     quota.Evaluator
}

func newAPIServer() (*apiServer, error) {
	// Every cluster set-up tool starts the API server with --allow-privileged.
	capabilities.Setup(true, 0)
	client := fake.NewClientset()
	s := &apiServer{
		objects:   admission.NewObjectInterfacesFromScheme(scheme),
		informers: informers.NewSharedInformerFactory(client, 0),
		priority:  priority.NewPlugin(),
	}
	var err error
	if s.limitRanger, err = limitranger.NewLimitRanger(&limitranger.DefaultLimitRangerActions{}); err != nil {
		return nil, err
	}
	quotas, err := quotainstall.NewQuotaConfigurationForAdmission(s.informers, nil)
	if err != nil {
		return nil, err
	}
	registry := generic.NewRegistry(quotas.Evaluators())
	s.measure = registry.Get(api.Resource("pods"))
	s.evaluator = resourcequota.NewQuotaEvaluator(&s.quotas, quotas.IgnoredResources(), registry, nil, nil, 1, make(chan struct{}))

	start := initializer.New(client, nil, limitRangeFactory{s.informers, &s.limitRanges}, nil, utilfeature.DefaultFeatureGate,
		compatibility.DefaultBuildEffectiveVersion(), make(chan struct{}), nil)
	plugins := admission.NewPlugins()
	podsecurity.Register(plugins)
	security, err := plugins.InitPlugin(podsecurity.PluginName, nil, start)
	if err != nil {
		return nil, err
	}
	s.podSecurity = security.(admission.ValidationInterface)
	for _, plugin := range []admission.Interface{s.limitRanger, s.priority} {
		start.Initialize(plugin)
		if err := admission.ValidateInitialization(plugin); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// load puts the objects of a world where the plug-ins look for them.
func (s *apiServer) load(namespaces []corev1.Namespace, limitRanges []*corev1.LimitRange) {
	known := make([]any, len(namespaces))
	s.ending = map[string]bool{}
	for i := range namespaces {
		known[i] = &namespaces[i]
		s.ending[namespaces[i].Name] = namespaces[i].DeletionTimestamp != nil || namespaces[i].Status.Phase == corev1.NamespaceTerminating
	}
	if err := s.informers.Core().V1().Namespaces().Informer().(cache.SharedIndexInformer).GetIndexer().Replace(known, ""); err != nil {
		panic(err)
	}
	s.limitRanges = limitRanges
}

// refusal is an answer of the API server other than "created". Asking again helps only when a quota is exceeded.
type refusal struct {
	message string
	passes  bool
}

// create does what the API server does with a posted pod, with these quotas: it returns the pod as stored.
func (s *apiServer) create(posted *corev1.Pod, quotas []corev1.ResourceQuota) (*corev1.Pod, *refusal, error) {
	s.quotas.items = quotas
	if s.ending[posted.Namespace] {
		// What the plug-in NamespaceLifecycle says, which would wait here for caches that nobody fills.
		return nil, &refusal{message: fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", posted.Namespace)}, nil
	}
	pod := asInternal(posted)
	ctx := genericapirequest.WithNamespace(context.Background(), pod.Namespace)
	rest.FillObjectMetaSystemFields(pod)
	attributes := s.attributes(pod)
	if err := s.limitRanger.Admit(ctx, attributes, s.objects); err != nil {
		return refused(err)
	}
	if err := s.priority.Admit(ctx, attributes, s.objects); err != nil {
		return refused(err)
	}
	if err := rest.BeforeCreate(registrypod.Strategy, ctx, pod); err != nil {
		return refused(err)
	}
	if err := s.limitRanger.Validate(ctx, attributes, s.objects); err != nil {
		return refused(err)
	}
	if err := s.podSecurity.Validate(ctx, attributes, s.objects); err != nil {
		return refused(err)
	}
	if err := s.evaluator.Evaluate(s.attributes(pod.DeepCopy())); err != nil {
		return refused(err)
	}
	return asV1(pod), nil, nil
}

// charge asks the quotas alone, for a pod that has passed everything before them.
func (s *apiServer) charge(pod *api.Pod, quotas []corev1.ResourceQuota) (*refusal, error) {
	s.quotas.items = quotas
	if err := s.evaluator.Evaluate(s.attributes(pod.DeepCopy())); err != nil {
		_, said, err := refused(err)
		return said, err
	}
	return nil, nil
}

// usage is what the quota controller counts for a pod that is stored.
func (s *apiServer) usage(pod *api.Pod) (corev1.ResourceList, error) { return s.measure.Usage(pod) }

func (s *apiServer) attributes(pod *api.Pod) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, api.Kind("Pod").WithVersion("v1"), pod.Namespace, pod.Name,
		api.Resource("pods").WithVersion("v1"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{})
}

func refused(err error) (*corev1.Pod, *refusal, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, nil, err
	}
	message := status.Status().Message
	return nil, &refusal{message, strings.Contains(message, "exceeded quota")}, nil
}
