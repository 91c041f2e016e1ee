// Package suite is what the tests on an API server have in common: one sandbox for a package of them, a client that may do everything there, and
// steps that end a test with what is wrong.
package suite

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// Soon bounds the wait for a state that comes about in milliseconds on an idle machine.
const Soon = 30 * time.Second

// parallel is how many tests of a package run at once: those that do mostly wait, and more of them than there are processors.
const parallel = "8"

// pollGap is the time between two looks at a state that is waited for.
const pollGap = 20 * time.Millisecond

// Main runs the tests of a package on one sandbox and ends the process. prepare gets it before the first test. It fails where a manager has asked
// for more than its role allows. What ended does comes before the sandbox stops.
func Main(m *testing.M, o sandbox.Options, prepare func(context.Context, *sandbox.Sandbox) error, ended ...func() error) {
	os.Exit(Run(m, o, prepare, ended...))
}

// Run is Main without the end of the process, of which it returns the code.
func Run(m *testing.M, o sandbox.Options, prepare func(context.Context, *sandbox.Sandbox) error, ended ...func() error) int {
	code, err := run(m, o, prepare, ended)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M, o sandbox.Options, prepare func(context.Context, *sandbox.Sandbox) error, ended []func() error) (code int, err error) {
	ctx := context.Background()
	s, err := sandbox.Start(ctx, o)
	if err != nil {
		return 1, err
	}
	defer func() {
		for _, end := range append([]func() error{s.WithinRights}, append(ended, s.Stop)...) {
			err = errors.Join(err, end())
		}
	}()
	if err := prepare(ctx, s); err != nil {
		return 1, err
	}
	if err := flag.Set("test.parallel", parallel); err != nil { // what the command line says comes after it
		return 1, err
	}
	return m.Run(), nil
}

// Client is the administrator's. It knows every kind that the tests have, is not throttled and prints no warnings: tests that look at those use
// kubectl. The configuration is changed before it is made.
func Client(s *sandbox.Sandbox, change ...func(*rest.Config)) (client.WithWatch, error) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme,
		butlerv1.AddToScheme, metal3v1.AddToScheme, novaedgev1.AddToScheme} {
		if err := add(known); err != nil {
			return nil, err
		}
	}
	config := s.Config()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	for _, c := range change {
		c(config)
	}
	return client.NewWithWatch(config, client.Options{Scheme: known})
}

// Own is a sandbox for one test, which ends with it, and its administrator's client.
func Own(t *testing.T, o sandbox.Options) (*sandbox.Sandbox, client.WithWatch) {
	t.Helper()
	own, err := sandbox.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range own.Managers() {
				t.Log(m.Tail())
			}
		}
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := Client(own)
	if err != nil {
		t.Fatal(err)
	}
	return own, c
}

// Slow leaves out, with -short, a test that takes long and shows nothing of the version of the API server.
func Slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short: it takes long, and the version of the API server does not matter to it")
	}
}

// Kubectl runs kubectl, which must succeed.
func Kubectl(t *testing.T, s *sandbox.Sandbox, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := s.Kubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr
}

// Create stores objects.
func Create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Lend stores objects for the time of a test.
func Lend(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		Create(t, c, o)
		t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
	}
}

// Forbid has a policy of this name refuse what matches, with the text "refused by a policy", once the API server has compiled it.
func Forbid(t *testing.T, c client.Client, name string, match admissionregistrationv1.MatchResources) (binding client.Object) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	bound := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	Lend(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    ptr.To(admissionregistrationv1.Fail),
		MatchConstraints: &match,
		Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "refused by a policy"}},
	}}, bound)
	return bound
}

// Refusing is a webhook that refuses whatever it is asked with a code, after what it does first.
func Refusing(t *testing.T, code int32, first func(context.Context)) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	return Answering(t, func(ctx context.Context) *admissionv1.AdmissionResponse {
		first(ctx)
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: "refused after a while"}}
	})
}

