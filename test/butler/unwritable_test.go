package butler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// unreachable has the API server call a webhook that is not there before a write to
// allocations that have the labels: nobody can tell of such a write that it is not
// stored. The function removes it.
func unreachable(t *testing.T, name string, operations ...admissionregistrationv1.OperationType) (labels map[string]string, end func()) {
	t.Helper()
	return asked(t, name, "ipallocations", admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")}, operations...)
}

// reluctant has a webhook refuse updates of allocations that have the labels, or of their
// statuses, after a while and with this code.
func reluctant(t *testing.T, name, resource string, takes time.Duration, code int32) (labels map[string]string, end func()) {
	t.Helper()
	return asked(t, name, resource, suite.DenyingWebhook(t, code, func(ctx context.Context) {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}), admissionregistrationv1.Update)
}

// asked has the API server ask a webhook before a write to allocations that have the
// labels. The function removes it.
func asked(t *testing.T, name, resource string, at admissionregistrationv1.WebhookClientConfig, operations ...admissionregistrationv1.OperationType) (labels map[string]string, end func()) {
	t.Helper()
	hook := suite.RegisterWebhook(t, admin, name, at, fmt.Sprintf("object.metadata.?labels.?refuse.orValue('') == %q", name), suite.RulesFor(operations, resource, "butler.butlerlabs.dev"))
	return map[string]string{"refuse": name}, func() { suite.Delete(t, admin, hook) }
}

// unwritable makes a pool and an allocation that waits for it and cannot be written to.
func unwritable(t *testing.T, ns, cidr string, labels map[string]string) *v1alpha1.IPAllocation {
	t.Helper()
	a := claim(ns, "a", 4)
	a.Labels = labels
	suite.Create(t, admin, a)
	suite.Eventually(t, time.Minute, func(ctx context.Context) error {
		if err := admin.Patch(ctx, a, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":"y"}}}`)), client.DryRunAll); err == nil {
			return errors.New("nothing refuses a write yet")
		}
		return nil
	})
	suite.Create(t, admin, pool(ns, cidr))
	return a
}

// says waits until condition Ready of an allocation says something.
func says(t *testing.T, within time.Duration, a *v1alpha1.IPAllocation, want string) {
	t.Helper()
	suite.Eventually(t, within, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady); ready == nil || !strings.Contains(ready.Message, want) {
			return fmt.Errorf("Ready is %+v", ready)
		}
		return nil
	})
}

func TestGrant_EndsWhereTheClaimCannotBeWritten(t *testing.T) {
	suite.SkipShort(t)
	ns := namespace(t)
	labels, end := unreachable(t, ns, admissionregistrationv1.Update)
	a := unwritable(t, ns, "10.37.0.0/30", labels)
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if len(openGrants(t, ns)) == 0 {
			return errors.New("no grant is open")
		}
		return nil
	})
	says(t, 2*grantLife, a, "could not be written: a range is granted again")
	end()
	says(t, 2*time.Minute, a, "4 IPs allocated")
	if addressesOf(a) != "10.37.0.0-10.37.0.3" || a.Status.Phase != v1alpha1.PhaseAllocated {
		t.Errorf("it has %q, phase %s", addressesOf(a), a.Status.Phase)
	}
}

// Each look at the pool, as with every create and delete there, granted it a range anew.
func TestDeniedWrite_ByAPolicy(t *testing.T) {
	ns := namespace(t)
	a := unwritable(t, ns, "10.45.0.0/28", refused(t, ns, admissionregistrationv1.Update))
	says(t, suite.Soon, a, "refused by a policy: change the cause of the denial")
	for i := range 50 {
		other := claim(ns, fmt.Sprint("other-", i), 1)
		suite.Create(t, admin, other)
		suite.Delete(t, admin, other)
	}
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if open := openGrants(t, ns); len(open) > 0 {
			return fmt.Errorf("%d grants are open", len(open))
		}
		return nil
	})
	suite.AwaitEvent(t, admin, a, "AllocationFailed", "refused by a policy")
	policy := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	policy.Name = ns
	suite.Delete(t, admin, policy)
	says(t, 2*time.Minute, a, "4 IPs allocated")
}

// The refusal is as good where it takes a while, as that of a webhook does which asks
// others first, and where its code says something else.
func TestDeniedWrite_ByAWebhook(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		code  int32
		cidr  string
	}{
		{"slowly", 1500 * time.Millisecond, http.StatusForbidden, "10.53.0.0/28"},
		{"as overtaken", 0, http.StatusConflict, "10.54.0.0/28"},
		{"as gone", 0, http.StatusNotFound, "10.55.0.0/28"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := namespace(t)
			labels, end := reluctant(t, ns, "ipallocations", tc.takes, tc.code)
			a := unwritable(t, ns, tc.cidr, labels)
			says(t, suite.Soon, a, "refused after a while: change the cause of the denial")
			for i := range 50 { // each has the ledger asked for those that wait
				other := claim(ns, fmt.Sprint("other-", i), 1)
				suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Create(ctx, other) }) // the pool may be full until a release is recorded
				if err := admin.Delete(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			suite.Eventually(t, suite.Soon, func(context.Context) error {
				if open := openGrants(t, ns); len(open) > 0 {
					return fmt.Errorf("%d grants are open", len(open))
				}
				return nil
			})
			end()
			says(t, 2*time.Minute, a, "4 IPs allocated")
		})
	}
}

// Nothing but the status is missing, and nothing changes the object any more that would
// have it looked at.
func TestDeniedWrite_StatusIsWrittenLater(t *testing.T) {
	ns := namespace(t)
	labels, end := reluctant(t, ns, "ipallocations/status", 0, http.StatusConflict)
	suite.Create(t, admin, pool(ns, "10.56.0.0/28"))
	first, a := claim(ns, "first", 1), claim(ns, "a", 1)
	first.Labels, a.Labels = labels, labels
	suite.Create(t, admin, first)
	suite.Eventually(t, time.Minute, func(ctx context.Context) error {
		if err := admin.Status().Patch(ctx, first, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Pending"}}`)), client.DryRunAll); err == nil {
			return errors.New("nothing refuses a write yet")
		}
		return nil
	})
	suite.Create(t, admin, a)
	time.Sleep(3 * time.Second) // of all that brings it up there is nothing left by then
	end()
	says(t, time.Minute, a, "1 IP allocated")
}

// Each look at the claims of a pool takes some seconds at most: what comes last would
// never have its turn.
func TestDeniedWrite_SlowDenialDelaysNoOtherClaim(t *testing.T) {
	suite.SkipShort(t)
	ns := namespace(t)
	labels, end := reluctant(t, ns, "ipallocations/status", 4*time.Second, http.StatusForbidden)
	defer end()
	first := claim(ns, "old-0", 100) // more than its pool will have
	first.Labels = labels
	suite.Create(t, admin, first)
	suite.Eventually(t, time.Minute, func(ctx context.Context) error {
		if err := admin.Status().Patch(ctx, first, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Pending"}}`)), client.DryRunAll); err == nil {
			return errors.New("nothing refuses a write yet")
		}
		return nil
	})
	for i := range 40 {
		a := claim(ns, fmt.Sprintf("old-%d", i+1), 100)
		a.Labels = labels
		suite.Create(t, admin, a)
	}
	time.Sleep(time.Second) // they are older by that
	young := claim(ns, "young", 1)
	suite.Create(t, admin, young, pool(ns, "10.91.0.0/28"))
	says(t, 45*time.Second, young, "1 IP allocated")
}
