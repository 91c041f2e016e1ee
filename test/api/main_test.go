package api

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	apiVersion = "butler.butlerlabs.dev/v1alpha1"
	namespace  = sandbox.Namespace
)

// One control plane without managers serves the whole package.
var (
	cluster *sandbox.Sandbox
	admin   client.Client
	older   bool // the API server is not of the version whose wording the tests have
)

const wordingMinor = 36

func TestMain(m *testing.M) {
	suite.Main(m, sandbox.Options{Tenants: true}, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		if admin, err = suite.NewClient(s); err != nil {
			return err
		}
		asker, err := discovery.NewDiscoveryClientForConfig(s.Config())
		if err != nil {
			return err
		}
		version, err := asker.ServerVersion()
		if err != nil {
			return err
		}
		minor, err := strconv.Atoi(version.Minor)
		older = minor < wordingMinor
		return err
	})
}

// object reads YAML that may break every rule; kind, name and namespace are filled in.
func object(t *testing.T, kind, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion(apiVersion)
	}
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetGenerateName("test-")
	return o
}

// pool is a NetworkPool with a spec in YAML.
func pool(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "NetworkPool", "spec: "+spec)
}

// claim is an IPAllocation; what its spec in YAML does not say is valid.
func claim(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, "IPAllocation", `spec: {poolRef: {name: vlan40-pool}, tenantClusterRef: {name: my-cluster, namespace: team-backend}, type: nodes}`)
	override := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &override); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	for field, value := range override {
		if value == nil {
			unstructured.RemoveNestedField(o.Object, "spec", field)
			continue
		}
		if err := unstructured.SetNestedField(o.Object, value, "spec", field); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// faults is what the API server says to a request that breaks rules of the schema:
// "field: message" each, sorted because the API server goes through the fields in any
// order.
func faults(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != 422 || status.Status().Details == nil {
		t.Fatalf("want the request refused as invalid, got: %v", err)
	}
	var texts []string
	for _, cause := range status.Status().Details.Causes {
		if strings.Contains(cause.Message, ": some validation rules were not checked") {
			continue // said of CEL rules whenever a plainer rule is broken
		}
		texts = append(texts, cause.Field+": "+cause.Message)
	}
	slices.Sort(texts)
	return texts
}

// diffFaults compares what the API server answers with want. The tests have the wording
// of the newest API server; an older one does not name the value that breaks a rule, and
// words two faults of the schema in another way.
func diffFaults(t *testing.T, want []string, err error) string {
	t.Helper()
	got := faults(t, err)
	if older {
		want, got = withoutValues(want), withoutValues(got)
	}
	return cmp.Diff(want, got)
}

var (
	namedValue = regexp.MustCompile(`: (Invalid|Duplicate) value: (?:"(?:[^"\\]|\\.)*": |[^ ]+: |map\[string\]interface \{\})?`)
	tooLong    = regexp.MustCompile(`may not be (?:more than (\d+) bytes|longer than (\d+))`)
)

func withoutValues(texts []string) []string {
	var out []string
	for _, text := range texts {
		if strings.HasPrefix(text, "<nil>: ") {
			continue // said besides the fault of the field itself
		}
		out = append(out, tooLong.ReplaceAllString(namedValue.ReplaceAllString(text, ": $1 value: "), "may not be longer than $1$2"))
	}
	slices.Sort(out)
	return out
}
