// Package plugin tests kubectl ipam on a real API server: the output of the commands
// equals the status and the decisions of the manager.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// seed is the seed of the random operations.
const seed = 42

// The tests of the package share a control plane with one manager.
var (
	cluster  *sandbox.Sandbox
	admin    client.WithWatch
	binary   string
	auditLog string // file with the calls of auditedUser and of the console
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "plugin-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "policy.json"), []byte(auditPolicy), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	auditLog = filepath.Join(dir, "audit.log")
	o := sandbox.Options{
		Replicas: 1, ClusterAPI: true, ManagerArgs: []string{"--grant-expiry=45s", "--history-retention-days=30"},
		APIServerArgs: []string{"--audit-policy-file=" + filepath.Join(dir, "policy.json"), "--audit-log-path=" + auditLog, "--audit-log-mode=blocking"},
	}
	suite.Main(m, o, func(ctx context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		if err := s.InstallCRDs(ctx, "config/tenants/butler.butlerlabs.dev_providerconfigs.yaml"); err != nil { // for fit --provider
			return err
		}
		if binary, err = filepath.Abs("../../bin/kubectl-ipam"); err != nil {
			return err
		}
		admin, err = suite.NewClient(s)
		return err
	}, func() error { return os.RemoveAll(dir) })
}

// result is the outcome of a command.
type result struct {
	stdout, stderr string
	code           int
}

// run runs kubectl ipam with a kubeconfig.
func run(t *testing.T, kubeconfig string, args ...string) result {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	command.Dir = t.TempDir()
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	err := command.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return result{out.String(), problems.String(), command.ProcessState.ExitCode()}
}

// ipam runs kubectl ipam as the administrator, and fails the test if the command prints
// an error.
func ipam(t *testing.T, args ...string) result {
	t.Helper()
	r := run(t, cluster.Kubeconfig(), args...)
	if strings.Contains(r.stderr, "error:") {
		t.Fatalf("kubectl ipam %s: %s", strings.Join(args, " "), r.stderr)
	}
	return r
}

// decoded runs a command with -o json as the administrator, and decodes the output.
func decoded[T any](t *testing.T, args ...string) T {
	t.Helper()
	return decodedFrom[T](t, cluster.Kubeconfig(), args...)
}

// decodedFrom runs a command with -o json and a kubeconfig, and decodes the output.
func decodedFrom[T any](t *testing.T, kubeconfig string, args ...string) (v T) {
	t.Helper()
	r := run(t, kubeconfig, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatalf("kubectl ipam %s: %v: %s%s", strings.Join(args, " "), err, r.stdout, r.stderr)
	}
	return v
}

type items[T any] struct{ Items []T }

type poolItem struct {
	Kind, Namespace, Name          string
	Size, Free, Allocated, Granted int64
	LargestFree                    int64
	FragmentationPercent           int32
}

type owner struct{ Kind, Namespace, Name string }

type segment struct {
	Range, First, Last, State string
	Size                      int64
	Owner                     owner
	Tenant                    string
}

type fit struct{ Fits, Left int64 }

type plan struct {
	Denied []string
	Owners []segment
	Server string
}

// viewerKubeconfig creates a user with the viewer role in one namespace, and returns the
// path of the user's kubeconfig.
func viewerKubeconfig(t *testing.T, user, ns string) string {
	t.Helper()
	suite.Create(t, admin, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "butler-ipam-viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	suite.AwaitRole(t, admin, user, "butler-ipam-viewer", ns)
	return kubeconfigOf(t, user, ns)
}

// kubeconfigOf writes the kubeconfig of a user, and returns the path.
func kubeconfigOf(t *testing.T, user, ns string) string {
	t.Helper()
	return kubeconfigIn(t, cluster, user, ns)
}

// kubeconfigIn writes the kubeconfig of a user of a sandbox, and returns the path.
func kubeconfigIn(t *testing.T, s *sandbox.Sandbox, user, ns string) string {
	t.Helper()
	config, err := s.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.Kubeconfig("sandbox", config, ns)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// exampleAddresses is the file in the examples of import.
const exampleAddresses = `address,vrf,tenant,Team,status,dns_name
10.40.5.10/21,,team-1/shop,Acme,active,shop-1.example.com
10.40.5.11/21,,team-1/shop,Acme,active,shop-2.example.com
10.40.5.20/21,,,,reserved,
`

// Each example in the help of a command runs as printed, through kubectl.
func TestHelp_ExamplesRun(t *testing.T) {
	const ns = "butler-system"
	allocation := func(name, tenant string, count int32) *butlerv1.IPAllocation {
		a := suite.Kinds[0].Claim(ns, name, "").(*butlerv1.IPAllocation)
		a.Spec.PoolRef.Name, a.Spec.Count = "vlan40", &count
		a.Spec.TenantClusterRef = butlerv1.NamespacedObjectReference{Namespace: "team-1", Name: tenant}
		return a
	}
	suite.Create(t, admin, networkPool(ns, "vlan40", "10.40.0.0/21", ""), networkPool(ns, "red", "10.40.0.0/21", "red"), allocation("web-nodes", "web", 100), &butlerv1.ProviderConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lab"}, Spec: butlerv1.ProviderConfigSpec{
			Provider: "harvester", Network: &butlerv1.ProviderNetwork{Mode: butlerv1.NetworkModeIPAM, PoolRefs: []butlerv1.PoolReference{{Name: "vlan40"}}},
		},
	})
	var commands []string
	for _, command := range append([]string{""}, subcommands(t)...) {
		help := ipam(t, append(strings.Fields(command), "--help")...).stdout
		_, examples, _ := strings.Cut(help, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		found := 0
		for line := range strings.Lines(examples) {
			commands = append(commands, strings.TrimSpace(line))
			found++
		}
		if found == 0 && command != "completion" && command != "help" {
			t.Errorf("the help of %q has no example", command)
		}
	}
	t.Chdir(t.TempDir())
	var log []byte
	suite.Eventually(t, suite.Soon, func(context.Context) (err error) { // the log in the examples
		if log, err = os.ReadFile(cluster.Managers()[0].LogPath()); err == nil && !bytes.Contains(log, []byte(`"web-nodes"`)) {
			err = errors.New("the log lacks the allocation of web-nodes")
		}
		return err
	})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // the history in the examples
		var list butlerv1.AllocationHistoryList
		if err := admin.List(ctx, &list, client.InNamespace(sandbox.ManagerNamespace)); err != nil || len(list.Items) > 0 {
			return err
		}
		return errors.New("no AllocationHistory is stored")
	})
	for name, text := range map[string][]byte{"manager.log": log, "addresses.csv": []byte(exampleAddresses)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range commands {
		if args := strings.Fields(line); args[2] == "ui" { // ui serves until an interrupt
			startUI(t, cluster.Kubeconfig(), args[3:]...)
			continue
		}
		command := exec.CommandContext(t.Context(), "kubectl", strings.Fields(line)[1:]...)
		command.Env = append(append(os.Environ(), cluster.KubectlEnv()...), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		command.Path, command.Stdin = filepath.Join(filepath.Dir(binary), "kubectl"), bytes.NewReader(log)
		out, err := command.CombinedOutput()
		if strings.Contains(string(out), "error:") || err != nil && command.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
}

// subcommands returns the names of the commands in the help.
func subcommands(t *testing.T) (names []string) {
	t.Helper()
	_, list, _ := strings.Cut(ipam(t, "--help").stdout, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

func networkPool(ns, name, cidr, domain string) *butlerv1.NetworkPool {
	return &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: butlerv1.NetworkPoolSpec{CIDR: cidr, RoutingDomain: domain}}
}
