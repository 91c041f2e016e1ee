package butler

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// clients is how many create at the same time.
const clients = 64

// distinct fails a test unless every claim has one address of its own.
func distinct(t *testing.T, claims []*v1alpha1.IPAllocation) {
	t.Helper()
	owner := map[string]string{}
	for _, a := range claims {
		r := a.Spec.PinnedRange
		if r == nil || r.StartAddress != r.EndAddress {
			t.Fatalf("%s: range %q, want one address", a.Name, addressesOf(a))
		}
		if other, taken := owner[r.StartAddress]; taken {
			t.Fatalf("%s and %s both have %s", other, a.Name, r.StartAddress)
		}
		owner[r.StartAddress] = a.Name
	}
}

func deleteAll(t *testing.T, claims []*v1alpha1.IPAllocation) {
	t.Helper()
	for i, err := range byMany(clients, len(claims), func(i int) error { return admin.Delete(t.Context(), claims[i]) }) {
		if err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
	}
}

func TestConcurrentCreates_ThousandAddresses(t *testing.T) {
	suite.SkipShort(t)
	const n = 1000
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.30.0.0/22", "10.30.0.0-10.30.3.231"))
	for round := range 2 {
		claims := make([]*v1alpha1.IPAllocation, n)
		for i, err := range byMany(clients, n, func(i int) error {
			claims[i] = claim(ns, fmt.Sprintf("a-%d-%d", round, i), 1)
			return admin.Create(t.Context(), claims[i])
		}) {
			if err != nil {
				t.Fatalf("round %d, create %d: %v", round, i, err)
			}
		}
		distinct(t, claims)
		suite.RequireDenied(t, admin.Create(t.Context(), claim(ns, "one-too-many", 1)), 403,
			"pool "+ns+"/pool", "1 address requested, 0 free, largest free block 0", "enlarge the pool")

		deleteAll(t, claims)
		canGive(t, 5*time.Minute, ns, n)
	}
}

// refused has a policy refuse operations on allocations that have the labels, once the
// API server has compiled it.
func refused(t *testing.T, name string, operations ...admissionregistrationv1.OperationType) (labels map[string]string) {
	t.Helper()
	labels = map[string]string{"refuse": name}
	suite.CreateDenyingPolicy(t, admin, name, admissionregistrationv1.MatchResources{
		ObjectSelector: &metav1.LabelSelector{MatchLabels: labels},
		ResourceRules:  suite.RulesFor(operations, "ipallocations", "butler.butlerlabs.dev"),
	})
	return labels
}

func TestGrant_EndsWhereAPolicyDeniesTheCreate(t *testing.T) {
	suite.SkipShort(t)
	const n = 2000
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.31.0.0/21", "10.31.0.0-10.31.7.207"))
	refuse := refused(t, ns, admissionregistrationv1.Create)
	doomed := func(name string) *v1alpha1.IPAllocation {
		a := claim(ns, name, 1)
		a.Labels = refuse
		return a
	}
	suite.Eventually(t, time.Minute, func(ctx context.Context) error { // the API server compiles policies some time after they are stored
		if err := admin.Create(ctx, doomed("x"), client.DryRunAll); err == nil {
			return fmt.Errorf("the policy refuses nothing yet")
		}
		return nil
	})

	claims := make([]*v1alpha1.IPAllocation, n/2)
	for i, err := range byMany(clients, n, func(i int) error {
		if i%2 == 1 {
			if err := admin.Create(t.Context(), doomed(fmt.Sprintf("a-%d", i))); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				return fmt.Errorf("want the policy's refusal, got: %v", err)
			}
			return nil
		}
		claims[i/2] = claim(ns, fmt.Sprintf("a-%d", i), 1)
		return admin.Create(t.Context(), claims[i/2])
	}) {
		if err != nil {
			t.Fatalf("create %d: %v", i, err)
		}
	}
	distinct(t, claims)
	deleteAll(t, claims)
	canGive(t, grantLife+5*time.Minute, ns, n)
	suite.Eventually(t, time.Minute, func(context.Context) error { // the journal says so with its next commit
		if lines := openGrants(t, ns); len(lines) > 0 {
			return fmt.Errorf("%d grants are open, want none", len(lines))
		}
		return nil
	})
}

func TestConcurrentCreates_OneNameCostsNoAddress(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.32.0.0/29"))
	a := claim(ns, "a", 4)
	suite.Create(t, admin, a)
	for i, err := range byMany(clients, 500, func(int) error { return admin.Create(t.Context(), claim(ns, "a", 4)) }) {
		if !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %d: want that it exists already, got: %v", i, err)
		}
	}
	rest := claim(ns, "rest", 4)
	suite.Create(t, admin, rest)
	for _, line := range openGrants(t, ns) {
		for _, r := range line.Ranges {
			if got := r.First.String() + "-" + r.Last.String(); got != addressesOf(a) && got != addressesOf(rest) {
				t.Errorf("a grant of %s is open", got)
			}
		}
	}
}

// Both ways of naming are retried by clients that race for the same object.
func TestConcurrentCreates_OneNameHasOneRange(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.33.0.0/28"))
	won := 0
	for _, err := range byMany(clients, clients, func(int) error { return admin.Create(t.Context(), claim(ns, "a", 8)) }) {
		switch {
		case err == nil:
			won++
		case !apierrors.IsAlreadyExists(err):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d creates succeeded, want one", won)
	}
	for _, err := range byMany(8, 8, func(int) error {
		_, _, err := cluster.Kubectl(t.Context(), manifest("b", ", count: 8"), "apply", "--server-side", "-n", ns, "-f", "-")
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	owned := map[netip.Addr]bool{}
	for _, name := range []string{"a", "b"} {
		r := answer(t, ns, name)["pinnedRange"].(map[string]any)
		owned[netip.MustParseAddr(r["startAddress"].(string))] = true
	}
	if len(owned) != 2 {
		t.Errorf("both allocations start at %v", owned)
	}
}
