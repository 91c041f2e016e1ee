package latewrites

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

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

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // client-go tells of every request that times out, and here they do
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// cluster is a sandbox of one test's own: what is done to it no other test would survive.
type cluster struct {
	*testing.T
	*sandbox.Sandbox
	client.WithWatch
	journal journal.Store
	gate    *gate
	history *history
}

// start starts two managers, a pool with so many addresses, a webhook that holds creates back, and a look at all that is stored.
func start(t *testing.T, o sandbox.Options, bits int) *cluster {
	t.Helper()
	t.Parallel()
	o.Replicas, o.ManagerArgs = 2, []string{"--grant-expiry=" + grantExpiry.String(), "--log-level=debug"}
	s, err := sandbox.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{T: t, Sandbox: s, WithWatch: connect(t, s, 0)}
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

// connect makes a client whose requests the API server gives up after a time; 0 leaves that to the API server.
func connect(t *testing.T, s *sandbox.Sandbox, timeout time.Duration) client.WithWatch {
	t.Helper()
	c, err := suite.Client(s, func(config *rest.Config) { config.Timeout = timeout })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// claim asks for one address of the pool.
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
