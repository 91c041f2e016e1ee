package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// One client creates and deletes Services of type LoadBalancer, whose ProxyVIPs the
// managers create. It loses Services, ProxyVIPs or both, and restores them from a backup
// in any order. No other client creates Services, so the restored Services must have
// their earlier addresses.

// servicePool is the ProxyIPPool of the Services. No other pool has its addresses.
const servicePool = "services"

var serviceNetworks = []string{"10.0.16.0/24", "fd00:c4a1::/120"}

const (
	// keepServices is how many Services the client keeps at most.
	keepServices = 8
	// serviceLimit bounds the repetitions of a request for a Service or its ProxyVIP
	// while the API server fails, and the wait for a Service's addresses.
	serviceLimit = time.Minute
)

// servicesDone counts what was done to Services. unsettled are the restores whose result
// was not seen within serviceLimit.
type servicesDone struct{ made, lost, vipFirst, serviceFirst, serviceOnly, vipOnly, unsettled int }

// vipOfService returns the name of the ProxyVIP of a Service.
func vipOfService(name string) string { return "svc-" + namespace + "." + name }

// madeByManager reports whether a manager created an object for a Service: it carries no
// call, and its name is that of a known Service's ProxyVIP.
func (h *history) madeByManager(o *object) bool {
	name, is := strings.CutPrefix(o.name, vipOfService(""))
	_, known := h.services[name]
	return known && is && o.call == ""
}

// tellServices changes what the history has of Services.
func (h *history) tellServices(change func(live map[string]bool, done *servicesDone)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.services, &h.servicesDone)
}

// stepService does one thing to a Service.
func (w *worker) stepService(ctx context.Context) {
	switch p := w.random.IntN(10); {
	case len(w.services) == 0 || p < 4 && len(w.services) < keepServices:
		w.createService(ctx)
	case p < 6:
		w.deleteService(ctx)
	case p < 7:
		w.loseVIP(ctx, w.services[w.random.IntN(len(w.services))])
	default:
		w.restoreServices(ctx)
	}
}

// persist repeats a request until the API server processes it, within serviceLimit, and
// returns the last error. A denial is an answer.
func persist(ctx context.Context, send func(context.Context) error) (err error) {
	for limit := time.Now().Add(serviceLimit); time.Now().Before(limit); time.Sleep(failedPause) {
		if err = send(ctx); err == nil || refused(err) {
			return err
		}
	}
	return err
}

// createService creates a Service, and waits for its addresses, so that no restore begins
// meanwhile.
func (w *worker) createService(ctx context.Context) {
	w.n++
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("s%d-%d", w.id, w.n), Annotations: map[string]string{
			novaedgev1.AnnotationVIPMode: string(novaedgev1.ModeBGP), novaedgev1.AnnotationAddressPool: servicePool,
		}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	if w.random.IntN(3) == 0 {
		s.Annotations[novaedgev1.AnnotationAddressFamily] = string(novaedgev1.FamilyDual)
	}
	w.history.tellServices(func(live map[string]bool, done *servicesDone) { live[s.Name] = true; done.made++ })
	w.storeService(ctx, s)
	w.services = append(w.services, s.Name)
	w.awaitAddresses(ctx, s.Name)
}

// storeService creates a Service. Where etcd fails while the API server allocates a
// clusterIP, the answer is 422 as for an invalid Service.
func (w *worker) storeService(ctx context.Context, s *corev1.Service) {
	err := persist(ctx, func(ctx context.Context) error {
		err := w.client.Create(ctx, s.DeepCopy())
		if apierrors.IsInvalid(err) {
			return errors.New(err.Error())
		}
		return err
	})
	if client.IgnoreAlreadyExists(err) != nil {
		w.history.blame("Service %s cannot be created: %v", s.Name, err)
	}
}

func (w *worker) deleteService(ctx context.Context) {
	i := w.random.IntN(len(w.services))
	name := w.services[i]
	err := persist(ctx, func(ctx context.Context) error {
		return w.client.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	})
	if client.IgnoreNotFound(err) == nil {
		w.services = slices.Delete(w.services, i, i+1)
		w.history.tellServices(func(live map[string]bool, _ *servicesDone) { live[name] = false })
	}
}

// settledService reads a Service and its ProxyVIP, and reports whether the managers are
// done with both.
func (w *worker) settledService(ctx context.Context, name string) (s *corev1.Service, vip *novaedgev1.ProxyVIP, yes bool) {
	s, vip = &corev1.Service{}, &novaedgev1.ProxyVIP{}
	if w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s) != nil || w.client.Get(ctx, client.ObjectKey{Name: vipOfService(name)}, vip) != nil {
		return nil, nil, false
	}
	owned := addressesOf(vip)
	return s, vip, has(s, owned) && s.DeletionTimestamp == nil && s.Annotations[novaedgev1.AnnotationServiceUID] == string(s.UID) &&
		s.Annotations[novaedgev1.AnnotationVIPAddresses] == recordText(owned) &&
		vip.DeletionTimestamp == nil && vip.Annotations[novaedgev1.AnnotationServiceUID] == string(s.UID)
}

