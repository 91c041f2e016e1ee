package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	poolSize       = 200
	clientsPerKind = 4
	// maxStored bounds the stored claims of each client. A claim has at most four
	// addresses.
	maxStored = 11
	// cooling is the number of claims that each client deletes at the end, after the pool
	// got a cooldown.
	cooling = 2
)

// operations returns the number of random operations on claims of each kind:
// PLUGIN_OPERATIONS, or 120.
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

// population is a pool of a kind of claims after random operations. The namespace is also
// the name of the routing domain.
type population struct {
	suite.Kind
	namespace string
	pool      client.Object
}

// poolName returns KIND/NAMESPACE/NAME of the pool, for an argument.
func (p *population) poolName() string {
	return reflect.TypeOf(p.pool).Elem().Name() + "/" + strings.TrimPrefix(client.ObjectKeyFromObject(p.pool).String(), "/")
}

// inPool returns the query for a page of the console about the pool.
func (p *population) inPool() string { return "?pool=" + url.QueryEscape(p.poolName()) }

// populate creates a pool of each kind. For each kind, several concurrent clients create
// and delete claims in random order. Each run has the same operations per client, but the
// order of operations between clients, and so the addresses, differ from run to run. At
// the end, pools that support a cooldown have addresses in cooldown.
func populate(t *testing.T, operations int) (all []*population) {
	t.Helper()
	began := time.Now()
	var creates, deletes atomic.Int64
	var kinds sync.WaitGroup
	for n, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, admin)
		p := &population{kind, ns, kind.Pool(ns, fmt.Sprintf("10.%d.0.0", 60+n), fmt.Sprintf("10.%d.0.%d", 60+n, poolSize-1))}
		suite.Create(t, admin, p.pool)
		all = append(all, p)
		kinds.Go(func() {
			var stored [clientsPerKind][]client.Object
			var clients sync.WaitGroup
			for c := range clientsPerKind {
				clients.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(n*clientsPerKind+c)))
					for i := c; i < operations; i += clientsPerKind {
						if len(stored[c]) >= maxStored || len(stored[c]) > 0 && random.IntN(3) == 0 {
							victim := random.IntN(len(stored[c]))
							suite.Delete(t, admin, stored[c][victim])
							stored[c] = slices.Delete(stored[c], victim, victim+1)
							deletes.Add(1)
							continue
						}
						claim := kind.Claim(ns, fmt.Sprintf("claim-%d", i), "")
						if a, ok := claim.(*butlerv1.IPAllocation); ok {
							a.Spec.Count = new(int32(1 + random.IntN(4)))
						}
						suite.Create(t, admin, claim)
						stored[c] = append(stored[c], claim)
						creates.Add(1)
					}
				})
			}
			clients.Wait()
			if !kind.Cooldown {
				return
			}
			suite.Change(t, admin, p.pool, func(pool client.Object) { kind.Delay(pool, time.Hour) })
			for _, claims := range stored {
				for _, claim := range claims[:min(cooling, len(claims))] {
					suite.Delete(t, admin, claim)
					deletes.Add(1)
				}
			}
		})
	}
	kinds.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d creates and %d deletes of claims of %d kinds, by %d clients each, in %s", creates.Load(), deletes.Load(), len(all), clientsPerKind, time.Since(began).Round(time.Second))
	return all
}

// addressMap contains the fields of the output of map that the tests read.
type addressMap struct {
	Totals   map[string]int64
	Segments []segment
}

