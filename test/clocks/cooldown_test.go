package clocks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// kind is a pool with one address, and claims of it.
type kind struct {
	pool   func(ns, address string, delay time.Duration) client.Object
	claim  func(ns, name string) client.Object
	answer func(client.Object) string // "" where it has none
	served func(client.Object) bool
	delay  func(client.Object, time.Duration)
	record func(t *testing.T, pool client.Object, address string, since, until time.Time) // writes one
}

func annotate(o client.Object, key, value string) {
	all := o.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	o.SetAnnotations(all)
}

func delayed(o client.Object, delay time.Duration) {
	annotate(o, butlerv1.AnnotationReuseDelay, delay.String())
}

func delayedNetwork(o client.Object, delay time.Duration) {
	o.(*butlerv1.NetworkPool).Spec.ReuseDelay = &metav1.Duration{Duration: delay}
}

func networkPool(ns, address string, delay time.Duration) client.Object {
	return &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool"}, Spec: butlerv1.NetworkPoolSpec{
		CIDR: "10.70.0.0/29", TenantAllocation: &butlerv1.TenantAllocation{Start: address, End: address}, RoutingDomain: ns,
		ReuseDelay: &metav1.Duration{Duration: delay},
	}}
}

// inAnnotation records a cooldown as the manager does in pools of other projects.
func inAnnotation(t *testing.T, pool client.Object, address string, since, until time.Time) {
	t.Helper()
	suite.Change(t, admin, pool, func(p client.Object) {
		annotate(p, butlerv1.AnnotationCooldown, fmt.Sprintf(`[{"range":%q,"since":%q,"until":%q}]`, address, since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339)))
	})
}

var kinds = map[string]kind{
	"NetworkPool": {
		pool: networkPool,
		claim: func(ns, name string) client.Object {
			one := int32(1)
			return &butlerv1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: butlerv1.IPAllocationSpec{
				PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: ns, Name: "tenant"},
				Type: butlerv1.TypeNodes, Count: &one,
			}}
		},
		answer: func(o client.Object) string {
			if r := o.(*butlerv1.IPAllocation).Spec.PinnedRange; r != nil {
				return r.StartAddress
			}
			return ""
		},
		served: func(o client.Object) bool {
			return meta.IsStatusConditionTrue(o.(*butlerv1.IPAllocation).Status.Conditions, butlerv1.ConditionReady)
		},
		delay: delayedNetwork,
		record: func(t *testing.T, pool client.Object, address string, since, until time.Time) {
			t.Helper()
			p, end := pool.(*butlerv1.NetworkPool), metav1.NewTime(until)
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
				if err := admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
					return err
				}
				p.Status.Releases = []butlerv1.Release{{
					Name: "earlier", Tenant: butlerv1.RecordedReference{Namespace: p.Namespace, Name: "tenant"}, StartAddress: address, EndAddress: address,
					ReleasedAt: metav1.NewTime(since), ReusableAt: &end,
				}}
				return admin.Status().Update(ctx, p)
			})
		},
	},
	"IPPool": {
		pool: func(ns, address string, delay time.Duration) client.Object {
			first := metal3v1.IP(address)
			p := &metal3v1.IPPool{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool", Labels: map[string]string{butlerv1.LabelRoutingDomain: ns}},
				Spec:       metal3v1.IPPoolSpec{NamePrefix: "pool", Prefix: 24, Pools: []metal3v1.Pool{{Start: &first, End: &first}}},
			}
			delayed(p, delay)
			return p
		},
		claim: func(ns, name string) client.Object {
			c := &metal3v1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
			c.Spec.Pool.Name = "pool"
			return c
		},
		answer: func(o client.Object) string { return o.GetAnnotations()[metal3v1.AnnotationIPAddress] },
		served: func(o client.Object) bool { return o.(*metal3v1.IPClaim).Status.Address != nil },
		delay:  delayed,
		record: inAnnotation,
	},
	"NetworkPool_of_an_IPAddressClaim": { // whose releases are in the annotation
		pool: networkPool,
		claim: func(ns, name string) client.Object {
			return &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: ipamv1.IPAddressClaimSpec{
				PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "pool"},
			}}
		},
		answer: func(o client.Object) string { return o.GetAnnotations()[metal3v1.AnnotationIPAddress] },
		served: func(o client.Object) bool { return o.(*ipamv1.IPAddressClaim).Status.AddressRef.Name != "" },
		delay:  delayedNetwork,
		record: inAnnotation,
	},
}

