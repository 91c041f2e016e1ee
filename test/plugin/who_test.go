package plugin

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// failure runs a command that fails, and returns its error.
func failure(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, cluster.Kubeconfig(), args...)
	if r.code == 0 {
		t.Errorf("kubectl ipam %s: exit code 0: %s", strings.Join(args, " "), r.stdout)
	}
	return r.stderr
}

// who of a range reports the free addresses of each pool, and addresses without a pool as
// not offered.
func TestWho_EndsRunsWithThePool(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := networkPool(ns, "pool", "10.40.0.0/23", ns)
	pool.Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.40.0.64", End: "10.40.0.254"}}}
	suite.Create(t, admin, pool, pinned(ns, "pool", "web", "10.40.0.64", "10.40.0.71"))
	out := ipam(t, "who", "10.40.0.0/23", "--domain", ns, "-o", "csv", "--no-headers").stdout
	var got []string
	for line := range strings.Lines(out) {
		got = append(got, strings.Join(strings.SplitN(line, ",", 6)[:4], ","))
	}
	want := "10.40.0.0-10.40.0.63,64," + ns + ",not offered 10.40.0.64-10.40.0.71,8," + ns + ",owned 10.40.0.72-10.40.0.254,183," + ns + ",free 10.40.0.255-10.40.1.255,257," + ns + ",not offered"
	if strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// who accepts the names of a claim that kubectl prints and accepts.
func TestWho_NamesOfKubectl(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/24", ns), pinned(ns, "pool", ns+"-nodes", "10.1.0.0", "10.1.0.6"))
	for _, name := range []string{"IPAllocation/", "ipallocations/", "ipa/", "ipallocation.butler.butlerlabs.dev/", "ipa/" + ns + "/"} {
		if out := ipam(t, "who", name+ns+"-nodes").stdout; !strings.HasPrefix(out, "10.1.0.0-10.1.0.6  owned by IPAllocation "+ns+"/"+ns+"-nodes\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, name := range []string{"np/" + ns + "/pool", "networkpools.butler.butlerlabs.dev/" + ns + "/pool", ns + "/pool"} {
		if out := ipam(t, "map", name).stdout; !strings.HasPrefix(out, "10.1.0.0/24, 249 free") {
			t.Errorf("map %s: %s", name, out)
		}
	}
}

// who explains an argument that is almost an address as the other commands do.
func TestWho_ExplainsWrongAddresses(t *testing.T) {
	for argument, want := range map[string]string{
		"172.20.45.9-172.20.45.3":  "172.20.45.9-172.20.45.3",
		"172.20.45.3-2001:db8::1":  "172.20.45.3-2001:db8::1",
		"172.20.45.300":            `"172.20.45.300" is not an IP address`,
		"172.20.45.0/24x":          "not a CIDR, write it like 10.0.0.0/24",
		"2001:db8::/129":           "not a CIDR, write it like 10.0.0.0/24",
		"no-such-tenant/no-tenant": "is no address, range or network, and no tenant",
	} {
		got := failure(t, "who", argument)
		if !strings.Contains(got, want) || strings.Contains(got, "no tenant (namespace/name)") != strings.HasPrefix(argument, "no-such") {
			t.Errorf("%s: %s", argument, got)
		}
	}
}

// A claim that waits is not hidden by the name of its pool or tenant: the commands name
// the claim, its reason, or the full name of the tenant.
func TestClaims_ExplainsWhatWaits(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	waits := suite.Kinds[0].Claim(ns, "nopool", "").(*butlerv1.IPAllocation)
	waits.Spec.PoolRef.Name = "missing-" + ns
	waits.Spec.TenantClusterRef = butlerv1.NamespacedObjectReference{Namespace: "team-1", Name: ns}
	suite.Create(t, admin, waits, networkPool(ns, "pool", "10.1.0.0/24", ns))
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		got := failure(t, "who", "ipallocation/"+ns+"/nopool")
		if !strings.Contains(got, "IPAllocation "+ns+"/nopool waits for addresses: ") || !strings.Contains(got, "missing-"+ns) {
			return errors.New(got)
		}
		return nil
	})
	r := ipam(t, "claims", "--pool", "missing-"+ns)
	if !strings.Contains(r.stdout, "nopool") || !strings.Contains(r.stderr, "no pool") || strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if got := failure(t, "claims", "--pool", "other-"+ns); !strings.Contains(got, `no pool "other-`+ns) {
		t.Error(got)
	}
	for _, args := range [][]string{{"claims", "--tenant", ns}, {"map", ns + "/pool", "--tenant", ns}} {
		if got := failure(t, args...); !strings.Contains(got, "--tenant="+ns+": write namespace/name: team-1/"+ns) {
			t.Errorf("%v: %s", args, got)
		}
	}
	if got := failure(t, "who", ns); !strings.Contains(got, "write team-1/"+ns) {
		t.Error(got)
	}
}

