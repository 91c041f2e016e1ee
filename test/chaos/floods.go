package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Namespaces whose creates a policy denies after the allocator has responded: each create
// leaves a grant in the journal. Creates in the namespace of the load must succeed all
// the same.

// flood is the fault.
const flood = "flood"

const (
	floodNamespaces = 5
	floodClients    = 4 // of each of these namespaces
)

func floodNamespace(i int) string { return fmt.Sprintf("flood-%d", i) }

// prepareFloods creates the namespaces, a pool in each, and the policy.
func prepareFloods(ctx context.Context, c client.Client) error {
	meta := metav1.ObjectMeta{Name: "floods"}
	fail, denies := admissionregistrationv1.Fail, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"ipallocations"}},
	}
	err := errors.Join(
		c.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: floodLabels},
				ResourceRules:  []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "refused by a policy"}},
		}}),
		c.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: denies,
		}}))
	for i := range floodNamespaces {
		err = errors.Join(err,
			c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floodNamespace(i)}}),
			c.Create(ctx, &v1alpha1.NetworkPool{
				ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: floodNamespace(i)},
				Spec:       v1alpha1.NetworkPoolSpec{CIDR: fmt.Sprintf("10.0.%d.0/19", 32*i), RoutingDomain: "floods"},
			}))
	}
	return err
}

// floodLabels select the creates that the policy denies.
var floodLabels = map[string]string{"chaos": flood}

// toJournal floods the journal until it is undone. A create that the API server admits
// before it has compiled the policy is deleted.
func (a *adversary) toJournal() harm {
	var clients sync.WaitGroup
	stop := func() {}
	return harm{
		victim: "the journal",
		do: func(ctx context.Context) error {
			ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
			for i := range floodNamespaces * floodClients {
				clients.Go(func() {
					for ctx.Err() == nil {
						claim := &v1alpha1.IPAllocation{
							ObjectMeta: metav1.ObjectMeta{GenerateName: "f-", Namespace: floodNamespace(i % floodNamespaces), Labels: floodLabels},
							Spec: v1alpha1.IPAllocationSpec{
								PoolRef: v1alpha1.LocalObjectReference{Name: "pool"}, Type: v1alpha1.TypeNodes, Count: new(int32(1)),
								TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "chaos", Namespace: namespace},
							},
						}
						if a.client.Create(ctx, claim) == nil {
							_ = a.client.Delete(context.WithoutCancel(ctx), claim)
						}
					}
				})
			}
			return nil
		},
		undo: func(context.Context) error {
			stop()
			clients.Wait()
			return nil
		},
	}
}
