package replicas

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks"
)

// answer is the response of a manager to a call on its webhook port.
type answer struct {
	code     int // HTTP
	response *admissionv1.AdmissionResponse
	stored   v1alpha1.IPAllocation // what the API server would go on with
	err      error
}

// ask sends the admission review of a create directly to a manager, without the API
// server.
func ask(ctx context.Context, m *sandbox.Manager, path string, a *v1alpha1.IPAllocation) (is answer) {
	object, err := json.Marshal(a)
	if err != nil {
		return answer{err: err}
	}
	kind := metav1.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "IPAllocation"}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(path + a.Name), Operation: admissionv1.Create, Kind: kind, Namespace: a.Namespace, Name: a.Name, Object: runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		return answer{err: err}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+m.WebhookAddress+path+"?timeout=10s", bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.Config().CAData)
	direct := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	response, err := direct.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	if is.code = response.StatusCode; is.code != http.StatusOK {
		return is
	}
	var review admissionv1.AdmissionReview
	if is.err = json.NewDecoder(response.Body).Decode(&review); is.err != nil {
		return is
	}
	is.response = review.Response
	if len(is.response.Patch) == 0 {
		return is
	}
	patch, err := jsonpatch.DecodePatch(is.response.Patch)
	if err != nil {
		return answer{err: err}
	}
	if object, err = patch.Apply(object); err != nil {
		return answer{err: err}
	}
	is.err = json.Unmarshal(object, &is.stored)
	return is
}

