package novaedge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
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
	"butlerlabs.dev/ipam/test/suite"
)

// service returns a Service of type LoadBalancer with annotations of novaedge.io: name,
// value, name, value.
func service(namespace, name string, annotations ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}}},
	}
	for i := 0; i < len(annotations); i += 2 {
		s.Annotations["novaedge.io/"+annotations[i]] = annotations[i+1]
	}
	return s
}

// shows waits until the status of a Service has these addresses, "" for none.
func shows(t *testing.T, s *corev1.Service, want string) {
	t.Helper()
	suite.AwaitObject(t, admin, s, func(s *corev1.Service) string {
		var got []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			got = append(got, i.IP)
		}
		return cmp.Diff(want, strings.Join(got, " "))
	})
}

// withAddress waits until the status of a Service has an address.
func withAddress(t *testing.T, s *corev1.Service) {
	t.Helper()
	suite.AwaitObject(t, admin, s, func(s *corev1.Service) string {
		if len(s.Status.LoadBalancer.Ingress) == 1 {
			return ""
		}
		return "no address"
	})
}

// vipFor returns the key of the ProxyVIP of a Service, whether or not it exists.
func vipFor(s *corev1.Service) *v1alpha1.ProxyVIP {
	return vip("svc-"+s.Namespace+"."+s.Name, "")
}

// withoutVIP fails the test if a Service has a ProxyVIP.
func withoutVIP(t *testing.T, s *corev1.Service) {
	t.Helper()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(vipFor(s)), vipFor(s)); !apierrors.IsNotFound(err) {
		t.Errorf("%s has a ProxyVIP: %v", s.Name, err)
	}
}

// told waits until an object has an event with this reason and a message that contains
// part.
func told(t *testing.T, o client.Object, reason, part string) {
	t.Helper()
	said := toldOf(t, o, reason)
	suite.AwaitObject(t, admin, o, func(client.Object) string {
		if all := strings.Join(said(), "; "); !strings.Contains(all, part) {
			return fmt.Sprintf("events %s: %q, want %q", reason, all, part)
		}
		return ""
	})
}

// toldOf returns a function that reads the messages of the events of an object with this
// reason.
func toldOf(t *testing.T, o client.Object, reason string) func() []string {
	return func() (said []string) {
		var events corev1.EventList
		if err := admin.List(t.Context(), &events); err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			if e.InvolvedObject.UID == o.GetUID() && e.Reason == reason {
				said = append(said, e.Message)
			}
		}
		return said
	}
}

