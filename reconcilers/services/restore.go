package services

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
)

// A restore brings Services and ProxyVIPs back under other UIDs, without status, in any order.
//
//	ProxyVIP first   the webhooks take the UID of its Service off: it is nobody's, and waits for the Service of its name for the grace period
//	Service first    it carries the addresses that it had, and the UID that it had them under: its new ProxyVIP asks for these
//	both             the Service takes the ProxyVIP of its name over
//
// A ProxyVIP that names the UID of a Service was made, or taken over, for that very Service, and goes with it.

// recordOf is what a Service says that it has: annotation -> value. Without addresses it says nothing.
func recordOf(s *corev1.Service, addresses []corev1.LoadBalancerIngress) map[string]string {
	if len(addresses) == 0 {
		return nil
	}
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.IP
	}
	return map[string]string{v1alpha1.AnnotationServiceUID: string(s.UID), v1alpha1.AnnotationVIPAddresses: strings.Join(texts, ",")}
}

// recordAddresses has a Service carry its addresses, so that a backup does, or no longer. Only the status is promised: where the write is refused, by a policy
// or for want of a right, the Service has its addresses all the same.
func (r *reconciler) recordAddresses(ctx context.Context, s *corev1.Service, addresses []corev1.LoadBalancerIngress) error {
	after := s.DeepCopy()
	delete(after.Annotations, v1alpha1.AnnotationServiceUID)
	delete(after.Annotations, v1alpha1.AnnotationVIPAddresses)
	after.Annotations = merged(after.Annotations, recordOf(s, addresses))
	if maps.Equal(s.Annotations, after.Annotations) {
		return nil
	}
	err := r.client.Patch(ctx, after, client.MergeFrom(s))
	switch {
	case err == nil:
		s.Annotations, s.ResourceVersion = after.Annotations, after.ResourceVersion
	case isRefusal(err):
		err = nil
	}
	return overtaken.Ignore(ctx, r.live, s, err)
}

// recorded is the addresses that a Service had before it was restored: field of the spec of its ProxyVIP -> address. What the Service asks for itself, and
// families that it does not have, do not count.
func recorded(s *corev1.Service, spec map[string]any) map[string]any {
	if was := s.Annotations[v1alpha1.AnnotationServiceUID]; was == "" || was == string(s.UID) || s.Spec.LoadBalancerIP != "" {
		return nil
	}
	fields := map[string]any{}
	for _, text := range strings.Split(s.Annotations[v1alpha1.AnnotationVIPAddresses], ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil
		}
		field := "address"
		if a.Is6() {
			field = "ipv6Address"
		}
		if value, has := spec[field]; has && value == nil {
			return nil // the Service is of another family by now
		}
		fields[field] = novaedge.Text(a)
	}
	return fields
}

// withAddresses is a spec that names these addresses.
func withAddresses(spec, addresses map[string]any) map[string]any {
	named := maps.Clone(spec)
	maps.Copy(named, addresses)
	return named
}

// showsVIP tells whether the status of a Service has the addresses of a ProxyVIP: that was its own before its marks were taken off.
func showsVIP(s *corev1.Service, vip *unstructured.Unstructured) bool {
	v, err := typed(vip)
	if err != nil {
		return false
	}
	addresses := ingress(v)
	return len(addresses) > 0 && sameIPs(s.Status.LoadBalancer.Ingress, addresses)
}

// isRestored tells whether a ProxyVIP waits for the Service of its name: it was made for none that was there since.
func isRestored(vip *unstructured.Unstructured) bool {
	return vip.GetAnnotations()[v1alpha1.AnnotationServiceUID] == ""
}

// orphans remembers since when ProxyVIPs wait for their Services, by the clock of this process. The zero value is ready.
type orphans struct {
	mu    sync.Mutex
	since map[types.NamespacedName]orphan // Service ->
}

type orphan struct {
	vip   types.UID
	since time.Time
}

// wait is for how long a ProxyVIP still waits for its Service, at most for the grace period.
func (o *orphans) wait(service types.NamespacedName, vip types.UID, now time.Time, grace time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[types.NamespacedName]orphan{}
	}
	if o.since[service].vip != vip {
		o.since[service] = orphan{vip, now}
	}
	return o.since[service].since.Add(grace).Sub(now)
}

func (o *orphans) forget(service types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.since, service)
}

// marks are the labels of the ProxyVIP of a Service.
func marks(s types.NamespacedName) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByServices, v1alpha1.LabelServiceNamespace: s.Namespace, v1alpha1.LabelServiceName: s.Name,
	}
}

// ours tells whether a ProxyVIP was made for the Service of its name. Any mark will do: those that were taken off are put back.
func ours(vip *unstructured.Unstructured) bool {
	_, marked := vip.GetAnnotations()[v1alpha1.AnnotationServiceUID]
	service, named := serviceNamed(vip.GetName())
	return named && (marked || slices.ContainsFunc(slices.Collect(maps.Keys(marks(service))), func(label string) bool {
		return vip.GetLabels()[label] == marks(service)[label]
	}))
}