// A restored claim carries the range and the token of its earlier allocation and gets a
// new grant. This holds also if the leader is lost after the first webhook call: the API
// server's second call then receives a claim that looks as if it were already allocated.
func TestRestore_WhileTheLeaderIsLost(t *testing.T) {
	namespace := newPool(t, 28)
	var backup []*v1alpha1.IPAllocation
	for i := range 12 {
		a := load.Claim(namespace, fmt.Sprintf("restored-%d", i))
		created(t, a)
		b := load.Claim(namespace, a.Name)
		b.Spec, b.Annotations = a.Spec, a.Annotations
		backup = append(backup, b)
	}
	for _, b := range backup {
		deleted(t, b)
	}
	was := leader(t)
	if err := was.Freeze(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := was.Thaw(); err != nil {
			t.Error(err)
		}
	})
	var group errgroup.Group
	for _, b := range backup {
		group.Go(func() error {
			if err := admin.Create(t.Context(), b.DeepCopy()); err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
				return fmt.Errorf("%s failed otherwise than on the wire: %w", b.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	nextLeader(t, was)
}

// A leader that was frozen, and replaced in the meantime, finds calls at its port when it
// resumes. It still considers itself the leader, and its information about owned
// addresses is stale.
func TestFailover_ResumedLeaderRespondsFromTheNewTerm(t *testing.T) {
	namespace := newPool(t, 29)
	was := leader(t)
	freed, taken := load.Claim(namespace, "freed"), load.Claim(namespace, "taken")
	created(t, freed)
	if err := was.Freeze(); err != nil {
		t.Fatal(err)
	}
	thaw := sync.OnceValue(was.Thaw)
	t.Cleanup(func() { _ = thaw() }) // else no later test has all replicas
	is := nextLeader(t, was)
	created(t, taken) // before the other is freed: else this, or the grant below, would get that address
	granted := ask(t.Context(), is, webhooks.MutateIPAllocation, load.Claim(namespace, "granted"))
	if granted.err != nil || granted.response == nil || !granted.response.Allowed {
		t.Fatalf("the next leader grants nothing: %+v", granted)
	}
	deleted(t, freed)

	pinned := func(name string, r *v1alpha1.PinnedIPRange) *v1alpha1.IPAllocation {
		a := load.Claim(namespace, name)
		a.Spec.Count, a.Spec.PinnedRange = nil, r
		return a
	}
	last := &v1alpha1.PinnedIPRange{StartAddress: lastOf(t, namespace), EndAddress: lastOf(t, namespace)}
	calls := []struct {
		path    string
		claim   *v1alpha1.IPAllocation
		allowed bool
		answer  chan answer
	}{
		{path: webhooks.MutateIPAllocation, claim: pinned("wants-what-was-freed", freed.Spec.PinnedRange), allowed: true},
		{path: webhooks.MutateIPAllocation, claim: pinned("wants-what-was-taken", taken.Spec.PinnedRange)},
		{path: webhooks.MutateIPAllocation, claim: pinned("wants-what-was-granted", granted.stored.Spec.PinnedRange)},
		{path: webhooks.MutateIPAllocation, claim: pinned("wants-what-is-free", last), allowed: true},
		{path: webhooks.ValidateIPAllocation, claim: &granted.stored, allowed: true},
	}
	for i := range calls {
		c := &calls[i]
		c.answer = make(chan answer, 1)
		go func() { c.answer <- ask(t.Context(), was, c.path, c.claim) }()
	}
	time.Sleep(time.Second) // the calls wait at its port by then
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	answered := 0
	for _, c := range calls {
		a := <-c.answer
		if a.code == http.StatusServiceUnavailable {
			t.Logf("%s: another replica is to be asked", c.claim.Name)
			continue
		}
		answered++
		switch {
		case a.err != nil:
			t.Errorf("%s: %v", c.claim.Name, a.err)
		case a.response.Allowed != c.allowed:
			t.Errorf("%s: allowed is %t, want %t: %v", c.claim.Name, a.response.Allowed, c.allowed, a.response.Result)
		case a.stored.Spec.PinnedRange != nil:
			inJournal(t, &a.stored)
		}
	}
	if answered == 0 {
		t.Error("the former leader has answered no call: the test shows nothing")
	}
	if now := leader(t); now != is {
		t.Errorf("%s is the leader after the former leader resumed, want %s", now.Name(), is.Name())
	}
}

// lastOf returns the last address of a namespace's pool.
func lastOf(t *testing.T, namespace string) string {
	t.Helper()
	var pool v1alpha1.NetworkPool
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "pool"}, &pool); err != nil {
		t.Fatal(err)
	}
	return allocator.RangeOfPrefix(netip.MustParsePrefix(pool.Spec.CIDR)).Last.String()
}

// journalEntries lists the entries of the journal.
func journalEntries(t *testing.T) []journal.Entry {
	t.Helper()
	store, err := journal.NewLeaseStore(cluster.Config(), sandbox.ManagerNamespace, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	v, err := store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v.Entries
}

// inJournal fails the test unless the journal contains the range and the token of a
// response.
func inJournal(t *testing.T, a *v1alpha1.IPAllocation) {
	t.Helper()
	for _, l := range journalEntries(t) {
		if l.Token.String() == a.Annotations[v1alpha1.AnnotationGrant] && l.Ranges[0].First.String() == a.Spec.PinnedRange.StartAddress {
			return
		}
	}
	t.Errorf("%s was answered %s, which is not in the journal", a.Name, a.Spec.PinnedRange.StartAddress)
}

// nextLeader waits until another manager is the leader.
func nextLeader(t *testing.T, was *sandbox.Manager) *sandbox.Manager {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if is := leader(t); is != was {
			return is
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s is frozen and still holds the journal", was.Name())
	return nil
}

// created creates an allocation, and deleted deletes an allocation and waits until it is
// gone. Both repeat failed calls: the API server may still use connections to a frozen
// manager.
func created(t *testing.T, a *v1alpha1.IPAllocation) {
	t.Helper()
	suite.Eventually(t, patience, func(ctx context.Context) error { return admin.Create(ctx, a) })
}

func deleted(t *testing.T, a *v1alpha1.IPAllocation) {
	t.Helper()
	suite.Eventually(t, patience, func(ctx context.Context) error {
		err := admin.Delete(ctx, a.DeepCopy())
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}