// Cases S3 to S5, S9, S10, S12 and S14, and all other annotations.
func TestService_GetsAnAddress(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	p, other := pool("default", "10.61.0.0/29", "2001:db8:61::/125"), pool("production-pool", "192.168.61.0/24")
	suite.CreateForTest(t, admin, p, other)
	s := service(ns, "web", "vip-mode", "L2ARP")
	suite.CreateForTest(t, admin, s)
	shows(t, s, "10.61.0.1")
	v := vipFor(s)
	if got, want := bound(t, v), "AddressAllocated: Address 10.61.0.1/32 allocated from pool default"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	want := vip(v.Name, "default", at("10.61.0.1/32"), of(v1alpha1.FamilyIPv4)).Spec
	want.Mode, want.Ports = v1alpha1.ModeL2ARP, []int32{80, 443}
	if diff := cmp.Diff(want, v.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	marks := map[string]string{"novaedge.io/managed-by": "service-lb", "novaedge.io/service-namespace": ns, "novaedge.io/service-name": "web"}
	if diff := cmp.Diff(marks, v.Labels); diff != "" || v.Annotations["novaedge.io/service-uid"] != string(s.UID) || len(v.OwnerReferences) > 0 {
		t.Errorf("its marks: %s%v %v", diff, v.Annotations, v.OwnerReferences)
	}
	told(t, s, "VIPCreated", v.Name)
	counts(t, p, 1, 12)

	t.Run("every annotation", func(t *testing.T) {
		s := service(ns, "bgp", "vip-mode", "BGP", "address-pool", "default", "address-family", "dual", "bfd-enabled", "true",
			"bgp-config", `{"localAS": 65000, "peers": [{"address": "10.0.0.254", "as": 65001}]}`, "ospf-config", `{"area": "0.0.0.0"}`, "node-selector", `{"matchLabels": {"edge": "yes"}}`)
		suite.CreateForTest(t, admin, s)
		shows(t, s, "10.61.0.2 2001:db8:61::1")
		out, _ := suite.Kubectl(t, cluster, "", "get", "proxyvip", vipFor(s).Name, "-o=jsonpath={.spec.bgpConfig} {.spec.ospfConfig} {.spec.nodeSelector} {.spec.bfd}")
		if want := `{"localAS":65000,"peers":[{"address":"10.0.0.254","as":65001}]} {"area":"0.0.0.0"} {"matchLabels":{"edge":"yes"}} {"enabled":true}`; out != want {
			t.Errorf("%s, want %s", out, want)
		}
	})
	t.Run("another pool", func(t *testing.T) {
		s := service(ns, "production", "vip-mode", "L2ARP", "address-pool", other.Name)
		suite.CreateForTest(t, admin, s)
		shows(t, s, "192.168.61.1")
	})
	t.Run("a certain address", func(t *testing.T) {
		s := service(ns, "certain", "vip-mode", "L2ARP")
		s.Spec.LoadBalancerIP = "10.61.0.5"
		suite.CreateForTest(t, admin, s)
		shows(t, s, "10.61.0.5")
	})
	lost := func(t *testing.T, s *corev1.Service) {
		t.Helper()
		v := vipFor(s)
		bound(t, v)
		old, had := v.UID, v.Spec.Address
		if err := admin.Delete(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
			if v.UID == old {
				return "it is still the old one"
			}
			return cmp.Diff(had, v.Spec.Address)
		})
		shows(t, s, strings.TrimSuffix(had, "/32"))
	}
	t.Run("the ProxyVIP is deleted", func(t *testing.T) {
		lower := service(ns, "lower", "vip-mode", "L2ARP")
		suite.Create(t, admin, lower)
		withAddress(t, lower)
		recent := service(ns, "recent", "vip-mode", "L2ARP")
		suite.CreateForTest(t, admin, recent)
		withAddress(t, recent)
		suite.Delete(t, admin, lower)
		suite.AwaitGone(t, admin, vipFor(lower))
		lost(t, recent) // and not the lower address, which the pool would allocate next
	})
	t.Run("the ProxyVIP is deleted and the pool assigns no addresses", func(t *testing.T) {
		if err := suite.TryChange(t, admin, p, func(p *v1alpha1.ProxyIPPool) { p.Spec.AutoAssign = false }); err != nil {
			t.Fatal(err)
		}
		lost(t, s)
		if err := suite.TryChange(t, admin, p, func(p *v1alpha1.ProxyIPPool) { p.Spec.AutoAssign = true }); err != nil {
			t.Fatal(err)
		}
	})
}

