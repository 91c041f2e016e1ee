package replicas

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// It has a sandbox of its own, whose API server may go. An informer that waits between its tries as it does by itself is back half a minute after the end of such an outage, or later.
func TestAfterALongOutageOfTheAPIServerStatusesAreWrittenAtOnce(t *testing.T) {
	const outage, within = 30 * time.Second, 15 * time.Second
	own, err := sandbox.Start(t.Context(), sandbox.Options{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := suite.Client(own, func(*rest.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	suite.Create(t, c, &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: own.Namespace()}, Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.0.0.0/24"},
	})
	allocation := func(name string) *v1alpha1.IPAllocation {
		return &v1alpha1.IPAllocation{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: own.Namespace()},
			Spec: v1alpha1.IPAllocationSpec{
				PoolRef:          v1alpha1.LocalObjectReference{Name: "pool"},
				TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "web", Namespace: "team-a"},
				Type:             v1alpha1.TypeNodes,
				Count:            new(int32(1)),
			},
		}
	}
	var all []*v1alpha1.IPAllocation
	for i := range 20 { // the statuses of the last are not written yet
		all = append(all, allocation(fmt.Sprintf("before-%d", i)))
		suite.Create(t, c, all[i])
	}
	server := own.APIServer()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait(t.Context()) // it was killed
	time.Sleep(outage)
	if err := errors.Join(server.Start(), server.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	all = append(all, allocation("after"))
	suite.Eventually(t, within, func(ctx context.Context) error {
		for _, a := range all {
			if a.UID == "" {
				if err := c.Create(ctx, a); err != nil {
					return err
				}
			}
			if err := c.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
				return err
			}
			if a.Status.Phase != v1alpha1.PhaseAllocated {
				return fmt.Errorf("the phase of %s is %q", a.Name, a.Status.Phase)
			}
		}
		return nil
	})
}
