package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// Names of the webhooks in config/webhook.
const (
	mutateFirst = "first.ipallocation.butler.butlerlabs.dev"
	mutate      = "ipallocation.butler.butlerlabs.dev"
	validate    = "validate ipallocation.butler.butlerlabs.dev"
	poolMutate  = "networkpool.butler.butlerlabs.dev"
	poolCheck   = "validate networkpool.butler.butlerlabs.dev"
	poolDelete  = "validate delete.networkpool.butler.butlerlabs.dev"
)

// recorder allows every request that it is sent, and remembers which webhook it was sent
// to. It answers an allocation as the allocator would, except through the webhooks that
// are down.
type recorder struct {
	mu    sync.Mutex
	calls []string
	down  []string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	name := strings.ReplaceAll(strings.Trim(request.URL.Path, "/"), "/", " ")
	review := admissionv1.AdmissionReview{}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, name)
	if slices.Contains(r.down, name) {
		http.Error(w, "down", http.StatusInternalServerError)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if name == mutateFirst || name == mutate {
		patchType := admissionv1.PatchTypeJSONPatch
		response.PatchType, response.Patch = &patchType, []byte(`[
			{"op": "add", "path": "/spec/pinnedRange", "value": {"startAddress": "10.40.0.64", "endAddress": "10.40.0.68"}},
			{"op": "add", "path": "/metadata/annotations", "value": {"butler.butlerlabs.dev/grant": "AAAAAAAAAAAAAAAA", "butler.butlerlabs.dev/origin": "auto"}}]`)
	}
	review.Request, review.Response = nil, response
	if err := json.NewEncoder(w).Encode(review); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// during returns what was called while do ran, with the named webhooks down.
func (r *recorder) during(do func(), down ...string) []string {
	r.mu.Lock()
	r.calls, r.down = nil, down
	r.mu.Unlock()
	do()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// record sends the requests that config/webhook asks for, in one namespace of its own, to
// a recorder.
func record(t *testing.T) (r *recorder, namespace string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "webhook-calls-"}}
	suite.CreateForTest(t, admin, ns)
	namespace = ns.Name
	r = &recorder{}
	server := httptest.NewTLSServer(r)
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	text, err := os.ReadFile("../../config/webhook/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		configuration := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &configuration.Object); err != nil {
			t.Fatal(err)
		}
		path := "/"
		if configuration.GetKind() == "ValidatingWebhookConfiguration" {
			path = "/validate/"
		}
		webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, webhook := range webhooks {
			fields := webhook.(map[string]any)
			fields["clientConfig"] = map[string]any{
				"url":      server.URL + path + fields["name"].(string),
				"caBundle": base64.StdEncoding.EncodeToString(authority),
			}
			fields["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: namespace}}
		}
		if err := unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"); err != nil {
			t.Fatal(err)
		}
		suite.CreateForTest(t, admin, configuration)
	}
	// The API server learns of the configurations by watching them.
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		calls := r.during(func() {
			probe := newClaim("probe")
			probe.Namespace = namespace
			err = admin.Create(ctx, probe, client.DryRunAll)
		})
		if !slices.Contains(calls, mutateFirst) || !slices.Contains(calls, validate) {
			return errors.Join(errors.New("the webhooks are not called yet"), err)
		}
		return err
	})
	return r, namespace
}

// current reads an object, and waits until the API server's own cache shows it like that:
// on what was changed since it asks the webhooks in vain, and then again.
func current(t *testing.T, o client.Object) {
	t.Helper()
	err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if err == nil {
		err = admin.Get(t.Context(), client.ObjectKeyFromObject(o), o, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: o.GetResourceVersion()}})
	}
	if err != nil {
		t.Error(err)
	}
}

