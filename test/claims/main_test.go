package claims

import (
	"context"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// The tests share one control plane with two managers that serve all APIs. Each test has
// its own namespace and addresses.
var (
	cluster *sandbox.Sandbox
	admin   client.WithWatch
)

func TestMain(m *testing.M) {
	// RACE_MANAGER names a manager built with the race detector, whose reports fail the
	// package (Sandbox.CheckLogs); without it, bin/butler-ipam.
	o := sandbox.Options{ManagerBinary: os.Getenv("RACE_MANAGER"), Replicas: 2, Tenants: true, ClusterAPI: true, ManagerArgs: []string{"--shutdown-delay=0s", "--tenants", "--service-vips"}}
	suite.Main(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		admin, err = suite.NewClient(s)
		return err
	})
}

// object parses an object from YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}
