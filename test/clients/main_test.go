package clients

import (
	"context"
	"os"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// One cluster with two managers serves the whole package; each test has a namespace and a
// routing domain of its own.
var (
	cluster *sandbox.Sandbox
	stored  client.Client
	shared  string // directory with what all tests read
)

func TestMain(m *testing.M) {
	options := sandbox.Options{Replicas: 2, ClusterAPI: true, Controllers: true, ManagerArgs: []string{"--shutdown-delay=0s"}}
	suite.Main(m, options, prepare, func() error { return os.RemoveAll(shared) })
}

func prepare(_ context.Context, s *sandbox.Sandbox) (err error) {
	cluster = s
	if stored, err = suite.NewClient(s); err != nil {
		return err
	}
	shared, err = os.MkdirTemp("", "clients-")
	return err
}