// Cases S1, S2, S6, S11 and S15: such a Service gets no address; an event names the
// invalid field.
func TestService_WithoutARequestOrInvalid(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, pool("sensible", "10.62.0.0/24"))
	silent := service(ns, "silent")
	inside := service(ns, "inside", "vip-mode", "L2ARP", "address-pool", "sensible")
	inside.Spec.Type = corev1.ServiceTypeClusterIP
	others := service(ns, "others", "vip-mode", "L2ARP", "address-pool", "sensible")
	others.Spec.LoadBalancerClass = ptr.To("example.com/lb")
	without := []*corev1.Service{silent, inside, others}
	suite.CreateForTest(t, admin, silent, inside, others)
	for name, tc := range map[string]struct{ annotation, value, reason, says string }{
		"s6-mode":      {"vip-mode", "INVALID_MODE", "InvalidVIPMode", `"INVALID_MODE": it must be one of ["L2ARP" "BGP" "OSPF"]`},
		"s15-mode":     {"vip-mode", "l2arp", "InvalidVIPMode", `"l2arp"`},
		"s15-empty":    {"vip-mode", "", "InvalidVIPMode", `""`},
		"s15-family":   {"address-family", "IPv4", "InvalidAnnotation", `novaedge.io/address-family is "IPv4": it must be one of ["ipv4" "ipv6" "dual"]`},
		"s11-bgp":      {"bgp-config", "not-valid-json{", "InvalidAnnotation", "novaedge.io/bgp-config"},
		"s11-selector": {"node-selector", `"text"`, "InvalidAnnotation", "it must be a JSON object"},
		"bfd":          {"bfd-enabled", "perhaps", "InvalidAnnotation", "it must be true or false"},
		"pool-name":    {"address-pool", "Not_A_Name", "IPAllocationFailed", `annotation novaedge.io/address-pool: Invalid value: "Not_A_Name"`},
		"pool-of":      {"address-pool", "team/pool", "IPAllocationFailed", `annotation novaedge.io/address-pool: Invalid value: "team/pool"`},
		"pool-family":  {"address-family", "ipv6", "IPAllocationFailed", "annotation novaedge.io/address-family: Invalid value: pool sensible offers no IPv6 addresses"},
	} {
		s := service(ns, name, "vip-mode", "L2ARP", "address-pool", "sensible", tc.annotation, tc.value)
		suite.CreateForTest(t, admin, s)
		told(t, s, tc.reason, tc.says)
		without = append(without, s)
	}
	for address, says := range map[string]string{ // where their authors wrote it
		"10.63.0.1":   "spec.loadBalancerIP: Invalid value: pool sensible: 10.63.0.1 is outside the pool: it must lie inside one of 10.62.0.1-10.62.0.254",
		"10.62.0.255": "spec.loadBalancerIP: Invalid value: pool sensible: 10.62.0.255 is outside the pool (the broadcast address of spec.cidrs[0] 10.62.0.0/24, which is offered only where spec.addresses names it)",
		"2001:db8::1": `spec.loadBalancerIP: Invalid value: "2001:db8::1": must not be set with annotation novaedge.io/address-family ipv4`,
	} {
		s := service(ns, "asks-"+strings.NewReplacer(".", "-", ":", "-").Replace(address), "vip-mode", "L2ARP", "address-pool", "sensible")
		s.Spec.LoadBalancerIP = address
		suite.CreateForTest(t, admin, s)
		told(t, s, "IPAllocationFailed", says)
		without = append(without, s)
	}
	last := service(ns, "last", "vip-mode", "L2ARP", "address-pool", "sensible") // whoever was first has been looked at when it is served
	suite.CreateForTest(t, admin, last)
	shows(t, last, "10.62.0.1")
	for _, s := range without {
		withoutVIP(t, s)
	}
}

// A third-party webhook may deny with the status codes by which the API server reports a
// changed or a missing object.
func TestService_ProxyVIPIsNotStored(t *testing.T) {
	for _, code := range []int32{http.StatusNotFound, http.StatusConflict} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			namespace := suite.CreateNamespace(t, admin)
			suite.CreateForTest(t, admin, pool("unstored-"+namespace, fmt.Sprintf("10.50.%d.0/29", code%256)))
			asked := make(chan struct{}, 100)
			refuses := suite.DenyingWebhook(t, code, func(context.Context) {
				select {
				case asked <- struct{}{}:
				default:
				}
			})
			hook := suite.RegisterWebhook(t, admin, namespace, refuses, fmt.Sprintf("object.metadata.name.contains('%s')", namespace),
				suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "proxyvips", "novaedge.io"))
			suite.Eventually(t, time.Minute, func(ctx context.Context) error {
				if err := admin.Create(ctx, vip(namespace, "unstored-"+namespace), client.DryRunAll); err == nil {
					return errors.New("nothing refuses a ProxyVIP yet")
				}
				return nil
			})
			s := service(namespace, "web", "vip-mode", "BGP", "address-pool", "unstored-"+namespace)
			s.Spec.LoadBalancerIP = fmt.Sprintf("10.50.%d.2", code%256)
			suite.Create(t, admin, s)
			for range 3 { // it is tried again, and shows nothing
				select {
				case <-asked:
				case <-time.After(suite.Soon):
					t.Fatal("the ProxyVIP is not tried again")
				}
			}
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || len(s.Status.LoadBalancer.Ingress) > 0 {
				t.Fatalf("without a ProxyVIP the Service shows %v, %v", s.Status.LoadBalancer.Ingress, err)
			}
			suite.Delete(t, admin, hook)
			shows(t, s, s.Spec.LoadBalancerIP)
		})
	}
}

