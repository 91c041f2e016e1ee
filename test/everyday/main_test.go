package everyday

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// One control plane with two managers, which serve everything, is there for the whole package. Every test has a namespace and addresses of its own.
var (
	cluster *sandbox.Sandbox
	admin   client.WithWatch
)

func TestMain(m *testing.M) {
	o := sandbox.Options{Replicas: 2, Tenants: true, ClusterAPI: true, ManagerArgs: []string{"--shutdown-delay=0s", "--tenants", "--service-vips"}}
	suite.Main(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		admin, err = suite.Client(s)
		return err
	})
}

// object is one from its YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}
