package services

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// waitingService returns a Service of this age in minutes.
func waitingService(name, pool, family string, age int) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, CreationTimestamp: metav1.Unix(1e9-60*int64(age), 0),
		Annotations: map[string]string{v1alpha1.AnnotationAddressPool: pool, v1alpha1.AnnotationAddressFamily: family},
	}}
}

// text returns the names of Services.
func text(names []types.NamespacedName) string {
	var all []string
	for _, name := range names {
		all = append(all, name.Name)
	}
	return strings.Join(all, " ")
}

func TestWaitingServices_Lines(t *testing.T) {
	exhausted := &denial{message: "0 free", forPool: true, field: "spec.poolRef"}
	w := newWaitingServices()
	record := func(s *corev1.Service, about *denial) string {
		_, follower := w.record(s, about, true)
		return text(follower)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q follow, want %q", what, got, want)
		}
	}
	old, middle, young := waitingService("old", "a", "", 3), waitingService("middle", "a", "ipv4", 2), waitingService("young", "a", "", 1)
	for _, s := range []*corev1.Service{young, old, middle} {
		expect("nobody follows a Service that begins to wait", record(s, exhausted), "")
	}
	record(waitingService("six", "a", "ipv6", 4), exhausted)
	record(waitingService("elsewhere", "b", "", 9), exhausted)
	exact := waitingService("exact", "a", "", 5)
	exact.Spec.LoadBalancerIP = "10.0.0.9"
	record(exact, &denial{message: "owned", forPool: true, field: "spec.address"})
	record(waitingService("faulty", "a", "", 8), &denial{message: "a fault", forPool: true, field: "spec.bgpConfig.asn"})
	record(waitingService("policy", "a", "", 9), &denial{message: "a policy"})
	record(waitingService("promised", "a", "", 9), &denial{message: "promised", forPool: true, transient: true, field: "spec.address"})

	before := w.changesOf("a")
	expect("the pool has changed", text(w.poolChanged("a")), "faulty exact six old")
	if w.changesOf("a") == before {
		t.Error("the change of the pool is not counted")
	}
	expect("the oldest Service is denied again", record(old, exhausted), "")
	expect("the oldest Service has addresses", text(w.forget(client.ObjectKeyFromObject(old))), "middle")
	expect("a Service is denied by a policy", record(middle, &denial{message: "a policy"}), "young")
	expect("a Service that is in no line has addresses", text(w.forget(client.ObjectKeyFromObject(middle))), "")
	expect("the last Service has addresses", text(w.forget(client.ObjectKeyFromObject(young))), "")
	expect("the pool has changed again", text(w.poolChanged("a")), "faulty exact six")
}

func TestWaitingServices_ReportEachCauseOnce(t *testing.T) {
	w, s := newWaitingServices(), waitingService("web", "a", "", 1)
	var reported []bool
	for _, step := range []struct {
		message string
		due     bool
	}{{"full", true}, {"full", true}, {"policy", false}, {"policy", true}, {"policy", true}} {
		isNew, _ := w.record(s, &denial{message: step.message, forPool: true}, step.due)
		reported = append(reported, isNew)
	}
	if want := []bool{true, false, false, true, false}; !slices.Equal(reported, want) {
		t.Errorf("reported: %t, want %t", reported, want)
	}
}
