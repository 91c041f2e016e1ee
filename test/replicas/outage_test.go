package replicas

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// becomesAllocated waits until the status of an allocation confirms the addresses of its
// create response.
func becomesAllocated(t *testing.T, c client.Client, within time.Duration, all ...*v1alpha1.IPAllocation) {
	t.Helper()
	suite.Eventually(t, within, func(ctx context.Context) error {
		for _, a := range all {
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

// The test stops the API server of a sandbox of its own. With the default backoff of
// client-go, an informer would resume half a minute or more after the end of such an
// outage.
func TestOutage_StatusesAreWrittenAtItsEnd(t *testing.T) {
	const outage, within = 30 * time.Second, 15 * time.Second
	own, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1})
	namespace := load.NewPool(t, c, nextNetwork(24))
	var all []*v1alpha1.IPAllocation
	for i := range 20 { // the statuses of the last are not written yet
		all = append(all, load.Claim(namespace, fmt.Sprintf("before-%d", i)))
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
	after := load.Claim(namespace, "after")
	suite.Eventually(t, within, func(ctx context.Context) error { return client.IgnoreAlreadyExists(c.Create(ctx, after)) })
	becomesAllocated(t, c, within, append(all, after)...)
}

// The managers' connections to the API server are lost without a reset, as if one of
// several API servers lost its power. With the defaults of client-go, informers would get
// no events for 45 s, and each idle connection would delay a create by three seconds.
func TestOutage_OfOneAPIServer(t *testing.T) {
	const within = 20 * time.Second
	l := startLoad(t) // many connections
	namespace := newPool(t, 24)
	becomesAllocated(t, admin, within, claimed(t, namespace, "before"))
	for _, m := range cluster.Managers() {
		m.APIServer.Lose("")
	}
	after := claimed(t, namespace, "after")
	l.Await(5 * clients)
	_, failures := l.Stop()
	noFailure(t, failures)
	becomesAllocated(t, admin, within, after)
}

func claimed(t *testing.T, namespace, name string) *v1alpha1.IPAllocation {
	t.Helper()
	a := load.Claim(namespace, name)
	suite.Create(t, admin, a)
	return a
}