func TestWebhookRules_ClaimsAndPools(t *testing.T) {
	r, namespace := record(t)
	expect := func(what string, calls []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", what, diff)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	claimNamed := func(name string) *v1alpha1.IPAllocation {
		a := newClaim(name)
		a.Namespace = namespace
		return a
	}

	a := claimNamed("answered")
	expect("a create", r.during(func() { must(admin.Create(t.Context(), a)) }), mutateFirst, validate)
	second := claimNamed("second")
	expect("a create whose first call fails", r.during(func() { must(admin.Create(t.Context(), second)) }, mutateFirst), mutateFirst, mutate, validate)
	expect("a create whose calls fail", r.during(func() {
		if err := admin.Create(t.Context(), claimNamed("third")); !apierrors.IsInternalError(err) {
			t.Errorf("want an internal error, got %v", err)
		}
	}, mutateFirst, mutate), mutateFirst, mutate)
	pinned := claimNamed("pinned")
	pinned.Spec.PinnedRange = a.Spec.PinnedRange
	expect("a create with a range, whose first call fails", r.during(func() { must(admin.Create(t.Context(), pinned)) }, mutateFirst), mutateFirst, mutate, validate)

	update := func(change func(*v1alpha1.IPAllocation)) func() {
		return func() {
			t.Helper()
			current(t, a)
			change(a)
			must(admin.Update(t.Context(), a))
		}
	}
	expect("a label", r.during(update(func(a *v1alpha1.IPAllocation) { a.Labels = map[string]string{"a": "b"} })))
	expect("a finalizer", r.during(update(func(a *v1alpha1.IPAllocation) { a.Finalizers = []string{v1alpha1.FinalizerIPAllocation} })))
	expect("another annotation", r.during(update(func(a *v1alpha1.IPAllocation) { a.Annotations["a"] = "b" })))
	expect("the token removed", r.during(update(func(a *v1alpha1.IPAllocation) { delete(a.Annotations, v1alpha1.AnnotationGrant) })), mutateFirst)
	expect("the token changed", r.during(update(func(a *v1alpha1.IPAllocation) { a.Annotations[v1alpha1.AnnotationGrant] = "BBBBBBBBBBBBBBBB" })), mutateFirst)
	expect("the origin changed", r.during(update(func(a *v1alpha1.IPAllocation) { a.Annotations[v1alpha1.AnnotationOrigin] = "pinned" })), mutateFirst)
	expect("all annotations removed", r.during(update(func(a *v1alpha1.IPAllocation) { a.Annotations = nil }), mutateFirst), mutateFirst, mutate)
	expect("the range removed", r.during(update(func(a *v1alpha1.IPAllocation) { a.Spec.PinnedRange = nil }), mutateFirst), mutateFirst, mutate)
	expect("a count", r.during(update(func(a *v1alpha1.IPAllocation) { count := int32(5); a.Spec.Count = &count })), mutateFirst, validate)
	expect("the status", r.during(func() {
		current(t, a)
		a.Status.Phase = v1alpha1.PhaseAllocated
		must(admin.Status().Update(t.Context(), a))
	}))
	everything := []string{mutateFirst, mutate, validate}
	current(t, a)
	expect("a delete while nobody answers", r.during(func() { must(admin.Delete(t.Context(), a)) }, everything...))
	expect("a finalizer's removal while nobody answers", r.during(update(func(a *v1alpha1.IPAllocation) {
		a.Finalizers, a.Annotations = nil, nil
	}), everything...))

	p := newPool("pool")
	p.Namespace = namespace
	expect("a new pool", r.during(func() { must(admin.Create(t.Context(), p)) }), poolMutate, poolCheck)
	expect("a pool's label and finalizer", r.during(func() {
		current(t, p)
		p.Labels, p.Finalizers = map[string]string{"a": "b"}, []string{v1alpha1.FinalizerNetworkPool}
		must(admin.Update(t.Context(), p))
	}))
	expect("a pool's spec", r.during(func() {
		current(t, p)
		p.Spec.CIDR = "10.40.0.0/23"
		must(admin.Update(t.Context(), p))
	}), poolCheck)
	expect("a pool's status", r.during(func() {
		current(t, p)
		p.Status.TotalIPs = 512
		must(admin.Status().Update(t.Context(), p))
	}))
	current(t, p)
	expect("a pool's delete while nobody answers", r.during(func() { must(admin.Delete(t.Context(), p)) }, poolCheck, poolDelete), poolDelete)
	expect("a pool's last finalizer while nobody answers", r.during(func() {
		current(t, p)
		p.Finalizers = nil
		must(admin.Update(t.Context(), p))
	}, poolCheck, poolDelete))
}

func TestWebhookRules_IPAddresses(t *testing.T) {
	r, namespace := record(t)
	config, err := cluster.ConfigFor("system:serviceaccount:butler-ipam-system:butler-ipam", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	manager, err := client.New(config, client.Options{Scheme: admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	const check = "validate ipaddress.ipam.metal3.io"
	for _, writer := range []struct {
		name          string
		client        client.Client
		create, whose []string
	}{
		{"somebody", admin, []string{"first.ipaddress.ipam.metal3.io", "ipaddress.ipam.metal3.io", check}, []string{check}},
		{"manager", manager, nil, nil},
	} {
		a := &metal3.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: writer.name}, Spec: metal3.IPAddressSpec{
			Address: "10.0.0.1", Pool: corev1.ObjectReference{Name: "p"}, Claim: corev1.ObjectReference{Name: "c"},
		}}
		expect := func(what string, want []string, do func() error, down ...string) {
			t.Helper()
			calls := r.during(func() {
				if err := do(); err != nil {
					t.Errorf("%s, %s: %v", writer.name, what, err)
				}
			}, down...)
			if diff := cmp.Diff(want, calls, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, %s: calls (-want +got):\n%s", writer.name, what, diff)
			}
		}
		update := func(change func()) func() error {
			return func() error {
				current(t, a)
				change()
				return writer.client.Update(t.Context(), a)
			}
		}
		expect("a create", writer.create, func() error { return writer.client.Create(t.Context(), a) })
		expect("a label and a finalizer while nobody answers", nil, update(func() {
			a.Labels, a.Finalizers = map[string]string{"a": "b"}, []string{"example.com/kept"}
		}), check)
		expect("a prefix while nobody answers", nil, update(func() { a.Spec.Prefix = 24 }), check)
		expect("another pool", writer.whose, update(func() { a.Spec.Pool.UID = "u" }))
		expect("another claim", writer.whose, update(func() { a.Spec.Claim.UID = "u" }))
		expect("a delete while nobody answers", nil, func() error { return writer.client.Delete(t.Context(), a) }, check)
		expect("another pool of what goes", writer.whose, update(func() { a.Spec.Pool.UID = "v" }))
		expect("the last finalizer while nobody answers", nil, update(func() { a.Finalizers = nil }), check)
	}
}
