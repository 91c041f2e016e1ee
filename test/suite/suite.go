// Package suite is the common library of the tests on an API server. It provides one
// sandbox per package, a client with administrator rights, builders for all kinds of
// claims, and steps that end a test with the reason of the failure.
package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// Soon is the timeout for states that are reached within milliseconds on an idle machine.
const Soon = 30 * time.Second

// parallel is the number of tests of a package that run at the same time. It exceeds the
// number of processors because tests mostly wait.
const parallel = "8"

// pollGap is the interval at which Eventually checks a state.
const pollGap = 20 * time.Millisecond

// Main runs the tests of a package on one sandbox and ends the process. prepare is called
// with the sandbox before the first test. The functions ended are called after the tests,
// before the sandbox stops. The run fails if a request of a manager was denied because
// its role does not permit the request.
func Main(m *testing.M, o sandbox.Options, prepare func(context.Context, *sandbox.Sandbox) error, ended ...func() error) {
	os.Exit(Run(m, o, prepare, ended...))
}

// Run is Main, but returns the exit code instead of ending the process.
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
		for _, end := range append([]func() error{s.CheckLogs}, append(ended, s.Stop)...) {
			err = errors.Join(err, end())
		}
	}()
	if err := prepare(ctx, s); err != nil {
		return 1, err
	}
	if err := flag.Set("test.parallel", parallel); err != nil { // flags of the command line are parsed later and override this default
		return 1, err
	}
	return m.Run(), nil
}

// NewClient returns an administrator's client for all API types that the tests use. The
// client is not throttled, and drops warnings: tests of warnings use kubectl. The
// functions change modify the configuration before the client is created.
func NewClient(s *sandbox.Sandbox, change ...func(*rest.Config)) (client.WithWatch, error) {
	known := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme,
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

// own limits how many tests of a package with a control plane of their own run at the
// same time: the start of a control plane takes some seconds of CPU time.
var own = make(chan struct{}, runtime.NumCPU())

// StartSandbox starts a sandbox for one test and returns it with an administrator's
// client. The sandbox stops at the end of the test. StartSandbox waits while as many of
// its sandboxes run as the machine has processors. A test must call StartSandbox at most
// once.
func StartSandbox(t *testing.T, o sandbox.Options) (*sandbox.Sandbox, client.WithWatch) {
	t.Helper()
	own <- struct{}{}
	t.Cleanup(func() { <-own })
	s, err := sandbox.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range s.Managers() {
				t.Log(m.Tail())
			}
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := NewClient(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// SkipShort skips a test under -short that takes long and whose result does not depend on
// the version of the API server.
func SkipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short: it takes long, and the version of the API server does not matter to it")
	}
}

// Kubectl runs kubectl and fails the test if kubectl fails.
func Kubectl(t *testing.T, s *sandbox.Sandbox, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := s.Kubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr
}

// Create creates objects.
func Create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// CreateForTest creates objects and deletes them at the end of the test.
func CreateForTest(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		Create(t, c, o)
		t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
	}
}

// CreateNamespace creates a namespace and returns its name.
func CreateNamespace(t *testing.T, c client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	Create(t, c, ns)
	return ns.Name
}

// TryChange reads an object, changes it with f, and updates it; it repeats these steps
// after a conflict. It returns the error of the API server.
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

// Change is TryChange that fails the test on error.
func Change[T client.Object](t *testing.T, c client.Client, o T, f func(T)) {
	t.Helper()
	if err := TryChange(t, c, o, f); err != nil {
		t.Fatalf("update %T %s: %v", o, o.GetName(), err)
	}
}

// AwaitRight waits until the API server permits (allowed) or denies this access to the
// managers. The API server's authorizer observes changed roles with a delay.
func AwaitRight(t *testing.T, c client.Client, access authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	manager := "system:serviceaccount:" + sandbox.ManagerNamespace + ":butler-ipam"
	AwaitReview(t, c, authorizationv1.SubjectAccessReviewSpec{User: manager, ResourceAttributes: &access}, allowed)
}

