package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// The page of a range reports addresses that no pool offers as not offered, and has a
// claim to copy only for free addresses of a pool.
func TestAddress_DividesRunsAtPoolBorders(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	var list report.List[report.Segment]
	if err := json.Unmarshal([]byte(mustGet(t, h, "/address.json?address=10.40.0.41-10.40.0.255")), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list.Items {
		got = append(got, strings.TrimSpace(s.Range+" "+s.State+" "+s.RoutingDomain))
	}
	want := []string{"10.40.0.41-10.40.0.55 free", "10.40.0.56-10.40.0.59 not offered", "10.40.0.60 free", "10.40.0.61-10.40.0.255 not offered", "10.40.0.41-10.40.0.255 free corp"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := strings.Count(mustGet(t, h, "/address?address=10.40.0.41-10.40.0.255"), "copy a claim"); n != 3 {
		t.Errorf("the page has %d claims to copy, want 3: one for each free run", n)
	}
}

// The page of an address in cooldown names the claim of the recorded release, but has no
// command that reads the deleted claim.
func TestAddress_NamesReleaserOfCooldown(t *testing.T) {
	page := mustGet(t, handlerOf(newInventory(t, objects())), "/address?address=10.40.0.20")
	if !strings.Contains(page, "<dt>Released by</dt><dd>IPAllocation ns/gone</dd>") || strings.Contains(page, "kubectl get") {
		t.Error(mainOf(page))
	}
}

// The page of an address says that its owner is being deleted.
func TestAddress_OwnerIsBeingDeleted(t *testing.T) {
	i := newInventory(t, objects())
	leaving := allocation("vlan40", "leaving", "web", "10.40.0.50", "10.40.0.50", butlerv1.TypeNodes)
	at := metav1.NewTime(now)
	leaving.DeletionTimestamp, leaving.Finalizers = &at, []string{butlerv1.FinalizerIPAllocation}
	i.Add(leaving)
	if page := mustGet(t, handlerOf(i), "/address?address=10.40.0.50"); !strings.Contains(page, "owned by IPAllocation ns/leaving, which is being deleted") {
		t.Error(mainOf(page))
	}
}