// The deletion must be repeated without an event: the ProxyVIP does not change.
func TestService_DeletionOfItsProxyVIPIsDenied(t *testing.T) {
	for _, code := range []int32{http.StatusNotFound, http.StatusConflict} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			namespace := suite.CreateNamespace(t, admin)
			suite.CreateForTest(t, admin, pool("kept-"+namespace, fmt.Sprintf("10.51.%d.0/29", code%256)))
			s := service(namespace, "web", "vip-mode", "BGP", "address-pool", "kept-"+namespace)
			suite.Create(t, admin, s)
			shows(t, s, fmt.Sprintf("10.51.%d.1", code%256))
			var asked atomic.Int32
			refuses := suite.DenyingWebhook(t, code, func(context.Context) { asked.Add(1) })
			hook := suite.RegisterWebhook(t, admin, namespace, refuses, fmt.Sprintf("oldObject.metadata.name.contains('%s')", namespace),
				suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Delete}, "proxyvips", "novaedge.io"))
			suite.Eventually(t, time.Minute, func(ctx context.Context) error {
				if err := admin.Delete(ctx, vipFor(s), client.DryRunAll); err == nil {
					return errors.New("nothing refuses the deletion yet")
				}
				return nil
			})
			asked.Store(0)
			suite.Delete(t, admin, s)
			suite.Eventually(t, suite.Soon, func(context.Context) error {
				if asked.Load() < 3 {
					return errors.New("the deletion is not tried again")
				}
				return nil
			})
			suite.Delete(t, admin, hook)
			suite.AwaitGone(t, admin, vipFor(s))
		})
	}
}

func TestService_ChangesToAPoolWithItsAddress(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, pool("from-"+ns, "10.52.0.0/28"), pool("to-"+ns, "10.52.0.0/29"))
	s := service(ns, "web", "vip-mode", "BGP", "address-pool", "from-"+ns)
	s.Spec.LoadBalancerIP = "10.52.0.5"
	suite.CreateForTest(t, admin, s)
	shows(t, s, "10.52.0.5")
	suite.Change(t, admin, s, func(s *corev1.Service) { s.Annotations["novaedge.io/address-pool"] = "to-" + ns })
	suite.AwaitObject(t, admin, vipFor(s), func(v *v1alpha1.ProxyVIP) string {
		if v.Spec.PoolRef.Name != "to-"+ns {
			return "it is of pool " + v.Spec.PoolRef.Name
		}
		return ""
	})
	shows(t, s, "10.52.0.5")

	spy := service(suite.CreateNamespace(t, admin), "spy", "vip-mode", "BGP", "address-pool", "to-"+ns)
	spy.Spec.LoadBalancerIP = "10.52.0.5"
	suite.CreateForTest(t, admin, spy)
	told(t, spy, "IPAllocationFailed", "10.52.0.5 is owned for a Service of another namespace")
	for _, o := range []client.Object{ // anybody in the network may ask by a dry run, without a name in the namespace that is hidden
		vip("probe-"+ns[len(ns)-5:], "to-"+ns, func(s *v1alpha1.ProxyVIPSpec) { s.Address = "10.52.0.5/32" }),
		vip("svc-other.probe-"+ns[len(ns)-5:], "to-"+ns, func(s *v1alpha1.ProxyVIPSpec) { s.Address = "10.52.0.5/32" }),
	} {
		err := admin.Create(t.Context(), o, client.DryRunAll)
		suite.RequireDenied(t, err, 403, "10.52.0.5 is owned for a Service of another namespace")
		if strings.Contains(err.Error(), "svc-"+ns) {
			t.Errorf("it names the Service: %v", err)
		}
	}
}

