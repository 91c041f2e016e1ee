package novaedge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// backup returns an object as a backup restores it: without the fields that the API
// server sets, owners, finalizers and status.
func backup(o client.Object) client.Object {
	c := o.DeepCopyObject().(client.Object)
	c.SetUID("")
	c.SetResourceVersion("")
	c.SetGeneration(0)
	c.SetManagedFields(nil)
	c.SetOwnerReferences(nil)
	c.SetFinalizers(nil)
	c.SetCreationTimestamp(corev1.Namespace{}.CreationTimestamp)
	switch o := c.(type) {
	case *corev1.Service:
		o.Status = corev1.ServiceStatus{}
		o.Spec.ClusterIP, o.Spec.ClusterIPs, o.Spec.HealthCheckNodePort = "", nil, 0
		for i := range o.Spec.Ports {
			o.Spec.Ports[i].NodePort = 0
		}
	case *v1alpha1.ProxyVIP:
		o.Status = v1alpha1.ProxyVIPStatus{}
	case *v1alpha1.ProxyIPPool:
		o.Status = v1alpha1.ProxyIPPoolStatus{}
	}
	return c
}

func TestRestoredServices_HaveTheirAddressesInEveryOrder(t *testing.T) {
	for i, order := range []string{"pool vips services", "pool services vips", "vips pool services", "vips services pool", "services pool vips", "services vips pool"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			p := pool("restore-"+ns, fmt.Sprintf("10.71.%d.0/28", i))
			suite.Create(t, admin, p)
			named := func(name string, annotations ...string) *corev1.Service {
				return service(ns, name, append([]string{"vip-mode", "L2ARP", "address-pool", p.Name}, annotations...)...)
			}
			first := named("first") // has the address that a new ProxyVIP gets
			all := []*corev1.Service{named("a"), named("b"), named("c")}
			suite.Create(t, admin, first)
			withAddress(t, first)
			had, parts := map[string]string{}, map[string][]client.Object{}
			for _, s := range all {
				suite.Create(t, admin, s)
				withAddress(t, s)
				v := vipFor(s)
				bound(t, v)
				had[s.Name] = s.Status.LoadBalancer.Ingress[0].IP
				suite.AwaitObject(t, admin, s, func(s *corev1.Service) string {
					return cmp.Diff([]string{had[s.Name], string(s.UID)}, []string{s.Annotations[v1alpha1.AnnotationVIPAddresses], s.Annotations[v1alpha1.AnnotationServiceUID]})
				})
				parts["vips"] = append(parts["vips"], backup(suite.Read(t, admin, v)))
				parts["services"] = append(parts["services"], backup(suite.Read(t, admin, s)))
			}
			parts["pool"] = []client.Object{backup(suite.Read(t, admin, p))}
			for _, s := range append(all, first) {
				suite.Delete(t, admin, s)
				suite.AwaitGone(t, admin, vipFor(s))
			}
			suite.Delete(t, admin, p)

			for _, part := range strings.Fields(order) {
				for _, o := range parts[part] {
					if err := admin.Create(t.Context(), o); err != nil && (part != "vips" || !apierrors.IsAlreadyExists(err)) {
						t.Fatal(err)
					}
				}
				for _, s := range all { // by then the manager has seen it
					v := vipFor(s)
					switch part {
					case "services":
						suite.Eventually(t, suite.Soon, unlessFound(v))
					case "vips":
						suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
							if len(v.Status.Conditions) == 0 {
								return "it has no status"
							}
							return ""
						})
					}
				}
			}
			for _, s := range all {
				shows(t, s, had[s.Name])
				v := vipFor(s)
				suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
					return cmp.Diff([]string{had[s.Name] + "/32", string(s.UID)}, []string{v.Spec.Address, v.Annotations[v1alpha1.AnnotationServiceUID]})
				})
			}
			late := named("late")
			suite.Create(t, admin, late)
			shows(t, late, fmt.Sprintf("10.71.%d.1", i))
			for _, s := range append(all, late) {
				suite.Delete(t, admin, s)
				suite.AwaitGone(t, admin, vipFor(s)) // at once: it was taken over
			}
			suite.Delete(t, admin, p)
		})
	}
}