// After random operations, the numbers of the plugin and of the console equal the numbers
// of the manager: in the status of the pools, and in the outcome of dry runs. The number
// of claims that fit, as the plugin predicts, is the number of claims that can be
// created. PLUGIN_OPERATIONS makes the test longer.
func TestNumbers_EqualTheManager(t *testing.T) {
	all := populate(t, operations(t))
	maps := map[*population]addressMap{}

	t.Run("pools_equal_the_status", func(t *testing.T) {
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // the status follows within seconds
			list := decoded[items[poolItem]](t, "pools").Items
			for _, p := range all {
				maps[p] = decoded[addressMap](t, "map", p.poolName())
				if err := p.equalsStatus(ctx, poolOf(t, p.pool, list), maps[p].Totals["cooldown"]); err != nil {
					return err
				}
				if out := ipam(t, "claims", "--not-ready", "--domain", p.namespace).stdout; out != "" { // wait until the states of the claims no longer change
					return fmt.Errorf("not ready: %s", out)
				}
			}
			return nil
		})
	})
	if t.Failed() {
		return
	}

	t.Run("map_counts_each_address", func(t *testing.T) {
		for _, p := range all {
			total := int64(0)
			for _, n := range maps[p].Totals {
				total += n
			}
			if total != poolSize || maps[p].Totals["owned"] < 10 || p.Cooldown && maps[p].Totals["cooldown"] == 0 {
				t.Errorf("%s: %d addresses, want %d, some owned and some in cooldown: %v", p.Name, total, poolSize, maps[p].Totals)
			}
			t.Logf("%s: %v", p.Name, maps[p].Totals)
		}
	})

	t.Run("map_of_a_part_has_the_numbers_of_the_part", func(t *testing.T) {
		for _, p := range all {
			args := []string{"map", p.poolName(), "--in", strings.TrimSuffix(maps[p].Segments[0].First, ".0") + ".0/26"}
			free, largest := int64(0), int64(0)
			for _, s := range decoded[addressMap](t, args...).Segments {
				if s.State == "free" {
					free, largest = free+s.Size, max(largest, s.Size)
				}
			}
			want := `, 0 free, `
			if free > 0 {
				want = fmt.Sprintf(`, %d free in \d+ blocks?, largest %d, `, free, largest)
			}
			if out := ipam(t, args...).stdout; !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s: %d addresses are free, the largest block has %d: %s", p.Name, free, largest, out)
			}
		}
	})

	t.Run("console_equals_the_commands", func(t *testing.T) {
		u := startUI(t, cluster.Kubeconfig())
		var list items[poolItem]
		if err := json.Unmarshal([]byte(u.mustGet(t, "/pools.json")), &list); err != nil {
			t.Fatal(err)
		}
		shown := decoded[items[poolItem]](t, "pools").Items
		for _, p := range all {
			if item := poolOf(t, p.pool, list.Items); item != poolOf(t, p.pool, shown) {
				t.Errorf("%s: the console shows %+v, the command %+v", p.Name, item, poolOf(t, p.pool, shown))
			} else if err := p.equalsStatus(t.Context(), item, maps[p].Totals["cooldown"]); err != nil {
				t.Error(err)
			}
			for target, args := range map[string][]string{"/pool.json": {"map", p.poolName()}, "/claims.json": {"claims", "--pool", p.poolName()}} {
				if page, out := u.mustGet(t, target+p.inPool()), ipam(t, append(args, "-o", "json")...).stdout; page != out {
					t.Errorf("%s%s differs from kubectl ipam %s:\n%s\n%s", target, p.inPool(), strings.Join(args, " "), page, out)
				}
			}
		}
	})

	t.Run("who_names_each_owner", func(t *testing.T) {
		for _, p := range all {
			claims := decoded[items[struct {
				Kind, Namespace, Name string
				Ranges                []string
			}]](t, "claims", "--domain", p.namespace).Items
			if len(claims) < 10 {
				t.Fatalf("%s: %d claims", p.Name, len(claims))
			}
			for _, c := range claims[:10] {
				for _, r := range c.Ranges {
					for _, s := range decoded[items[segment]](t, "who", r, "--domain", p.namespace).Items {
						if s.State != "owned" || s.Owner != (owner{c.Kind, c.Namespace, c.Name}) {
							t.Errorf("%s %s: %s belongs to %+v", c.Kind, c.Name, r, s)
						}
					}
				}
			}
		}
	})

	t.Run("dry_run_accepts_free_addresses_only", func(t *testing.T) {
		dry := client.NewDryRunClient(admin)
		for _, p := range all {
			var claims []client.Object
			free := map[string]bool{} // name of the claim -> address is free
			for _, s := range maps[p].Segments {
				for a, last := netip.MustParseAddr(s.First), netip.MustParseAddr(s.Last); a.Compare(last) <= 0; a = a.Next() {
					claim := p.Claim(p.namespace, "probe-"+strings.ReplaceAll(a.String(), ".", "-"), a.String())
					claims, free[claim.GetName()] = append(claims, claim), s.State == "free"
				}
			}
			concurrently(t, claims, func(claim client.Object) error {
				err := dry.Create(t.Context(), claim)
				if (err == nil) != free[claim.GetName()] {
					t.Errorf("%s %s: the map says free: %t; the dry run: %v", p.Name, claim.GetName(), free[claim.GetName()], err)
				}
				return nil
			})
			if len(claims) != poolSize {
				t.Errorf("%s: %d addresses, want %d", p.Name, len(claims), poolSize)
			}
		}
	})

	t.Run("dry_run_accepts_the_largest_free_block", func(t *testing.T) {
		p, dry := all[0], client.NewDryRunClient(admin)
		item := poolOf(t, p.pool, decoded[items[poolItem]](t, "pools").Items)
		claim := func(count int64) client.Object {
			o := p.Claim(p.namespace, "largest", "").(*butlerv1.IPAllocation)
			o.Spec.Count = new(int32(count))
			return o
		}
		suite.Create(t, dry, claim(item.LargestFree))
		suite.RequireDenied(t, dry.Create(t.Context(), claim(item.LargestFree+1)), 403,
			fmt.Sprintf("%d addresses requested, %d free, largest free block %d", item.LargestFree+1, item.Free, item.LargestFree))
	})

	t.Run("plan_agrees_with_the_manager", func(t *testing.T) {
		p := all[slices.IndexFunc(all, func(p *population) bool { return p.Name == "IPAddressClaim_of_NetworkPool" })]
		first := netip.MustParseAddr(maps[p].Segments[0].First)
		denied, accepted := 0, 0
		for range poolSize / 8 {
			network := netip.PrefixFrom(first, 29).String()
			planned := decoded[plan](t, "plan", p.poolName(), "--reserve", network)
			if (len(planned.Denied) > 0) == (planned.Server == "accepted") {
				t.Errorf("reserve %s: the plugin says %q, the API server %q", network, planned.Denied, planned.Server)
			}
			if (len(planned.Denied) > 0) != (len(planned.Owners) > 0) {
				t.Errorf("reserve %s: denied %q, owners %v", network, planned.Denied, planned.Owners)
			}
			if len(planned.Denied) > 0 {
				denied++
			} else {
				accepted++
			}
			for range 8 {
				first = first.Next()
			}
		}
		if denied == 0 || accepted == 0 {
			t.Errorf("%d changes are denied and %d accepted: the test shows nothing", denied, accepted)
		}
	})

	t.Run("viewer_of_one_namespace", func(t *testing.T) {
		ns := all[1].namespace // namespace of the IPClaims
		viewer := viewerKubeconfig(t, "viewer", ns)
		r := run(t, viewer, "claims", "-n", ns)
		warnings := "warning: you may list only namespace " + ns + ": objects of other namespaces are not shown, and addresses of their claims are shown as free\n" +
			"warning: not read, as you may not list them: proxyippools, proxyvips\n"
		if r.code != 0 || !strings.Contains(r.stdout, "claim-") || r.stderr != warnings {
			t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		if strings.Contains(r.stdout, all[0].namespace) {
			t.Errorf("the viewer sees another namespace: %s", r.stdout)
		}
	})

	t.Run("fit_is_what_fits", func(t *testing.T) {
		for _, p := range all {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				switch p.Name {
				case "IPAllocation":
					p.requireFits(t, []string{"--count", "3"}, 3)
				case "IPAddressClaim_of_NetworkPool": // the pool also serves IPAllocations
					p.Kind = suite.Kinds[0]
					p.requireFits(t, []string{"--tenant", "nodes=2,loadbalancer=3"}, 2, 3)
				default:
					p.requireFits(t, []string{"--count", "1"}, 1)
				}
			})
		}
	})
}

