package tenants

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/plane"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

func TestCRDs_InstalledLater(t *testing.T) {
	box, err := sandbox.Start(t.Context(), sandbox.Options{ManagerArgs: []string{"--shutdown-delay=0s", "--tenants"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(box.CheckLogs(), box.Stop()); err != nil {
			t.Error(err)
		}
	})
	early, err := suite.NewClient(box)
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Abs("../../config/tenants")
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) {
		t.Helper()
		if _, _, err := box.Kubectl(t.Context(), "", args...); err != nil {
			t.Fatal(err)
		}
	}
	install := func(crds ...string) {
		t.Helper()
		if err := box.InstallCRDs(t.Context(), crds...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl("apply", "--server-side", "-k", filepath.Join(config, "rbac"))
	if _, err := box.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := box.InstallWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	install("config/tenants/butler.butlerlabs.dev_tenantclusters.yaml", "config/tenants/butler.butlerlabs.dev_providerconfigs.yaml")
	p := read[v1alpha1.NetworkPool](t, `{metadata: {namespace: butler-system, name: vlan40-pool}, spec: {cidr: 10.60.0.0/24}}`)
	if err := early.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Abs("../../config/samples/tenants")
	if err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "-k", samples)
	says := func(name, text string) *v1alpha1.TenantCluster {
		t.Helper()
		c := &v1alpha1.TenantCluster{}
		suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error {
			if err := early.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, c); err != nil {
				return err
			}
			is := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionNetworkReady)
			if is == nil || !strings.Contains(is.Message, text) {
				return fmt.Errorf("NetworkReady of %s is %+v, want %q", name, is, text)
			}
			return nil
		})
		return c
	}
	says("mycluster", "loadbalancer 10.60.0.5-10.60.0.6, nodes 10.60.0.0-10.60.0.4")

	// The platform's choice of a ProviderConfig, for tenants without one. Before there is
	// one it is the first.
	apply := func(text string) {
		t.Helper()
		if _, _, err := box.Kubectl(t.Context(), text, "apply", "--server-side", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	apply(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: TenantCluster, metadata: {namespace: default, name: any}, spec: {}}`)
	says("any", "loadbalancer 10.60.0.12/31, nodes 10.60.0.7-10.60.0.11")
	install("test/tenants/testdata/butlerconfigs.yaml")
	apply(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: ButlerConfig, metadata: {name: butler}, spec: {defaultProviderConfigRef: {name: platform}}}`)
	says("any", `ButlerConfig butler: providerconfigs.butler.butlerlabs.dev "platform" not found`)
	apply(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: ProviderConfig, metadata: {namespace: butler-system, name: platform,
		annotations: {butler.butlerlabs.dev/node-addresses: external}},
		spec: {provider: harvester, network: {mode: ipam, poolRefs: [{name: vlan40-pool}], loadBalancer: {defaultPoolSize: 3}}}}`)
	says("any", "10.60.0.12/31") // what it has it keeps
	apply(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: TenantCluster, metadata: {namespace: default, name: static}, spec: {}}`)
	c := says("static", "loadbalancer 10.60.0.14-10.60.0.16")

	// MetalLB may come later too, and a tenant that does not grow has its addresses there
	// as any other.
	if _, err := plane.Connect(t.Context(), early, c, box.Config()); err != nil {
		t.Fatal(err)
	}
	if _, err := box.StartMetalLB(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := plane.Balancer("any")
	if err := early.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, _ = servedIn(t, &plane.Plane{Sandbox: box, Client: early}, s)
}
