package butler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// alone makes a namespace for a test that measures times, or counts writes, and runs
// beside no other.
func alone(t *testing.T) string {
	t.Helper()
	suite.SkipShort(t)
	return suite.CreateNamespace(t, admin)
}

// domainPool is pool in a routing domain named after its namespace.
func domainPool(namespace, cidr string, ranges ...string) *v1alpha1.NetworkPool {
	p := pool(namespace, cidr, ranges...)
	p.Spec.RoutingDomain = namespace
	return p
}

// halfPool is the pool of Butler's own tests: 128 of 256 addresses.
func halfPool(namespace string) *v1alpha1.NetworkPool {
	return domainPool(namespace, "10.40.0.0/24", "10.40.0.128-10.40.0.255")
}

func isReady(a *v1alpha1.IPAllocation) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady)
}

// readyWith waits until an allocation is Ready with these addresses, any where want is
// "".
func readyWith(t *testing.T, c client.Reader, a *v1alpha1.IPAllocation, want string) {
	t.Helper()
	suite.AwaitObject(t, c, a, func(a *v1alpha1.IPAllocation) string {
		if !isReady(a) || want != "" && addressesOf(a) != want {
			return fmt.Sprintf("range %q, want %q, conditions %+v", addressesOf(a), want, a.Status.Conditions)
		}
		return ""
	})
}

// unready waits until condition Ready of an allocation is False for a reason and says
// this, and gives the phase.
func unready(t *testing.T, c client.Reader, a *v1alpha1.IPAllocation, reason, part string) v1alpha1.IPAllocationPhase {
	t.Helper()
	suite.AwaitObject(t, c, a, func(a *v1alpha1.IPAllocation) string {
		is := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
		if is == nil || is.Status != metav1.ConditionFalse || is.Reason != reason || !strings.Contains(is.Message, part) {
			return fmt.Sprintf("Ready is %+v, want False/%s: …%s…", is, reason, part)
		}
		return ""
	})
	return a.Status.Phase
}

// count is how many allocations of a namespace are so.
func count(ctx context.Context, c client.Reader, namespace string, is func(*v1alpha1.IPAllocation) bool) (n int, err error) {
	var list v1alpha1.IPAllocationList
	err = c.List(ctx, &list, client.InNamespace(namespace))
	for i := range list.Items {
		if is(&list.Items[i]) {
			n++
		}
	}
	return n, err
}

// counts waits until as many allocations of a namespace are so.
func counts(t *testing.T, c client.Reader, namespace string, want int, is func(*v1alpha1.IPAllocation) bool) {
	t.Helper()
	suite.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
		n, err := count(ctx, c, namespace, is)
		if err == nil && n != want {
			err = fmt.Errorf("%d allocations, want %d", n, want)
		}
		return err
	})
}

func anyAllocation(*v1alpha1.IPAllocation) bool { return true }

