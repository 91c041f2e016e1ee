//go:build cluster

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/load"
)

const (
	namespace = "butler-ipam-system" // of the manager
	patience  = 2 * time.Minute
	clients   = 16
)

var (
	admin client.Client
	pools int // so far: each has addresses of its own
)

func TestMain(m *testing.M) {
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "these tests run on the cluster's node, by make test-cluster:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	admin, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// The parts build on one another, on a cluster that is fresh: the third one installs the
// manager, and that about rights judges what those before it have made it do.
func TestManager(t *testing.T) {
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"InstalledWithoutHelmItAnswersToo", withoutHelm},
		{"ChartIsAcceptedUnderRestrictedPodSecurity", accepted},
		{"FirstAllocationComesSoonAfterInstallation", installation},
		{"UpgradeToTheSameChangesNothing", sameAgain},
		{"ConsoleServesAPersonWithAToken", console},
		{"DisruptionsCostNoCreate", disruptions},
		{"WithoutEndpointsAllButCreatesGoesOn", withoutEndpoints},
		{"RotatedCertificatesCostNoCreate", rotation},
		{"RightsGrantedAreRightsUsed", rights},
		{"AnAPIGroupIsSwitchedOnAndOff", switches},
		{"AnAPIGroupIsSwitchedTwentyTimesUnderLoad", switchesAgain},
		{"AControlPlaneThatDiesIsStartedAgain", controlPlaneDies},
	} {
		if !t.Run(part.name, part.test) {
			t.FailNow()
		}
	}
}

// try runs a program with stdin as its standard input.
func try(t *testing.T, stdin, program string, args ...string) (stdout string, err error) {
	t.Helper()
	var out, problems bytes.Buffer
	command := exec.CommandContext(t.Context(), program, args...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &out, &problems
	if err = command.Run(); err != nil {
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), err
}

func must(t *testing.T, stdin, program string, args ...string) (stdout string) {
	t.Helper()
	out, err := try(t, stdin, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func kubectl(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	return must(t, "", "kubectl", args...)
}

// create creates objects by kubectl.
func create(t *testing.T, yaml string, args ...string) (stdout string, err error) {
	t.Helper()
	return try(t, yaml, "kubectl", append([]string{"create", "--filename=-"}, args...)...)
}

// until waits until try succeeds.
func until(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// settled waits until as many pods as the manager shall have are ready, and none is on
// its way out.
func settled(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	until(t, "the manager's pods", func() error {
		var d appsv1.Deployment
		if err := admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "butler-ipam"}, &d); err != nil {
			return err
		}
		if err := admin.List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		s := d.Status
		if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.AvailableReplicas != *d.Spec.Replicas || len(pods.Items) != int(*d.Spec.Replicas) {
			return fmt.Errorf("%d pods are there, %d updated, %d available, want %d", len(pods.Items), s.UpdatedReplicas, s.AvailableReplicas, *d.Spec.Replicas)
		}
		return nil
	})
	return pods.Items
}

// leader returns the name of the pod that is the leader according to the Lease.
func leader(t *testing.T) (name string) {
	t.Helper()
	until(t, "the leader", func() error {
		var lease coordinationv1.Lease
		if err := admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: journal.LeaseName}, &lease); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return errors.New("nobody")
		}
		name, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "@")
		return nil
	})
	return name
}

// nextNetwork is one that no pool has had yet.
func nextNetwork() string {
	pools++
	return fmt.Sprintf("10.%d.0.0/16", pools)
}

// underLoad does something while clients create allocations, and fails where one of these
// creates does.
func underLoad(t *testing.T, do func()) {
	t.Helper()
	l := load.Start(t, admin, nextNetwork(), clients)
	l.Await(20 * clients)
	do()
	l.Await(20 * clients)
	_, failures := l.Stop()
	for i, err := range failures {
		if i == 10 {
			t.Errorf("and %d more", len(failures)-i)
			break
		}
		t.Errorf("a create failed: %v", err)
	}
}