func TestService_AddressWrittenByOthers(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, pool("real-"+ns, "10.53.0.0/28"))
	thief := service(ns, "thief", "vip-mode", "L2ARP", "address-pool", "nowhere-"+ns)
	thief.Spec.LoadBalancerIP = "10.53.0.7"
	suite.CreateForTest(t, admin, thief)
	told(t, thief, "IPAllocationFailed", "does not exist")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(thief), thief); err != nil || len(thief.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("it shows %v, %v", thief.Status.LoadBalancer.Ingress, err)
	}
	s := service(ns, "web", "vip-mode", "L2ARP", "address-pool", "real-"+ns)
	s.Spec.LoadBalancerIP = "10.53.0.7"
	suite.CreateForTest(t, admin, s)
	shows(t, s, "10.53.0.7")
	suite.Change(t, admin, s, func(s *corev1.Service) { s.Annotations["novaedge.io/address-pool"] = "absent-" + ns })
	told(t, s, "IPAllocationFailed", "pool absent-"+ns+" does not exist: create it, or name another")
	shows(t, s, "10.53.0.7") // which it keeps until then
	gets(t, vip("other-"+ns, "real-"+ns), "10.53.0.1/32")
	suite.CreateForTest(t, admin, pool("absent-"+ns, "10.53.0.0/28"))
	suite.AwaitObject(t, admin, vipFor(s), func(v *v1alpha1.ProxyVIP) string {
		if v.Spec.PoolRef.Name != "absent-"+ns {
			return "it is of pool " + v.Spec.PoolRef.Name
		}
		return ""
	})
	shows(t, s, "10.53.0.7")
}

// Events of a Service repeat the status of its ProxyVIP. Readers of the events may not
// see other namespaces, so no event names another namespace.
func TestService_EventsNameNoOtherNamespace(t *testing.T) {
	here, there := suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, pool("lender-"+there, "10.66.0.0/28"), &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", Namespace: there},
		Spec:       butlerv1.NetworkPoolSpec{CIDR: "10.66.0.0/28", Reserved: []butlerv1.ReservedRange{{CIDR: "10.66.0.8/29"}}},
	})
	owner := service(there, "secret", "vip-mode", "BGP", "address-pool", "lender-"+there)
	owner.Spec.LoadBalancerIP = "10.66.0.5"
	suite.CreateForTest(t, admin, owner)
	shows(t, owner, "10.66.0.5")
	asking := func(name, address string) *corev1.Service {
		s := service(here, name, "vip-mode", "BGP", "address-pool", "late-"+here)
		s.Spec.LoadBalancerIP = address
		suite.CreateForTest(t, admin, s)
		told(t, s, "IPAllocationFailed", "does not exist")
		return s
	}
	spies := map[string]*corev1.Service{
		"10.66.0.5 is owned for a Service of another namespace":           asking("owned", "10.66.0.5"),
		"in a pool of another namespace 10.66.0.8-10.66.0.15 is reserved": asking("reserved", "10.66.0.9"),
	}
	suite.CreateForTest(t, admin, pool("late-"+here, "10.66.0.0/28"))
	for want, s := range spies {
		told(t, s, "IPAllocationFailed", want)
		v := vipFor(s)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
			t.Fatal(err)
		}
		texts := toldOf(t, s, "IPAllocationFailed")()
		for _, condition := range v.Status.Conditions {
			texts = append(texts, condition.Message)
		}
		for _, text := range texts {
			if strings.Contains(text, there) {
				t.Errorf("%s: %q names the other namespace", s.Name, text)
			}
		}
	}
}