// equalsStatus returns an error if the numbers that the plugin shows for a pool differ
// from the status of the pool.
func (p *population) equalsStatus(ctx context.Context, shown poolItem, cooldown int64) error {
	if err := admin.Get(ctx, client.ObjectKeyFromObject(p.pool), p.pool); err != nil {
		return err
	}
	var want poolItem
	switch pool := p.pool.(type) {
	case *butlerv1.NetworkPool:
		s := pool.Status
		want = poolItem{Size: s.TotalIPs, Free: s.AvailableIPs, Allocated: s.AllocatedIPs, Granted: s.GrantedIPs, LargestFree: s.LargestFreeBlock, FragmentationPercent: ptr.Deref(s.FragmentationPercent, 0)}
	case *novaedgev1.ProxyIPPool:
		s := pool.Status
		want = poolItem{Size: s.Allocated + s.Available, Free: s.Available, Allocated: s.Allocated, Granted: s.Granted, LargestFree: shown.LargestFree, FragmentationPercent: shown.FragmentationPercent}
	case *metal3v1.IPPool: // the status only lists the owners
		owned := int64(len(pool.Status.Indexes))
		want = poolItem{Size: poolSize, Free: poolSize - owned - cooldown, Allocated: owned + cooldown, LargestFree: shown.LargestFree, FragmentationPercent: shown.FragmentationPercent}
	default:
		return errors.New("the kind of the pool is unknown")
	}
	want.Kind, want.Namespace, want.Name = shown.Kind, shown.Namespace, shown.Name
	if shown != want {
		return fmt.Errorf("%s: the status is %+v, shown is %+v", p.Name, want, shown)
	}
	return nil
}

// requireFits creates sets of claims with the given sizes until a claim gets no address,
// and requires that fit has predicted the number of sets.
func (p *population) requireFits(t *testing.T, question []string, sizes ...int32) {
	t.Helper()
	predicted := decoded[fit](t, append([]string{"fit", p.poolName()}, question...)...)
	created := int64(0)
	for full := false; !full; {
		for n, size := range sizes {
			claim := p.Claim(p.namespace, fmt.Sprintf("fits-%d-%d", created, n), "")
			if a, ok := claim.(*butlerv1.IPAllocation); ok {
				a.Spec.Count = &size
			}
			if err := admin.Create(t.Context(), claim); err != nil {
				suite.RequireDenied(t, err, 403)
			} else if p.Address(claim) != "" {
				continue
			}
			full = true
			break
		}
		if !full {
			created++
		}
	}
	t.Logf("%s: %s: %d predicted, %d created", p.Name, strings.Join(question, " "), predicted.Fits, created)
	if created != predicted.Fits || created == 0 {
		t.Errorf("%s: %s: %d fit, the plugin shows %d", p.Name, strings.Join(question, " "), created, predicted.Fits)
	}
	if r := run(t, cluster.Kubeconfig(), append([]string{"fit", p.poolName()}, question...)...); r.code != 1 || !strings.HasPrefix(r.stdout, "none: ") {
		t.Errorf("%s: in a full pool: exit code %d: %s%s", p.Name, r.code, r.stdout, r.stderr)
	}
}
