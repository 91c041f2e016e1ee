package tenants

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

func TestCRDsThatComeLaterArePickedUpWithoutARestart(t *testing.T) {
	box, err := sandbox.Start(t.Context(), sandbox.Options{ManagerArgs: []string{"--shutdown-delay=0s", "--tenants"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(box.WithinRights(), box.Stop()); err != nil {
			t.Error(err)
		}
	})
	early, err := clientOf(box)
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
	kubectl("apply", "--server-side", "-k", filepath.Join(config, "rbac"))
	if _, err := box.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := box.InstallWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "--server-side", "-f", filepath.Join(config, "butler.butlerlabs.dev_tenantclusters.yaml"))
	kubectl("apply", "--server-side", "-f", filepath.Join(config, "butler.butlerlabs.dev_providerconfigs.yaml"))
	kubectl("wait", "--for=condition=Established", "crd/providerconfigs.butler.butlerlabs.dev", "crd/tenantclusters.butler.butlerlabs.dev")
	p := read[v1alpha1.NetworkPool](t, `{metadata: {namespace: butler-system, name: vlan40-pool}, spec: {cidr: 10.60.0.0/24}}`)
	if err := early.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Abs("../../config/samples/tenants")
	if err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "-k", samples)
	c := read[v1alpha1.TenantCluster](t, `{metadata: {namespace: default, name: mycluster}}`)
	eventually(t, 2*soon, func(ctx context.Context) error {
		if err := early.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionNetworkReady) {
			return errors.New("the tenant has no addresses")
		}
		return nil
	})
}