// Cases S8, N12, N16 and N17: the pool is created later, or is full.
func TestService_BeforeItsPool(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	s := service(ns, "early", "vip-mode", "OSPF", "address-pool", "nonexistent-pool")
	suite.CreateForTest(t, admin, s)
	told(t, s, "IPAllocationFailed", "pool nonexistent-pool does not exist")
	suite.CreateForTest(t, admin, pool("nonexistent-pool", "10.63.0.1"))
	shows(t, s, "10.63.0.1")

	next := service(ns, "next", "vip-mode", "OSPF", "address-pool", "nonexistent-pool")
	suite.CreateForTest(t, admin, next)
	told(t, next, "IPAllocationFailed", "pool nonexistent-pool: 1 address requested, 0 free")
	withoutVIP(t, next)
	suite.Delete(t, admin, s)
	shows(t, next, "10.63.0.1")
}

// Cases T18, S7, N5 to N7 and N10: changes of a Service affect no other Service.
func TestService_OwnsItsAddress(t *testing.T) {
	here, there := suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)
	p, other := pool("lives", "10.64.0.0/28"), pool("lives-other", "10.64.1.0/28")
	suite.CreateForTest(t, admin, p, other)
	s := service(here, "web", "vip-mode", "L2ARP", "address-pool", p.Name)
	suite.CreateForTest(t, admin, s)
	shows(t, s, "10.64.0.1")
	twin := service(there, "web", "vip-mode", "L2ARP", "address-pool", p.Name)
	suite.CreateForTest(t, admin, twin)
	shows(t, twin, "10.64.0.2")
	namesake := service(suite.CreateNamespace(t, admin), "web")
	namesake.Spec.Type = corev1.ServiceTypeClusterIP
	suite.CreateForTest(t, admin, namesake)
	suite.Delete(t, admin, namesake)

	t.Run("ports and mode follow, the address stays", func(t *testing.T) {
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53}}
			s.Annotations[v1alpha1.AnnotationVIPMode] = "BGP"
		}); err != nil {
			t.Fatal(err)
		}
		v := vipFor(s)
		suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
			return cmp.Diff([]any{[]int32{53}, v1alpha1.ModeBGP, "10.64.0.1/32"}, []any{v.Spec.Ports, v.Spec.Mode, v.Spec.Address})
		})
	})
	t.Run("nonsense changes nothing", func(t *testing.T) {
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) { s.Annotations[v1alpha1.AnnotationVIPMode] = "bgp" }); err != nil {
			t.Fatal(err)
		}
		told(t, s, "InvalidVIPMode", `"bgp"`)
		shows(t, s, "10.64.0.1")
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) { s.Annotations[v1alpha1.AnnotationVIPMode] = "BGP" }); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("another pool", func(t *testing.T) {
		suite.CreateForTest(t, admin, pool("lives-manual", "10.64.2.0/28"))
		if err := suite.TryChange(t, admin, pool("lives-manual"), func(p *v1alpha1.ProxyIPPool) { p.Spec.AutoAssign = false }); err != nil {
			t.Fatal(err)
		}
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) { s.Annotations[v1alpha1.AnnotationAddressPool] = "lives-manual" }); err != nil {
			t.Fatal(err)
		}
		told(t, s, "IPAllocationFailed", "pool lives-manual does not assign addresses automatically")
		if v := vipFor(s); admin.Get(t.Context(), client.ObjectKeyFromObject(v), v) != nil || v.Spec.PoolRef.Name != p.Name {
			t.Errorf("its ProxyVIP is gone before there is another: %+v", v.Spec)
		}
		shows(t, s, "10.64.0.1")
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) { s.Annotations[v1alpha1.AnnotationAddressPool] = other.Name }); err != nil {
			t.Fatal(err)
		}
		shows(t, s, "10.64.1.1")
		counts(t, p, 1, 13)
	})
	t.Run("another type", func(t *testing.T) {
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }); err != nil {
			t.Fatal(err)
		}
		suite.AwaitGone(t, admin, vipFor(s))
		shows(t, s, "")
		counts(t, other, 0, 14)
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }); err != nil {
			t.Fatal(err)
		}
		shows(t, s, "10.64.1.1")
	})
	t.Run("asked no more", func(t *testing.T) {
		if err := suite.TryChange(t, admin, s, func(s *corev1.Service) { delete(s.Annotations, v1alpha1.AnnotationVIPMode) }); err != nil {
			t.Fatal(err)
		}
		suite.AwaitGone(t, admin, vipFor(s))
		shows(t, s, "")
	})
	if got := vipFor(twin); admin.Get(t.Context(), client.ObjectKeyFromObject(got), got) != nil || got.Spec.Address != "10.64.0.2/32" {
		t.Errorf("the namesake's ProxyVIP: %+v", got.Spec)
	}
	suite.Delete(t, admin, twin)
	suite.AwaitGone(t, admin, vipFor(twin))
	counts(t, p, 0, 14)
}

