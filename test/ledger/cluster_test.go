package ledger

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	grantExpiry = 45 * time.Second // the shortest that the manager takes
	patience    = 3 * time.Minute
	poolName    = "pool"
)

// cluster is a sandbox for a single test, whose faults would fail other tests.
type cluster struct {
	*testing.T
	*sandbox.Sandbox
	client.WithWatch
	journal journal.Store
	gate    *gate
	history *history
}

// start starts two managers, and creates a pool of this size, a webhook that delays
// creates, and a watch that records all stored versions.
func start(t *testing.T, o sandbox.Options, bits int) *cluster {
	t.Helper()
	t.Parallel()
	o.Replicas, o.ManagerArgs = 2, []string{"--grant-expiry=" + grantExpiry.String(), "--log-level=debug"}
	s, admin := suite.StartSandbox(t, o)
	c := &cluster{T: t, Sandbox: s, WithWatch: admin}
	var err error
	if c.journal, err = journal.NewLeaseStore(s.Config(), sandbox.ManagerNamespace, time.Second); err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: poolName, Namespace: sandbox.Namespace},
		Spec:       v1alpha1.NetworkPoolSpec{CIDR: fmt.Sprintf("10.0.0.0/%d", bits)},
	}
	if err := c.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	c.gate = c.startGate()
	c.history = c.startHistory()
	return c
}

// connect makes a client whose requests the API server gives up after a time; 0 leaves
// that to the API server.
func connect(t *testing.T, s *sandbox.Sandbox, timeout time.Duration) client.WithWatch {
	t.Helper()
	c, err := suite.NewClient(s, func(config *rest.Config) { config.Timeout = timeout })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// claim requests one address of the pool.
func claim(name string) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: sandbox.Namespace},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: poolName},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "web", Namespace: "team-a"},
			Type:             v1alpha1.TypeNodes,
			Count:            new(int32(1)),
		},
	}
}