// awaitAddresses returns the addresses of a Service as soon as the managers are done with
// it; none if they are not within serviceLimit.
func (w *worker) awaitAddresses(ctx context.Context, name string) addresses {
	for limit := time.Now().Add(serviceLimit); time.Now().Before(limit); pause(ctx) {
		if _, vip, yes := w.settledService(ctx, name); yes {
			return addressesOf(vip)
		}
	}
	return addresses{}
}

// allSettled reports whether no stored Service waits for an address, which may be any
// that is free.
func (w *worker) allSettled(ctx context.Context) bool {
	var services corev1.ServiceList
	if w.client.List(ctx, &services, client.InNamespace(namespace)) != nil {
		return false
	}
	return !slices.ContainsFunc(services.Items, func(s corev1.Service) bool {
		_, _, yes := w.settledService(ctx, s.Name)
		return s.Spec.Type == corev1.ServiceTypeLoadBalancer && !yes
	})
}

// savedService is what a backup has of a Service: saved, and without what the API server
// assigns.
func savedService(s *corev1.Service) *corev1.Service {
	b := saved(s).(*corev1.Service)
	b.Status = corev1.ServiceStatus{}
	b.Spec.ClusterIP, b.Spec.ClusterIPs, b.Spec.HealthCheckNodePort = "", nil, 0
	for i := range b.Spec.Ports {
		b.Spec.Ports[i].NodePort = 0
	}
	return b
}

// loseVIP deletes the ProxyVIP of a Service that stays, and may restore it. The Service
// gets another one, with any addresses.
func (w *worker) loseVIP(ctx context.Context, name string) {
	l := w.backUp(ctx, name)
	if l == nil {
		return
	}
	w.deleteStored(ctx, l.stored[1])
	if w.random.IntN(2) == 0 {
		w.restoreVIP(ctx, l.vip)
	}
	w.history.tellServices(func(_ map[string]bool, done *servicesDone) { done.vipOnly++ })
	w.awaitRestored(ctx, name)
}

// restoreServices loses up to four Services with their ProxyVIPs, and restores them in
// any order: each must have the same addresses as before. Several are lost at a time
// because the free addresses of one alone are most likely the next ones that the pool
// allocates.
func (w *worker) restoreServices(ctx context.Context) {
	if !w.allSettled(ctx) {
		return
	}
	var all []*lostService
	for _, i := range w.random.Perm(len(w.services))[:min(len(w.services), 1+w.random.IntN(4))] {
		if l := w.loseService(ctx, w.services[i]); l != nil {
			all = append(all, l)
		}
	}
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, l := range all {
		w.restoreService(ctx, l)
	}
	for _, l := range all {
		if has := w.awaitRestored(ctx, l.service.Name); has.some() && has != l.had {
			w.history.blame("Service %s had %s before it was lost, and has %s since it was restored, while no other was created", l.service.Name, l.had, has)
		}
	}
}

// awaitRestored is awaitAddresses, and counts a Service that gets none.
func (w *worker) awaitRestored(ctx context.Context, name string) addresses {
	has := w.awaitAddresses(ctx, name)
	if !has.some() {
		w.history.tellServices(func(_ map[string]bool, done *servicesDone) { done.unsettled++ })
	}
	return has
}

// lostService is the backup of a Service and its ProxyVIP.
type lostService struct {
	stored  []client.Object // Service and ProxyVIP
	had     addresses
	service *corev1.Service
	vip     *novaedgev1.ProxyVIP
}

// backUp returns the backup of a Service; nil if the managers are not done with the
// Service.
func (w *worker) backUp(ctx context.Context, name string) *lostService {
	s, vip, yes := w.settledService(ctx, name)
	if !yes {
		return nil
	}
	return &lostService{[]client.Object{s, vip}, addressesOf(vip), savedService(s), saved(vip).(*novaedgev1.ProxyVIP)}
}

// deleteStored deletes this very object.
func (w *worker) deleteStored(ctx context.Context, o client.Object) {
	uid := client.Preconditions{UID: ptr.To(o.GetUID())}
	_ = persist(ctx, func(ctx context.Context) error { return w.client.Delete(ctx, o.DeepCopyObject().(client.Object), uid) })
}

