package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// The grants end as those of creates do, and under the roles that a manager has.
func TestGrantsToAClaimThatNobodyMayWriteToEnd(t *testing.T) {
	ns := namespace(t)
	a := claim(ns, "a", 4)
	a.Labels = refused(t, ns, admissionregistrationv1.Update)
	suite.Create(t, admin, a)
	suite.Eventually(t, time.Minute, func(ctx context.Context) error {
		if err := admin.Patch(ctx, a, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":"y"}}}`)), client.DryRunAll); err == nil {
			return errors.New("the policy refuses nothing yet")
		}
		return nil
	})
	suite.Create(t, admin, pool(ns, "10.37.0.0/30"))
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if len(openGrants(t, ns)) == 0 {
			return errors.New("no grant is open")
		}
		return nil
	})
	looks := func(ready func(message string) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
				return err
			}
			return ready(meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady).Message)
		}
	}
	suite.Eventually(t, 2*grantLife, looks(func(message string) error {
		if !strings.Contains(message, "could not be written and is given anew") {
			return fmt.Errorf("Ready says %q", message)
		}
		return nil
	}))
	policy := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	policy.Name = ns
	suite.Delete(t, admin, policy)
	suite.Eventually(t, 2*time.Minute, looks(func(message string) error {
		if addressesOf(a) != "10.37.0.0-10.37.0.3" || a.Status.Phase != v1alpha1.PhaseAllocated {
			return fmt.Errorf("it has %q, and Ready says %q", addressesOf(a), message)
		}
		return nil
	}))
}
