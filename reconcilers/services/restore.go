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

	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// A restore creates Services and ProxyVIPs with other UIDs, without status, in any order:
//
//	ProxyVIP first   the webhooks remove the Service's UID from the ProxyVIP, which waits for a Service of the name for the grace period
//	Service first    annotations of the Service have the addresses, and the earlier UID of the Service: the new ProxyVIP requests the addresses
//	both             the Service takes over the ProxyVIP
//
// A Service that stays while the ProxyVIP is lost requests the recorded addresses, too.
//
// A ProxyVIP with the UID of a Service was made for, or taken over by, the Service with
// the UID, and is deleted with the Service.

// addressAnnotations returns the annotations that record the addresses of a Service:
// annotation -> value, none without addresses.
func addressAnnotations(s *corev1.Service, addresses []corev1.LoadBalancerIngress) map[string]string {
	if len(addresses) == 0 {
		return nil
	}
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.IP
	}
	return map[string]string{v1alpha1.AnnotationServiceUID: string(s.UID), v1alpha1.AnnotationVIPAddresses: strings.Join(texts, ",")}
}

// recordAddresses writes the addresses of a Service into annotations of the Service, so
// that a backup contains them; no addresses remove the annotations. Only the status is
// guaranteed: if a policy or a missing right denies the annotations, the Service keeps
// the addresses.
func (r *reconciler) recordAddresses(ctx context.Context, s *corev1.Service, addresses []corev1.LoadBalancerIngress) error {
	after := s.DeepCopy()
	delete(after.Annotations, v1alpha1.AnnotationServiceUID)
	delete(after.Annotations, v1alpha1.AnnotationVIPAddresses)
	after.Annotations = mergeMaps(after.Annotations, addressAnnotations(s, addresses))
	if maps.Equal(s.Annotations, after.Annotations) {
		return nil
	}
	err := r.client.Patch(ctx, after, client.MergeFrom(s))
	switch {
	case err == nil:
		s.Annotations, s.ResourceVersion = after.Annotations, after.ResourceVersion
	case isDenial(err):
		err = nil
	}
	return write.IgnoreStale(ctx, r.live, s, err)
}

// requestsRecorded reports whether a Service was restored and has no ProxyVIP since: the
// ProxyVIP requests the recorded addresses.
func requestsRecorded(s *corev1.Service) bool {
	return s.Annotations[v1alpha1.AnnotationServiceUID] != string(s.UID) && len(recordedAddresses(s, nil)) > 0
}

// recordedAddresses returns the addresses that a Service had before the Service or the
// ProxyVIP was lost: field of the ProxyVIP's spec -> address. A Service with
// spec.loadBalancerIP has none. A Service that has changed the family has none.
func recordedAddresses(s *corev1.Service, spec map[string]any) map[string]any {
	if s.Annotations[v1alpha1.AnnotationServiceUID] == "" || s.Spec.LoadBalancerIP != "" {
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
		fields[field] = novaedge.FormatAddress(a)
	}
	return fields
}

// withAddresses returns a spec with these addresses.
func withAddresses(spec, addresses map[string]any) map[string]any {
	named := maps.Clone(spec)
	maps.Copy(named, addresses)
	return named
}

// showsAddressesOf reports whether the status of a Service has the addresses of a
// ProxyVIP: the ProxyVIP was made for the Service, and lost the marks since.
func showsAddressesOf(s *corev1.Service, vip *unstructured.Unstructured) bool {
	v, err := toTyped(vip)
	if err != nil {
		return false
	}
	addresses := ingressOf(v)
	return len(addresses) > 0 && sameIPs(s.Status.LoadBalancer.Ingress, addresses)
}

// isRestored reports whether a ProxyVIP waits for the Service in its name: since the
// restore no Service has taken over the ProxyVIP.
func isRestored(vip *unstructured.Unstructured) bool {
	return vip.GetAnnotations()[v1alpha1.AnnotationServiceUID] == ""
}

// orphans records since when ProxyVIPs wait for their Services, by the clock of this
// process. The zero value is ready.
type orphans struct {
	mu    sync.Mutex
	since map[types.NamespacedName]orphan // Service ->
}

type orphan struct {
	vip   types.UID
	since time.Time
}

// waitFor returns for how long a ProxyVIP still waits for a Service, at most the grace
// period.
func (o *orphans) waitFor(service types.NamespacedName, vip types.UID, now time.Time, grace time.Duration) time.Duration {
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

// vipLabels returns the labels of the ProxyVIP of a Service.
func vipLabels(s types.NamespacedName) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByServices, v1alpha1.LabelServiceNamespace: s.Namespace, v1alpha1.LabelServiceName: s.Name,
	}
}

// isManaged reports whether a ProxyVIP was made for the Service in its name. One mark is
// enough; the reconciler restores missing marks.
func isManaged(vip *unstructured.Unstructured) bool {
	_, marked := vip.GetAnnotations()[v1alpha1.AnnotationServiceUID]
	service, named := serviceOfVIP(vip.GetName())
	return named && (marked || slices.ContainsFunc(slices.Collect(maps.Keys(vipLabels(service))), func(label string) bool {
		return vip.GetLabels()[label] == vipLabels(service)[label]
	}))
}