// AwaitRole waits until a new binding of a ClusterRole permits a user, in a namespace or
// with "" in the cluster, what the first rule of the role permits.
func AwaitRole(t *testing.T, c client.Client, user, role, namespace string) {
	t.Helper()
	rule := Read(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}}).Rules[0]
	access := authorizationv1.SubjectAccessReviewSpec{User: user}
	if len(rule.NonResourceURLs) > 0 {
		access.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0]}
	} else {
		access.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]}
		if len(rule.ResourceNames) > 0 {
			access.ResourceAttributes.Name = rule.ResourceNames[0]
		}
	}
	AwaitReview(t, c, access, true)
}

// AwaitReview waits until the API server permits (allowed) or denies an access.
func AwaitReview(t *testing.T, c client.Client, access authorizationv1.SubjectAccessReviewSpec, allowed bool) {
	t.Helper()
	Eventually(t, Soon, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: access}
		if err := c.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed != allowed {
			return fmt.Errorf("%s: %+v %+v: allowed %t, want %t", access.User, access.ResourceAttributes, access.NonResourceAttributes, review.Status.Allowed, allowed)
		}
		return nil
	})
}

// Delete deletes an object and waits until the object is gone.
func Delete(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
	AwaitGone(t, c, o)
}

// Read reads an object into o and returns o.
func Read[T client.Object](t *testing.T, c client.Reader, o T) T {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// AwaitGone waits until an object is gone.
func AwaitGone(t *testing.T, c client.Reader, o client.Object) {
	t.Helper()
	Eventually(t, Soon, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s is still there, with finalizers %q: %v", o, o.GetName(), o.GetFinalizers(), err)
		}
		return nil
	})
}

// AwaitObject reads an object into o until missing returns "". missing returns what the
// object lacks.
func AwaitObject[T client.Object](t *testing.T, c client.Reader, o T, missing func(T) string) {
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

// GetURL returns the body of an HTTP response with status 200.
func GetURL(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return string(body), err
}

// AwaitText waits until the result of text contains part.
func AwaitText(t *testing.T, text func(context.Context) (string, error), part string) {
	t.Helper()
	Eventually(t, Soon, func(ctx context.Context) error {
		got, err := text(ctx)
		if err == nil && !strings.Contains(got, part) {
			err = fmt.Errorf("%q is not in: %s", part, got)
		}
		return err
	})
}

// AwaitEvent waits for an event of an object with this reason and a message that contains
// part. It returns the reasons of all events of the object. A manager writes one event at
// a time, so that events wait under load.
func AwaitEvent(t *testing.T, c client.Reader, o client.Object, reason, part string) (reasons []string) {
	t.Helper()
	Eventually(t, 4*Soon, func(ctx context.Context) error {
		all := &corev1.EventList{}
		if err := c.List(ctx, all, client.InNamespace(o.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(o.GetUID())}); err != nil {
			return err
		}
		var texts []string
		found := false
		reasons = nil
		for _, e := range all.Items {
			reasons, texts = append(reasons, e.Reason), append(texts, e.Reason+": "+e.Message)
			found = found || e.Reason == reason && strings.Contains(e.Message, part)
		}
		if !found {
			return fmt.Errorf("%s has no event %s that says %q, but %q", o.GetName(), reason, part, texts)
		}
		return nil
	})
	return reasons
}

// Eventually calls holds until it returns nil. After the timeout it fails the test with
// the last error.
func Eventually(t *testing.T, within time.Duration, holds func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollGap, within, true, func(ctx context.Context) (bool, error) {
		err := holds(ctx)
		if err == nil || ctx.Err() == nil || last == nil {
			last = err // keep the last error of holds, not the error of the ended ctx
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("not within %s: %v", within, last)
	}
}

// RequireDenied fails the test unless err is an API status with this code whose message
// contains all parts.
func RequireDenied(t *testing.T, err error, code int32, parts ...string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		t.Fatalf("want an error with status code %d, got: %v", code, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not contain %q: %v", part, err)
		}
	}
}
