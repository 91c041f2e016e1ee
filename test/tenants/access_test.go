package tenants

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

func TestAccess_Denied(t *testing.T) {
	startPlane(t)
	pool(t, "access", "10.28.0.0/24", "10.28.0.0", "10.28.0.255")
	elastic(t, "access", "")
	ns := suite.CreateNamespace(t, admin)
	begin := func(name string) *v1alpha1.TenantCluster {
		c := tenant(t, ns, name, "access", "")
		suite.CreateForTest(t, admin, c)
		networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
		return c
	}
	stranger, err := tenantPlane.ConfigFor("stranger")
	if err != nil {
		t.Fatal(err)
	}
	denied := begin("denied")
	giveAccess(t, denied, stranger)
	// Whoever can write the Secret cannot have the manager run a program.
	program := begin("program")
	ns2 := program.Name + "-control-plane"
	suite.CreateForTest(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns2}})
	withProgram := strings.Replace(string(kubeconfigOf(t, tenantPlane.Config())), "user:\n",
		"user:\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}\n", 1)
	suite.CreateForTest(t, admin, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns2, Name: program.Name + "-admin-kubeconfig"}, Data: map[string][]byte{"admin.conf": []byte(withProgram)}})
	before := program.DeepCopy()
	program.Status.TenantNamespace = ns2
	if err := admin.Status().Patch(t.Context(), program, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}

	if text := conditionIs(t, denied, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionUnknown, v1alpha1.ReasonAccessDenied); !strings.Contains(text, "forbidden") {
		t.Errorf("the condition does not say why: %s", text)
	}
	hears(t, denied, v1alpha1.ReasonAccessDenied, "no access to the tenant")
	if text := conditionIs(t, program, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionUnknown, v1alpha1.ReasonAccessDenied); !strings.Contains(text, "exec is refused") {
		t.Errorf("the condition does not say why: %s", text)
	}
}

func TestAccess_HangingTenantDelaysNoOther(t *testing.T) {
	pool(t, "hangs", "10.29.0.0/24", "10.29.0.0", "10.29.0.255")
	elastic(t, "hangs", "")
	c := live(t, "hangs", "hangs")
	offers(t, "10.29.0.0-10.29.0.1")
	// It takes connections and says nothing.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	config := tenantPlane.Config()
	config.Host = "https://" + listener.Addr().String()
	var silent []*v1alpha1.TenantCluster
	for i := range 20 {
		s := tenant(t, c.Namespace, fmt.Sprintf("silent-%d", i), "hangs", "")
		suite.CreateForTest(t, admin, s)
		networkReady(t, s, metav1.ConditionTrue, v1alpha1.ReasonReady)
		giveAccess(t, s, config)
		silent = append(silent, s)
	}
	for i := range 4 {
		if _, took := served(t, balancer(t, fmt.Sprintf("s-%d", i))); took > 3*time.Second {
			t.Errorf("beside tenants that hang a Service waited %s for its address", took)
		}
	}
	for _, s := range silent {
		conditionIs(t, s, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionUnknown, v1alpha1.ReasonTenantUnreachable)
	}
}

func TestAccess_TooManyServices(t *testing.T) {
	startPlane(t)
	pool(t, "huge", "10.38.0.0/24", "10.38.0.0", "10.38.0.255")
	elastic(t, "huge", ", quotaPerTenant: {maxLoadBalancerIPs: 4}")
	// Together they are more than one answer may have, and nothing of that matters.
	var all []*corev1.Service
	for i := range 2 * maxServices {
		all = append(all, balancer(t, fmt.Sprintf("huge-%d", i), func(s *corev1.Service) {
			s.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 250<<10)}
		}))
	}
	c := live(t, "huge", "huge")
	offers(t, "10.38.0.0-10.38.0.1", "10.38.0.2-10.38.0.3")
	message := conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionUnknown, v1alpha1.ReasonTooManyServices)
	if !strings.Contains(message, "--tenants-max-services") {
		t.Errorf("the condition does not say the way out: %s", message)
	}
	hears(t, c, v1alpha1.ReasonTooManyServices, "more Services of type LoadBalancer than are read (40")
	looksAt := func(want int) {
		t.Helper()
		series := regexp.MustCompile(fmt.Sprintf(`(?m)^butler_ipam_tenant_services\{state="\w+",tenant=%q,tenant_namespace=%q\} (\d+)`, c.Name, c.Namespace))
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
			got := 0
			for _, m := range cluster.Managers() {
				text, err := metrics(ctx, m.MetricsAddress)
				if err != nil {
					return err
				}
				for _, value := range series.FindAllStringSubmatch(text, -1) {
					n, _ := strconv.Atoi(value[1])
					got += n
				}
			}
			if got != want {
				return fmt.Errorf("%d Services are looked at, want %d", got, want)
			}
			return nil
		})
	}
	looksAt(maxServices)
	suite.Change(t, tenantPlane.Client, metallbPool(), func(p *unstructured.Unstructured) {
		_ = unstructured.SetNestedStringSlice(p.Object, []string{"192.0.2.0-192.0.2.9"}, "spec", "addresses")
	})
	offers(t, "10.38.0.0-10.38.0.1", "10.38.0.2-10.38.0.3")

	for _, s := range all[3:] {
		dropService(t, s)
	}
	// It is looked again ten seconds after the first list, and later each time.
	suite.Eventually(t, 6*suite.Soon, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionLoadBalancerIPsAvailable) {
			return fmt.Errorf("conditions %+v", c.Status.Conditions)
		}
		return nil
	})
	looksAt(3)
}
