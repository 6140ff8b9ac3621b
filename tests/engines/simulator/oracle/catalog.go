package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// limitRangeFactory is an informer factory whose LimitRanges come in the order of a case. The API server's
// own informers list them in random order, and the order can change the verdict.
type limitRangeFactory struct {
	informers.SharedInformerFactory
	items *[]*corev1.LimitRange
}

type limitRangeCore struct {
	coreinformers.Interface
	factory limitRangeFactory
}

type limitRangeV1 struct {
	corev1informers.Interface
	factory limitRangeFactory
}

type limitRangeInformer struct {
	corev1informers.LimitRangeInformer
	items *[]*corev1.LimitRange
}

type limitRangeLister struct {
	corev1listers.LimitRangeLister
	corev1listers.LimitRangeNamespaceLister
	items *[]*corev1.LimitRange
}

func (f limitRangeFactory) Core() coreinformers.Interface {
	return limitRangeCore{f.SharedInformerFactory.Core(), f}
}

func (c limitRangeCore) V1() corev1informers.Interface {
	return limitRangeV1{c.Interface.V1(), c.factory}
}

func (v limitRangeV1) LimitRanges() corev1informers.LimitRangeInformer {
	return limitRangeInformer{v.Interface.LimitRanges(), v.factory.items}
}

func (i limitRangeInformer) Lister() corev1listers.LimitRangeLister {
	return limitRangeLister{items: i.items}
}

func (l limitRangeLister) LimitRanges(string) corev1listers.LimitRangeNamespaceLister { return l }

func (l limitRangeLister) List(labels.Selector) ([]*corev1.LimitRange, error) { return *l.items, nil }

// quotaList hands the quotas of a case to the quota evaluator and keeps what the evaluator writes back.
type quotaList struct {
	items []corev1.ResourceQuota
}

func (q *quotaList) GetQuotas(string) ([]corev1.ResourceQuota, error) {
	copies := make([]corev1.ResourceQuota, len(q.items))
	for i := range q.items {
		copies[i] = *q.items[i].DeepCopy()
	}
	return copies, nil
}

func (q *quotaList) UpdateQuotaStatus(updated *corev1.ResourceQuota) error {
	for i := range q.items {
		if q.items[i].Name == updated.Name {
			q.items[i] = *updated.DeepCopy()
		}
	}
	return nil
}