func TestService_ProxyVIPIsNotDeleted(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	p := pool("lingers", "10.69.0.0/29")
	suite.CreateForTest(t, admin, p)
	s := service(ns, "lingers", "vip-mode", "L2ARP", "address-pool", "lingers")
	suite.CreateForTest(t, admin, s)
	withAddress(t, s)
	v := vipFor(s)
	const finalizer = "example.com/router"
	suite.Change(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Finalizers = []string{finalizer} })
	if err := admin.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	again := service(ns, "lingers", "vip-mode", "L2ARP", "address-pool", "lingers")
	suite.Create(t, admin, again)
	told(t, again, "VIPCreateFailed", "is being deleted and waits for its finalizers "+finalizer)
	suite.Change(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Finalizers = nil })
	withAddress(t, again)
}

func TestService_ProxyVIPOfAnotherOwner(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, pool("left", "10.65.0.0/28"))
	s := service(ns, "web", "vip-mode", "L2ARP", "address-pool", "left")
	theirs := vip(vipFor(s).Name, "left")
	gets(t, theirs, "10.65.0.1/32")
	suite.CreateForTest(t, admin, s)
	told(t, s, "VIPCreateFailed", "exists and was not made for this Service")
	suite.Delete(t, admin, s)
	gets(t, vip("left-next", "left"), "10.65.0.2/32")
	suite.AwaitObject(t, admin, theirs, func(*v1alpha1.ProxyVIP) string { return "" }) // it is there
}

// Cases N1 and N8: Services keep their addresses while managers, including the leader,
// are killed.
func TestService_KeepsItsAddressThroughRestarts(t *testing.T) {
	const total = 20
	ns := suite.CreateNamespace(t, admin)
	p := pool("restart", "10.66.0.0/24")
	suite.CreateForTest(t, admin, p)
	all := make([]*corev1.Service, total)
	for i := range all {
		if i%5 == 4 {
			_ = cluster.Managers()[i%2].Kill() // unless it has yet to be started again
		}
		all[i] = service(ns, fmt.Sprintf("s-%d", i), "vip-mode", "L2ARP", "address-pool", p.Name)
		suite.CreateForTest(t, admin, all[i])
	}
	owner := map[string]string{}
	for _, s := range all {
		withAddress(t, s)
		v := vipFor(s)
		bound(t, v)
		ip := s.Status.LoadBalancer.Ingress[0].IP
		if v.Spec.Address != ip+"/32" || owner[ip] != "" {
			t.Errorf("%s shows %s, its ProxyVIP has %s, and so does %q", s.Name, ip, v.Spec.Address, owner[ip])
		}
		owner[ip] = s.Name
	}
	for _, m := range cluster.Managers() {
		_ = m.Kill()
	}
	last := service(ns, "last", "vip-mode", "L2ARP", "address-pool", p.Name)
	suite.CreateForTest(t, admin, last)
	withAddress(t, last)
	bound(t, vipFor(last))
	for _, s := range all {
		was := s.Status.LoadBalancer.Ingress[0].IP
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || s.Status.LoadBalancer.Ingress[0].IP != was {
			t.Errorf("%s showed %s and shows %+v: %v", s.Name, was, s.Status.LoadBalancer.Ingress, err)
		}
	}
	for _, s := range append(all, last) {
		suite.Delete(t, admin, s)
		suite.AwaitGone(t, admin, vipFor(s))
	}
}