// A copied Service carries the annotations that the manager wrote to the original, and
// may request another pool.
func TestRestoredServices_GetOtherAddressesWhereTheirsCannotBeHad(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, pool("copy-"+ns, "10.72.0.0/28"))
	s := service(ns, "web", "vip-mode", "L2ARP", "address-pool", "copy-"+ns)
	suite.CreateForTest(t, admin, s)
	shows(t, s, "10.72.0.1")
	suite.AwaitObject(t, admin, s, func(s *corev1.Service) string {
		return cmp.Diff("10.72.0.1", s.Annotations[v1alpha1.AnnotationVIPAddresses])
	})
	twin := backup(s).(*corev1.Service)
	twin.Name = "twin"
	suite.CreateForTest(t, admin, twin)
	told(t, twin, "IPAllocationFailed", "the addresses 10.72.0.1 that the Service had cannot be restored, and it gets others")
	shows(t, twin, "10.72.0.2")
	moved := backup(s).(*corev1.Service) // before its pool, which does not have the address
	moved.Name, moved.Annotations[v1alpha1.AnnotationAddressPool] = "moved", "other-"+ns
	suite.CreateForTest(t, admin, moved)
	suite.Eventually(t, suite.Soon, unlessFound(vipFor(moved)))
	suite.CreateForTest(t, admin, pool("other-"+ns, "10.72.1.0/28"))
	shows(t, moved, "10.72.1.1")
	shows(t, s, "10.72.0.1")
}

// A mutating webhook of another program, which the API server calls before that of the
// allocator, denies the ProxyVIP for some time. The Service waits, since other addresses
// would stay for good.
func TestRestoredServices_WaitWhileAnotherWebhookDenies(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, pool("denied-"+ns, "10.76.0.0/28"))
	operations := suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "proxyvips", v1alpha1.GroupVersion.Group)
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ns}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name:                    "others.example.com",
		ClientConfig:            suite.DenyingWebhook(t, 403, func(context.Context) {}),
		Rules:                   []admissionregistrationv1.RuleWithOperations{operations[0].RuleWithOperations},
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "condition", Expression: "object.spec.?address.orValue('').startsWith('10.76.0.4')"}},
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}}}
	suite.CreateForTest(t, admin, hook)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		err := admin.Create(ctx, vip("try-"+ns, "denied-"+ns, at("10.76.0.4/32")), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "refused after a while") {
			return fmt.Errorf("the webhook does not deny yet: %w", err)
		}
		return nil
	})
	web := service(ns, "web", "vip-mode", "BGP", "address-pool", "denied-"+ns)
	web.Annotations[v1alpha1.AnnotationServiceUID], web.Annotations[v1alpha1.AnnotationVIPAddresses] = "that-of-the-backup", "10.76.0.4"
	suite.CreateForTest(t, admin, web)
	told(t, web, "IPAllocationFailed", "refused after a while")
	if err := admin.Delete(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	shows(t, web, "10.76.0.4")
}

// A create that fails after the allocator's response keeps its addresses for the life of
// a grant: at a change of the leader often those of the Service's own ProxyVIP.
func TestRestoredServices_WaitForAddressesOfAFailedCreate(t *testing.T) {
	t.Parallel()
	_, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--shutdown-delay=0s", "--service-vips", "--grant-expiry=45s"}})
	suite.Create(t, c, pool("default", "10.75.0.0/28"))
	operations := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"proxyvips"}},
	}}}
	suite.RegisterWebhook(t, c, "refuses-failed", suite.DenyingWebhook(t, 403, func(context.Context) {}), "object.metadata.name == 'failed'", operations)
	failed := vip("failed", "default", at("10.75.0.4/32"))
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // the API server calls the webhook from some moment on
		err := c.Create(ctx, failed.DeepCopy())
		if err == nil {
			return errors.Join(errors.New("the create is not refused yet"), c.Delete(ctx, failed.DeepCopy()))
		}
		if !strings.Contains(err.Error(), "refused after a while") {
			return err
		}
		return nil
	})
	web := service("default", "web", "vip-mode", "BGP")
	web.Annotations[v1alpha1.AnnotationServiceUID], web.Annotations[v1alpha1.AnnotationVIPAddresses] = "that-of-the-backup", "10.75.0.4"
	suite.Create(t, c, web)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		var events corev1.EventList
		err := c.List(ctx, &events)
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == web.UID && e.Reason == "IPAllocationFailed" && strings.Contains(e.Message, "are not free yet, and are requested again")
		}) {
			return errors.Join(err, errors.New("no event says that the Service waits"))
		}
		return nil
	})
	suite.Eventually(t, time.Minute, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(web), web); err != nil || len(web.Status.LoadBalancer.Ingress) == 0 {
			return errors.Join(err, errors.New("the Service has no address"))
		}
		return nil
	})
	if got := web.Status.LoadBalancer.Ingress[0].IP; got != "10.75.0.4" {
		t.Errorf("the Service has %s, want 10.75.0.4, which it had before", got)
	}
}