var errCooldown = errors.New("in cooldown")

// free asks by a dry run whether the pool's address can be allocated: errCooldown where
// it cannot.
func (k kind) free(ctx context.Context, ns string) error {
	c := k.claim(ns, "next")
	err := admin.Create(ctx, c, client.DryRunAll)
	if apierrors.IsForbidden(err) || err == nil && k.answer(c) == "" {
		return errCooldown
	}
	return err
}

// released has a claim get the pool's address and release it.
func (k kind) released(t *testing.T, ns string) {
	t.Helper()
	c := k.claim(ns, "first")
	suite.Create(t, admin, c)
	suite.AwaitObject(t, admin, c, func(c client.Object) string {
		if !k.served(c) {
			return "not served"
		}
		return ""
	})
	suite.Delete(t, admin, c)
}

func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	if err := cluster.Managers()[0].SetClock(by); err != nil {
		t.Fatal(err)
	}
}

func TestCooldown_EndsWithinTheReuseDelay(t *testing.T) {
	const address = "10.70.0.1"
	for name, k := range kinds {
		for what, play := range map[string]func(t *testing.T, ns string){
			"recorded_by_a_clock_that_was_ahead": func(t *testing.T, ns string) {
				suite.CreateForTest(t, admin, k.pool(ns, address, 3*time.Second))
				setClock(t, 2*time.Hour)
				defer setClock(t, 0)
				restart(t, cluster.Managers()[0])
				k.released(t, ns)
				setClock(t, 0)
				restart(t, cluster.Managers()[0])
			},
			"recorded_ahead_by_somebody": func(t *testing.T, ns string) {
				p := k.pool(ns, address, 3*time.Second)
				suite.CreateForTest(t, admin, p)
				k.record(t, p, address, time.Now().Add(2*time.Hour), time.Now().Add(3*time.Hour))
			},
			"ended_by_a_shorter_delay": func(t *testing.T, ns string) {
				p := k.pool(ns, address, time.Hour)
				suite.CreateForTest(t, admin, p)
				k.record(t, p, address, time.Now().Add(2*time.Hour), time.Now().Add(3*time.Hour))
				suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
					if err := k.free(ctx, ns); !errors.Is(err, errCooldown) {
						return fmt.Errorf("want it in cooldown: %v", err)
					}
					return nil
				})
				suite.Change(t, admin, p, func(p client.Object) { k.delay(p, time.Second) })
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				ns := suite.CreateNamespace(t, admin)
				play(t, ns)
				suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return k.free(ctx, ns) })
			})
		}
	}
}

// The replica that records a release, or the one that reads the record after a restart,
// has a wrong clock.
func TestCooldown_IsNotCutShortByAWrongClock(t *testing.T) {
	for name, k := range kinds {
		for what, clocks := range map[string]struct{ records, reads time.Duration }{
			"recorded_by_a_clock_that_was_behind": {-2 * time.Hour, 0},
			"read_by_a_clock_that_is_ahead":       {0, 2 * time.Hour},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				ns := suite.CreateNamespace(t, admin)
				suite.CreateForTest(t, admin, k.pool(ns, "10.70.0.1", time.Hour))
				defer setClock(t, 0)
				setClock(t, clocks.records)
				restart(t, cluster.Managers()[0])
				k.released(t, ns)
				setClock(t, clocks.reads)
				restart(t, cluster.Managers()[0])
				if err := k.free(t.Context(), ns); !errors.Is(err, errCooldown) {
					t.Errorf("want it in cooldown: %v", err)
				}
			})
		}
	}
}