// loseService deletes a Service, and perhaps its ProxyVIP before the managers do, and
// returns the backup of both.
func (w *worker) loseService(ctx context.Context, name string) *lostService {
	l := w.backUp(ctx, name)
	if l == nil {
		return nil
	}
	w.deleteStored(ctx, l.stored[0])
	vip := l.stored[1]
	if w.random.IntN(2) == 0 {
		w.deleteStored(ctx, vip)
	}
	if w.random.IntN(3) > 0 { // else the restore may come while the ProxyVIP is still stored
		for limit := time.Now().Add(goneWithin); time.Now().Before(limit); pause(ctx) {
			if apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(vip), &novaedgev1.ProxyVIP{})) {
				break
			}
		}
	}
	w.history.tellServices(func(_ map[string]bool, done *servicesDone) { done.lost++ })
	return l
}

// restoreService creates a Service from its backup, and perhaps its ProxyVIP before or
// after it.
func (w *worker) restoreService(ctx context.Context, l *lostService) {
	order := w.random.IntN(3)
	if order == 2 {
		w.restoreVIP(ctx, l.vip)
	}
	w.storeService(ctx, l.service)
	if order == 1 {
		w.restoreVIP(ctx, l.vip)
	}
	w.history.tellServices(func(_ map[string]bool, done *servicesDone) {
		*[]*int{&done.serviceOnly, &done.serviceFirst, &done.vipFirst}[order]++
	})
}

// restoreVIP creates the ProxyVIP of a Service from its backup.
func (w *worker) restoreVIP(ctx context.Context, backup *novaedgev1.ProxyVIP) {
	w.restoring = true
	defer func() { w.restoring = false }()
	_ = persist(ctx, func(ctx context.Context) error {
		o := backup.DeepCopy()
		return w.call(ctx, o, false, func(ctx context.Context) error { return w.client.Create(ctx, o) }).err
	})
}

// recordText is the addresses as the manager records them on a Service.
func recordText(a addresses) string {
	var texts []string
	for at := range a.each {
		texts = append(texts, at.String())
	}
	return strings.Join(texts, ",")
}

// has reports whether a Service shows these addresses, and no others.
func has(s *corev1.Service, a addresses) bool {
	var shown []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		shown = append(shown, i.IP)
	}
	return a.some() && strings.Join(shown, ",") == recordText(a)
}

// serviceDifferences are those between the Services that are stored, their ProxyVIPs and
// what the history knows.
func (r *run) serviceDifferences(ctx context.Context, owned map[netip.Addr]int) (found []string) {
	var services corev1.ServiceList
	var vips novaedgev1.ProxyVIPList
	var pool novaedgev1.ProxyIPPool
	for _, err := range []error{
		r.client.List(ctx, &services, client.InNamespace(namespace)), r.client.List(ctx, &vips), r.client.Get(ctx, client.ObjectKey{Name: servicePool}, &pool),
	} {
		if err != nil {
			return []string{err.Error()}
		}
	}
	stored := map[string]*corev1.Service{}
	for i := range services.Items {
		stored[vipOfService(services.Items[i].Name)] = &services.Items[i]
	}
	of := map[string]*novaedgev1.ProxyVIP{}
	for i := range vips.Items {
		v := &vips.Items[i]
		of[v.Name] = v
		if strings.HasPrefix(v.Name, vipOfService("")) && stored[v.Name] == nil {
			found = append(found, fmt.Sprintf("ProxyVIP %s has no Service", v.Name))
		}
	}
	want := int64(0)
	for at := range owned {
		if slices.ContainsFunc(serviceNetworks, func(n string) bool { return netip.MustParsePrefix(n).Contains(at) }) {
			want++
		}
	}
	if pool.Status.Allocated != want {
		found = append(found, fmt.Sprintf("pool %s counts %d allocated addresses, the objects of all kinds hold %d", servicePool, pool.Status.Allocated, want))
	}
	r.history.tellServices(func(live map[string]bool, _ *servicesDone) {
		for name, live := range live {
			s, v := stored[vipOfService(name)], of[vipOfService(name)]
			switch {
			case !live && s != nil:
				found = append(found, fmt.Sprintf("Service %s was deleted, and is stored", name))
			case !live:
			case s == nil:
				found = append(found, fmt.Sprintf("Service %s is not stored", name))
			case v == nil:
				found = append(found, fmt.Sprintf("Service %s has no ProxyVIP", name))
			case !has(s, addressesOf(v)):
				found = append(found, fmt.Sprintf("Service %s shows %v, and its ProxyVIP has %s", name, s.Status.LoadBalancer.Ingress, addressesOf(v)))
			case v.Annotations[novaedgev1.AnnotationServiceUID] != string(s.UID):
				found = append(found, fmt.Sprintf("ProxyVIP %s is of another Service of that name", v.Name))
			}
		}
	})
	return found
}
