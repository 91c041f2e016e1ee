package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// A create that fails after the allocation leaves granted addresses. The status of the
// pool and the plugin count these addresses until the grant expires.
func TestPools_CountGrantsOfFailedCreates(t *testing.T) {
	const failing = 3
	for _, kind := range suite.Kinds {
		if strings.HasSuffix(kind.Name, "IPPool") || kind.Name == "IPClaim" { // the status of an IPPool does not count granted addresses
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool := kind.Pool(ns, "10.90.0.0", "10.90.0.99")
			suite.Create(t, admin, pool)
			group := map[string]string{"ipallocations": "butler.butlerlabs.dev", "ipaddressclaims": "ipam.cluster.x-k8s.io", "proxyvips": "novaedge.io"}[kind.Resource]
			suite.RegisterWebhook(t, admin, "fails-"+ns, suite.DenyingWebhook(t, 403, func(context.Context) {}),
				fmt.Sprintf(`object.metadata.name.contains("fails") && (object.metadata.?namespace.orValue("") == %[1]q || object.metadata.name.startsWith(%[1]q))`, ns),
				suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}, kind.Resource, group))
			size := int64(1)
			for n := range failing {
				suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // the API server calls a new webhook after a delay
					claim := kind.Claim(ns, fmt.Sprintf("fails-%d", n), "")
					if a, ok := claim.(*butlerv1.IPAllocation); ok {
						size = 4
						a.Spec.Count = new(int32(size))
					}
					err := admin.Create(ctx, claim)
					if err == nil {
						suite.Delete(t, admin, claim)
						suite.AwaitGone(t, admin, claim)
						return fmt.Errorf("%s was created", claim.GetName())
					}
					if !strings.Contains(err.Error(), "refused after a while") {
						t.Fatal(err)
					}
					return nil
				})
			}
			counts := func(want int64) func(context.Context) error {
				return func(ctx context.Context) error {
					if err := admin.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
						return err
					}
					var granted, available int64
					switch p := pool.(type) {
					case *butlerv1.NetworkPool:
						granted, available = p.Status.GrantedIPs, p.Status.AvailableIPs
					case *novaedgev1.ProxyIPPool:
						granted, available = p.Status.Granted, p.Status.Available
					}
					shown := poolOf(t, pool, decoded[items[poolItem]](t, "pools").Items)
					if granted != want || available != 100-want || shown.Granted != granted || shown.Free != available {
						return fmt.Errorf("%d addresses are granted: the status has %d, and %d free; the plugin shows %+v", want, granted, available, shown)
					}
					name := strings.TrimPrefix(pool.GetNamespace()+"/"+pool.GetName(), "/")
					m := decoded[struct{ Totals map[string]int64 }](t, "map", name)
					if m.Totals["granted"] != want {
						return fmt.Errorf("the map has %v, want %d granted", m.Totals, want)
					}
					return nil
				}
			}
			suite.Eventually(t, suite.Soon, counts(failing*size))
			if pool.GetNamespace() != "" { // a viewer without the right to read the journal sees the number in the status
				viewer := viewerKubeconfig(t, "viewer-"+ns, ns)
				r := run(t, viewer, "pools", "-n", ns, "-o", "json")
				var list items[poolItem]
				if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
					t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
				}
				if shown := poolOf(t, pool, list.Items); shown.Granted != failing*size {
					t.Errorf("the viewer sees %+v, want %d granted", shown, failing*size)
				}
			}
			suite.Eventually(t, 2*time.Minute, counts(0)) // wait until the grants expire
		})
	}
}

// poolOf returns the item of a pool in a list.
func poolOf(t *testing.T, pool client.Object, list []poolItem) poolItem {
	t.Helper()
	i := slices.IndexFunc(list, func(p poolItem) bool { return p.Namespace == pool.GetNamespace() && p.Name == pool.GetName() })
	if i < 0 {
		t.Fatalf("the list lacks %s: %+v", pool.GetName(), list)
	}
	return list[i]
}
