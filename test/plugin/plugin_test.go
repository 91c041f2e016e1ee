// Package plugin tests kubectl ipam on a real API server: what it shows equals what the manager reports and does.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// seed of the random operations.
const seed = 42

// One control plane with one manager serves the whole package.
var (
	cluster  *sandbox.Sandbox
	admin    client.WithWatch
	binary   string
	auditLog string // file with the calls of auditedUser
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
	suite.Main(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
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

// run runs kubectl ipam with the access in a kubeconfig.
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

// ipam runs kubectl ipam as the administrator, and fails the test if the command could not look.
func ipam(t *testing.T, args ...string) result {
	t.Helper()
	r := run(t, cluster.Kubeconfig(), args...)
	if strings.Contains(r.stderr, "error:") {
		t.Fatalf("kubectl ipam %s: %s", strings.Join(args, " "), r.stderr)
	}
	return r
}

// decoded runs a command with -o json, and decodes its output.
func decoded[T any](t *testing.T, args ...string) T {
	t.Helper()
	return decodedFrom[T](t, cluster.Kubeconfig(), args...)
}

// decodedFrom is decoded with the access in a kubeconfig.
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
	Range, State string
	Owner        owner
	Tenant       string
}

type fit struct{ Fits, Left int64 }

type plan struct {
	Denied []string
	Owners []segment
	Server string
}

// maxStored bounds the claims of each kind: a pool has 200 addresses, and a claim at most four.
const maxStored = 45

// operations returns the number of random operations on claims of each kind: PLUGIN_OPERATIONS, or a number for the tests of each day.
func operations(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PLUGIN_OPERATIONS")
	if text == "" {
		return 120
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("PLUGIN_OPERATIONS=%s: %v", text, err)
	}
	return n
}

// populate creates a pool of each kind, and creates and deletes claims in random order. It returns the namespaces by name of the kind.
func populate(t *testing.T, operations int) map[string]string {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	namespaces := map[string]string{}
	for n, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, admin)
		namespaces[kind.Name] = ns
		suite.Create(t, admin, kind.Pool(ns, fmt.Sprintf("10.%d.0.0", 60+n), fmt.Sprintf("10.%d.0.199", 60+n)))
		var stored []client.Object
		for i := range operations {
			if len(stored) >= maxStored || len(stored) > 0 && random.IntN(3) == 0 {
				victim := random.IntN(len(stored))
				suite.Delete(t, admin, stored[victim])
				stored = slices.Delete(stored, victim, victim+1)
				continue
			}
			claim := kind.Claim(ns, fmt.Sprintf("claim-%d", i), "")
			if a, ok := claim.(*butlerv1.IPAllocation); ok {
				a.Spec.Count = new(int32(1 + random.IntN(4)))
			}
			if claim.GetNamespace() == "" {
				claim.SetName(ns + "-" + claim.GetName())
			}
			suite.Create(t, admin, claim)
			stored = append(stored, claim)
		}
	}
	return namespaces
}