// Answering is a webhook with these answers.
func Answering(t *testing.T, answer func(context.Context) *admissionv1.AdmissionResponse) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = answer(r.Context())
		review.Response.UID = review.Request.UID
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return admissionregistrationv1.WebhookClientConfig{
		URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

// AskFirst has the API server ask a validating webhook before those operations for which condition holds, a CEL expression. It begins to in a moment.
func AskFirst(
	t *testing.T, c client.Client, name string, webhook admissionregistrationv1.WebhookClientConfig, condition string, operations []admissionregistrationv1.NamedRuleWithOperations,
) (hook client.Object) {
	t.Helper()
	rules := make([]admissionregistrationv1.RuleWithOperations, len(operations))
	for i := range operations {
		rules[i] = operations[i].RuleWithOperations
	}
	hook = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name:                    "others.example.com",
		ClientConfig:            webhook,
		Rules:                   rules,
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "condition", Expression: condition}},
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}}}
	Lend(t, c, hook)
	return hook
}

// Operations are those on resources of API groups, in all versions.
func Operations(operations []admissionregistrationv1.OperationType, resource string, groups ...string) []admissionregistrationv1.NamedRuleWithOperations {
	return []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{resource}},
	}}}
}

// WithoutRules takes the CEL rules out of a CRD. The API server goes by them for a moment more.
func WithoutRules(t *testing.T, c client.Client, name string) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Change(t, c, crd, func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			forgetRules(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
		}
	})
}

func forgetRules(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations = nil
	for name, p := range s.Properties {
		forgetRules(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		forgetRules(s.Items.Schema)
	}
}

// Namespace is a new one.
func Namespace(t *testing.T, c client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	Create(t, c, ns)
	return ns.Name
}

// TryChange updates an object as it is stored, and may be refused.
func TryChange[T client.Object](t *testing.T, c client.Client, o T, f func(T)) error {
	t.Helper()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		f(o)
		return c.Update(t.Context(), o)
	})
}

// Change updates an object as it is stored.
func Change[T client.Object](t *testing.T, c client.Client, o T, f func(T)) {
	t.Helper()
	if err := TryChange(t, c, o, f); err != nil {
		t.Fatalf("update %T %s: %v", o, o.GetName(), err)
	}
}

// Delete deletes an object and waits for its end.
func Delete(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
	Gone(t, c, o)
}

// Stored reads an object into o, and gives it back.
func Stored[T client.Object](t *testing.T, c client.Reader, o T) T {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Gone waits for the end of an object.
func Gone(t *testing.T, c client.Reader, o client.Object) {
	t.Helper()
	Eventually(t, Soon, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s is still there, with finalizers %q: %v", o, o.GetName(), o.GetFinalizers(), err)
		}
		return nil
	})
}

// Becomes waits until a stored object is as it should be, and leaves it so in o; missing says what it lacks, "" for nothing.
func Becomes[T client.Object](t *testing.T, c client.Reader, o T, missing func(T) string) {
	t.Helper()
	Eventually(t, Soon, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if lacks := missing(o); lacks != "" {
			return fmt.Errorf("%T %s: %s", o, o.GetName(), lacks)
		}
		return nil
	})
}

// Eventually waits until something holds, and fails with what was last missing.
func Eventually(t *testing.T, within time.Duration, holds func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollGap, within, true, func(ctx context.Context) (bool, error) {
		err := holds(ctx)
		if err == nil || ctx.Err() == nil || last == nil {
			last = err // not the one that says only that ctx has ended
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("not within %s: %v", within, last)
	}
}

// Refused fails a test unless the error is a refusal with this code whose text has every part.
func Refused(t *testing.T, err error, code int32, parts ...string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		t.Fatalf("want a refusal with code %d, got: %v", code, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("refusal does not say %q: %v", part, err)
		}
	}
}