// who of a claim with a finalizer of another author says that the claim is being deleted.
// After the release, the map names the releasing claim.
func TestWho_DeletedClaim(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := networkPool(ns, "pool", "10.1.0.0/24", ns)
	pool.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
	claim := pinned(ns, "pool", "web", "10.1.0.0", "10.1.0.6")
	claim.Finalizers = []string{"example.com/wait"}
	suite.Create(t, admin, pool, claim)
	if err := admin.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if out := ipam(t, "who", "10.1.0.3", "--domain", ns).stdout; !strings.HasPrefix(out, "10.1.0.3  owned by IPAllocation "+ns+"/web, which is being deleted\n") {
		t.Error(out)
	}
	suite.Change(t, admin, claim, func(c *butlerv1.IPAllocation) { controllerutil.RemoveFinalizer(c, "example.com/wait") })
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if out := ipam(t, "map", ns+"/pool", "--ranges").stdout; !strings.Contains(out, "cooldown  IPAllocation "+ns+"/web") {
			return errors.New(out)
		}
		return nil
	})
}

// A question for the begin or the end of a tenure, as who prints them, finds the tenure:
// a time without a fraction means the whole second.
func TestWho_AtThePrintedTimes(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	claim := pinned(ns, "pool", "web", "10.1.0.0", "10.1.0.6")
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/24", ns), claim)
	history := []string{"who", "10.1.0.3", "--domain", ns, "--log", cluster.Managers()[0].LogPath()}
	awaitTimes := func(times int) (printed []string) {
		t.Helper()
		suite.Eventually(t, suite.Soon, func(context.Context) error {
			r := run(t, cluster.Kubeconfig(), history...)
			if printed = timePattern.FindAllString(r.stdout, -1); len(printed) != times {
				return fmt.Errorf("%s%s", r.stdout, r.stderr)
			}
			return nil
		})
		return printed
	}
	awaitTimes(1)
	if err := admin.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	for _, at := range awaitTimes(2) {
		if out := ipam(t, append(history, "--at", at)...).stdout; !strings.Contains(out, "IPAllocation "+ns+"/web") {
			t.Errorf("at %s: %s", at, out)
		}
	}
}

// timePattern matches a time in the output of a command.
var timePattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// pools shows the percentage of the conditions of a pool, and its notes name other pools
// with their namespace.
func TestPools_PercentageAndNotes(t *testing.T) {
	ns, other := suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "small", "10.1.0.0/26", ns), networkPool(other, "small", "10.1.0.32/28", ns), pinned(ns, "small", "web", "10.1.0.0", "10.1.0.29"))
	if out := ipam(t, "pools", "-n", ns, "-o", "csv", "--no-headers").stdout; !strings.Contains(out, ",30,shares addresses with "+other+"/small\n") {
		t.Error(out)
	}
	if out := ipam(t, "pools", "-n", ns).stdout; !strings.Contains(out, " 47%  shares addresses with "+other+"/small\n") {
		t.Error(out)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		var p butlerv1.NetworkPool
		if err := admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "small"}, &p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if strings.HasPrefix(c.Message, "47% of the addresses are allocated") {
				return nil
			}
		}
		return fmt.Errorf("no condition has the percentage: %v", p.Status.Conditions)
	})
}

// A claim that waits for a Cluster has no reason in its status. The commands and the page
// name the Cluster.
func TestClaims_WaitForCluster(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	kind := suite.Kinds[2]
	waits := kind.Claim(ns, "waits", "").(*ipamv1.IPAddressClaim)
	waits.Spec.ClusterName = "nope"
	suite.Create(t, admin, kind.Pool(ns, "10.0.0.1", "10.0.0.9"), waits)
	const reason = "Cluster nope of IPAddressClaim waits does not exist"
	if r := ipam(t, "claims", "-n", ns); !strings.Contains(r.stdout, reason) {
		t.Errorf("claims: %s%s", r.stdout, r.stderr)
	}
	if got := failure(t, "who", "ipaddressclaim/"+ns+"/waits"); !strings.Contains(got, reason) {
		t.Errorf("who: %s", got)
	}
	if r := ipam(t, "check", "-n", ns, "--grace", "0s", "--only", "addresses"); strings.Count(r.stdout, "WARNING") != 1 || !strings.Contains(r.stdout, "WARNING IPAM109 ") {
		t.Errorf("check: %s%s", r.stdout, r.stderr)
	}
	startUI(t, cluster.Kubeconfig()).eventually(t, "/claims?tenant="+ns+"/nope", reason, true)
}