// The numbers of a pool equal those in its status, after random operations.
func TestPools_EqualTheStatus(t *testing.T) {
	namespaces := populate(t, operations(t))
	var pools []client.ObjectKey
	for _, kind := range suite.Kinds {
		pools = append(pools, client.ObjectKeyFromObject(kind.Pool(namespaces[kind.Name], "10.0.0.0", "10.0.0.1")))
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // the status follows within seconds
		compared := 0
		for _, p := range decoded[items[poolItem]](t, "pools").Items {
			key := client.ObjectKey{Namespace: p.Namespace, Name: p.Name}
			if !slices.Contains(pools, key) {
				continue // of another test
			}
			compared++
			switch p.Kind {
			case "NetworkPool":
				var stored butlerv1.NetworkPool
				if err := admin.Get(ctx, key, &stored); err != nil {
					return err
				}
				s := stored.Status
				if s.TotalIPs != p.Size || s.AllocatedIPs != p.Allocated || s.AvailableIPs != p.Free || s.GrantedIPs != p.Granted || s.LargestFreeBlock != p.LargestFree || ptr.Deref(s.FragmentationPercent, 0) != p.FragmentationPercent {
					return fmt.Errorf("%v: the status is %+v, the plugin shows %+v", key, s, p)
				}
			case "ProxyIPPool":
				var stored novaedgev1.ProxyIPPool
				if err := admin.Get(ctx, key, &stored); err != nil {
					return err
				}
				if stored.Status.Allocated != p.Allocated || stored.Status.Available != p.Free || stored.Status.Granted != p.Granted {
					return fmt.Errorf("%v: the status is %+v, the plugin shows %+v", key, stored.Status, p)
				}
			case "IPPool":
				var stored metal3v1.IPPool
				if err := admin.Get(ctx, key, &stored); err != nil {
					return err
				}
				if int64(len(stored.Status.Indexes)) != p.Allocated {
					return fmt.Errorf("%v: the status lists %d addresses, the plugin counts %d", key, len(stored.Status.Indexes), p.Allocated)
				}
			}
		}
		if compared != len(pools) {
			return fmt.Errorf("%d pools compared, want %d", compared, len(pools))
		}
		return nil
	})

	t.Run("who_names_each_owner", func(t *testing.T) {
		for _, kind := range suite.Kinds {
			ns := namespaces[kind.Name]
			claims := decoded[items[struct {
				Kind, Namespace, Name string
				Ranges                []string
			}]](t, "claims", "--domain", ns).Items
			if len(claims) < 10 {
				t.Fatalf("%s: %d claims", kind.Name, len(claims))
			}
			for _, c := range claims[:10] {
				for _, r := range c.Ranges {
					for _, s := range decoded[items[segment]](t, "who", r, "--domain", ns).Items {
						if s.State != "owned" || s.Owner != (owner{c.Kind, c.Namespace, c.Name}) {
							t.Errorf("%s %s: %s belongs to %+v", c.Kind, c.Name, r, s)
						}
					}
				}
			}
		}
	})

	t.Run("fit_is_what_fits", func(t *testing.T) {
		ns := namespaces["IPAllocation"]
		kind := suite.Kinds[0]
		predicted := decoded[fit](t, "fit", ns+"/pool", "--count", "3")
		var created int64
		for ; ; created++ {
			claim := kind.Claim(ns, fmt.Sprintf("fits-%d", created), "").(*butlerv1.IPAllocation)
			claim.Spec.Count = new(int32(3))
			if err := admin.Create(t.Context(), claim); err != nil {
				suite.RequireDenied(t, err, 403)
				break
			}
		}
		if created != predicted.Fits || created == 0 {
			t.Errorf("%d ranges of 3 fit, the plugin shows %d", created, predicted.Fits)
		}
		if r := run(t, cluster.Kubeconfig(), "fit", ns+"/pool", "--count", "3"); r.code != 1 || !strings.HasPrefix(r.stdout, "none: ") {
			t.Errorf("in a full pool: exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
	})

	t.Run("plan_agrees_with_the_manager", func(t *testing.T) {
		ns := namespaces["IPAddressClaim_of_NetworkPool"]
		denied, accepted := 0, 0
		for i := range 25 {
			network := fmt.Sprintf("10.63.0.%d/29", 8*i)
			p := decoded[plan](t, "plan", ns+"/pool", "--reserve", network)
			if (len(p.Denied) > 0) == (p.Server == "accepted") {
				t.Errorf("reserve %s: the plugin says %q, the API server %q", network, p.Denied, p.Server)
			}
			if (len(p.Denied) > 0) != (len(p.Owners) > 0) {
				t.Errorf("reserve %s: denied %q, owners %v", network, p.Denied, p.Owners)
			}
			if len(p.Denied) > 0 {
				denied++
			} else {
				accepted++
			}
		}
		if denied == 0 || accepted == 0 {
			t.Errorf("%d changes are denied and %d accepted: the test shows nothing", denied, accepted)
		}
	})

	t.Run("a_map_counts_each_address", func(t *testing.T) {
		for _, kind := range suite.Kinds {
			pool := namespaces[kind.Name] + "/pool"
			if kind.Name == "ProxyVIP" {
				pool = namespaces[kind.Name]
			}
			m := decoded[struct{ Totals map[string]int64 }](t, "map", pool)
			total := int64(0)
			for _, n := range m.Totals {
				total += n
			}
			if total != 200 {
				t.Errorf("%s: %d addresses, want 200: %v", kind.Name, total, m.Totals)
			}
		}
	})

	t.Run("viewer_of_one_namespace", func(t *testing.T) {
		ns := namespaces["IPClaim"]
		viewer := viewerKubeconfig(t, "viewer", ns)
		r := run(t, viewer, "claims", "-n", ns)
		if r.code != 0 || !strings.Contains(r.stdout, "claim-") || !strings.Contains(r.stderr, "only those in namespace "+ns) {
			t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		if strings.Contains(r.stdout, namespaces["IPAllocation"]) {
			t.Errorf("the viewer sees another namespace: %s", r.stdout)
		}
	})
}

// viewerKubeconfig writes the kubeconfig of a user with the viewer role in one namespace.
func viewerKubeconfig(t *testing.T, user, ns string) string {
	t.Helper()
	suite.Create(t, admin, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "butler-ipam-viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	return kubeconfigOf(t, user, ns)
}

// kubeconfigOf writes the kubeconfig of a user.
func kubeconfigOf(t *testing.T, user, ns string) string {
	t.Helper()
	return kubeconfigIn(t, cluster, user, ns)
}

// kubeconfigIn writes the kubeconfig of a user of a sandbox.
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

// exampleAddresses is the file of the examples of import.
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
	suite.Create(t, admin, networkPool(ns, "vlan40", "10.40.0.0/21", ""), networkPool(ns, "red", "10.40.0.0/21", "red"), allocation("web-nodes", "web", 100))
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
	suite.Eventually(t, suite.Soon, func(context.Context) (err error) { // the file of the examples
		if log, err = os.ReadFile(cluster.Managers()[0].LogPath()); err == nil && !bytes.Contains(log, []byte(`"web-nodes"`)) {
			err = errors.New("the log lacks the allocation of web-nodes")
		}
		return err
	})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // the history of the examples
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
		if args := strings.Fields(line); args[2] == "ui" { // serves until it is interrupted
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

// subcommands lists the commands that the help shows.
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