// Labels and annotations of a ProxyVIP name its Service. The reconciler recognizes the
// ProxyVIP by its name and any one of these, or by the address in the Service's status,
// and restores the others.
func TestServiceVIP_RemovedMetadataIsRestored(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	p := pool("marks-"+ns, "10.73.0.0/28")
	suite.CreateForTest(t, admin, p)
	s := service(ns, "web", "vip-mode", "L2ARP", "address-pool", p.Name)
	suite.CreateForTest(t, admin, s)
	shows(t, s, "10.73.0.1")
	v := vipFor(s)
	bound(t, v)
	labels := []string{v1alpha1.LabelManagedBy, v1alpha1.LabelServiceName, v1alpha1.LabelServiceNamespace}
	for _, taken := range [][]string{labels[:1], labels[1:2], labels[2:], {v1alpha1.AnnotationServiceUID}, labels, append([]string{v1alpha1.AnnotationServiceUID}, labels...)} {
		was := suite.Read(t, admin, v).UID
		suite.Change(t, admin, v, func(v *v1alpha1.ProxyVIP) {
			for _, mark := range taken {
				delete(v.Labels, mark)
				delete(v.Annotations, mark)
			}
		})
		suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
			return cmp.Diff([]string{"service-lb", "web", ns, string(s.UID), string(was)},
				[]string{v.Labels[labels[0]], v.Labels[labels[1]], v.Labels[labels[2]], v.Annotations[v1alpha1.AnnotationServiceUID], string(v.UID)})
		})
	}
	shows(t, s, "10.73.0.1")
	suite.Change(t, admin, v, func(v *v1alpha1.ProxyVIP) { delete(v.Labels, v1alpha1.LabelManagedBy) })
	suite.Delete(t, admin, s)
	suite.AwaitGone(t, admin, v)
	counts(t, p, 0, 14)
}

// A ProxyVIP restored without webhooks carries the former UID of its Service. A ProxyVIP
// whose Service is not restored is deleted after the grace period.
func TestRestoredServices_OnceTheManagerRunsAgain(t *testing.T) {
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{ManagerArgs: []string{"--shutdown-delay=0s", "--service-vips", "--orphan-grace=3s"}})
	if _, err := s.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := admin
	t.Cleanup(func() { admin = old })
	admin = c
	suite.Create(t, admin, pool("default", "10.74.0.0/28"))
	first, web, gone := service("default", "first", "vip-mode", "BGP"), service("default", "web", "vip-mode", "BGP"), service("default", "gone", "vip-mode", "BGP")
	suite.Create(t, admin, first)
	withAddress(t, first)
	var vips []client.Object
	for i, each := range []*corev1.Service{web, gone} {
		suite.Create(t, admin, each)
		shows(t, each, fmt.Sprintf("10.74.0.%d", 2+i))
		v := vipFor(each)
		bound(t, v)
		vips = append(vips, backup(suite.Read(t, admin, v)))
	}
	for _, each := range []*corev1.Service{web, gone} {
		suite.Delete(t, admin, each)
		suite.AwaitGone(t, admin, vipFor(each))
	}
	stopManagers(t, s)
	again := service("default", "web", "vip-mode", "BGP") // as it was written, without what the manager put there
	vips[1].SetAnnotations(map[string]string{butlerv1.AnnotationOrigin: butlerv1.OriginAuto})
	for _, o := range append([]client.Object{again}, vips...) {
		suite.Create(t, admin, o)
	}
	for _, m := range s.Managers() {
		if err := errors.Join(m.Start(), m.Ready(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	shows(t, again, "10.74.0.2")
	suite.AwaitGone(t, admin, vips[1])
	shows(t, again, "10.74.0.2")
}

// unlessFound returns an error if the object does not exist.
func unlessFound(o client.Object) func(context.Context) error {
	return func(ctx context.Context) error { return admin.Get(ctx, client.ObjectKeyFromObject(o), o) }
}

func stopManagers(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	for _, m := range s.Managers() {
		if err := errors.Join(m.Terminate(), m.Wait(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}