// createLater stores an allocation with a later creationTimestamp than another's, which
// has whole seconds only.
func createLater(t *testing.T, c client.Client, than, a *v1alpha1.IPAllocation) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if !time.Now().After(than.CreationTimestamp.Add(time.Second)) {
			return errors.New("the second is not over")
		}
		return nil
	})
	suite.Create(t, c, a)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func TestIPAllocation_Status(t *testing.T) {
	ns := alone(t)
	suite.Create(t, admin, halfPool(ns))
	a, eight := claim(ns, "five", 5), pinned(ns, "eight", "10.40.0.136-10.40.0.143")
	suite.Create(t, admin, a)
	readyWith(t, admin, a, "10.40.0.128-10.40.0.132")
	s := a.Status
	if s.Phase != v1alpha1.PhaseAllocated || s.StartAddress != "10.40.0.128" || s.EndAddress != "10.40.0.132" || s.AllocatedCount != 5 || s.ObservedGeneration != a.Generation {
		t.Errorf("status %+v", s)
	}
	if diff := cmp.Diff([]string{"10.40.0.128", "10.40.0.129", "10.40.0.130", "10.40.0.131", "10.40.0.132"}, s.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if s.CIDR != "" {
		t.Errorf("five addresses are no network, cidr is %q", s.CIDR)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonAllocated || c.Message != "5 IPs allocated from pool" {
		t.Errorf("Ready is %+v", c)
	}
	if reasons := suite.AwaitEvent(t, admin, a, "IPsAllocated", ""); len(reasons) != 1 {
		t.Errorf("events %q", reasons)
	}
	suite.Create(t, admin, eight)
	readyWith(t, admin, eight, "")
	if eight.Status.CIDR != "10.40.0.136/29" {
		t.Errorf("cidr of %s is %q", addressesOf(eight), eight.Status.CIDR)
	}
}

func TestIPAllocation_ReadyWithinASecondByOneWrite(t *testing.T) {
	ns := alone(t)
	suite.Create(t, admin, halfPool(ns))
	var lags []time.Duration
	for i := range 20 {
		a := claim(ns, fmt.Sprintf("quick-%02d", i), 2)
		suite.Create(t, admin, a)
		created := time.Now()
		if n := writesUntil(t, a, isReady); n != 1 {
			t.Errorf("%s is Ready after %d writes", a.Name, n)
		}
		lags = append(lags, time.Since(created))
	}
	if m := median(lags); m >= time.Second {
		t.Errorf("median of %v", lags)
	}
}

// writesUntil counts the updates of an allocation from the version given until it is
// done.
func writesUntil(t *testing.T, a *v1alpha1.IPAllocation, done func(*v1alpha1.IPAllocation) bool) (n int) {
	t.Helper()
	w, err := admin.Watch(t.Context(), &v1alpha1.IPAllocationList{}, client.InNamespace(a.Namespace), client.MatchingFields{"metadata.name": a.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: a.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for {
		event := next(t, w)
		if event.Type != watch.Modified {
			continue
		}
		if n++; done(event.Object.(*v1alpha1.IPAllocation)) {
			return n
		}
	}
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event := <-w.ResultChan():
		return event
	case <-time.After(suite.Soon):
		t.Fatal("no event")
		return watch.Event{}
	}
}

func TestIPAllocation_StatusListsUpTo4096Addresses(t *testing.T) {
	ns := alone(t)
	limit, above := claim(ns, "at-the-limit", 4096), claim(ns, "above", 4097)
	suite.Create(t, admin, domainPool(ns, "10.64.0.0/18"), limit, above)
	readyWith(t, admin, limit, "")
	readyWith(t, admin, above, "")
	if n := len(limit.Status.Addresses); n != 4096 {
		t.Errorf("%d of 4,096 addresses are listed", n)
	}
	message := meta.FindStatusCondition(above.Status.Conditions, v1alpha1.ConditionReady).Message
	if s := above.Status; len(s.Addresses) > 0 || s.AllocatedCount != 4097 || !strings.Contains(message, "not listed") {
		t.Errorf("%d of %d addresses are listed: %s", len(s.Addresses), s.AllocatedCount, message)
	}
}

func TestIPAllocation_RemovedMetadataAndStatusComeBack(t *testing.T) {
	ns := alone(t)
	suite.Create(t, admin, halfPool(ns))
	a := claim(ns, "stripped", 3)
	suite.Create(t, admin, a)
	readyWith(t, admin, a, "")
	labels, addresses := a.Labels, a.Status.Addresses
	if labels[v1alpha1.LabelNetworkPool] != "pool" {
		t.Errorf("labels %v", labels)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null,"labels":null}}`))
	if err := admin.Patch(t.Context(), a, patch); err != nil || len(a.Finalizers) > 0 {
		t.Fatalf("finalizers %q, %v", a.Finalizers, err)
	}
	suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAllocation) string {
		if !slices.Equal(a.Finalizers, []string{v1alpha1.FinalizerIPAllocation}) || !cmp.Equal(labels, a.Labels) {
			return fmt.Sprintf("finalizers %q, labels %v", a.Finalizers, a.Labels)
		}
		return ""
	})
	a.Status = v1alpha1.IPAllocationStatus{}
	if err := admin.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	readyWith(t, admin, a, "")
	if !slices.Equal(addresses, a.Status.Addresses) {
		t.Errorf("addresses %q, want %q", a.Status.Addresses, addresses)
	}
}
