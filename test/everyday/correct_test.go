package everyday

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

// correctable is a kind of claim that names an address: its YAML, patches that correct it, and what it says.
type correctable struct {
	pool func(ns string, block int) string
	// claim names an address, "" for none, of pool p, or of another.
	claim func(ns, pool, address string) string
	// patch changes the address, or removes it where that is "".
	patch func(address string) string
	// pooled changes the pool; "" where that cannot be changed.
	pooled func(ns, pool string) string
	// named is the path of the address, failure those of the texts that say why the claim does not have it.
	named    []string
	failures func(o map[string]any) string
	served   func(o map[string]any) bool
}

func condition(o map[string]any, kind string) (status, text string) {
	all, _, _ := unstructured.NestedSlice(o, "status", "conditions")
	for _, c := range all {
		if c := c.(map[string]any); c["type"] == kind {
			return c["status"].(string), fmt.Sprintf("%s: %s", c["reason"], c["message"])
		}
	}
	return "", ""
}

// failing gives the text of a condition that is false.
func failing(kind string) func(map[string]any) string {
	return func(o map[string]any) string {
		if status, text := condition(o, kind); status == "False" {
			return text
		}
		return ""
	}
}

func serving(kind string) func(map[string]any) bool {
	return func(o map[string]any) bool {
		status, _ := condition(o, kind)
		stalled, _ := condition(o, "Stalled")
		return status == "True" && stalled != "True"
	}
}

func annotate(address string) string {
	if address == "" {
		return `{"metadata":{"annotations":{"ipAddress":null}}}`
	}
	return fmt.Sprintf(`{"metadata":{"annotations":{"ipAddress":%q}}}`, address)
}

func annotation(address string) string {
	if address == "" {
		return ""
	}
	return ", annotations: {ipAddress: " + address + "}"
}

var correctables = map[string]correctable{
	"IPAllocation": {
		pool: networkPool,
		claim: func(ns, pool, address string) string {
			pinned := ""
			if address != "" {
				pinned = fmt.Sprintf(", pinnedRange: {startAddress: %s, endAddress: %s}", address, address)
			}
			return fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: IPAllocation, metadata: {namespace: %s, name: c},
				spec: {poolRef: {name: %s}, type: nodes, count: 1, tenantClusterRef: {namespace: team, name: none}%s}}`, ns, pool, pinned)
		},
		patch: func(address string) string {
			if address == "" {
				return `{"spec":{"pinnedRange":null}}`
			}
			return fmt.Sprintf(`{"spec":{"pinnedRange":{"startAddress":%q,"endAddress":%q}}}`, address, address)
		},
		pooled: func(_, pool string) string { return fmt.Sprintf(`{"spec":{"poolRef":{"name":%q}}}`, pool) },
		named:  []string{"spec", "pinnedRange", "startAddress"}, failures: failing("Ready"), served: serving("Ready"),
	},
	"ProxyVIP": {
		pool: proxyIPPool,
		claim: func(ns, pool, address string) string {
			if pool == "p" {
				pool = ns
			}
			if address != "" {
				address = ", address: " + address + "/32"
			}
			return fmt.Sprintf(`{apiVersion: novaedge.io/v1alpha1, kind: ProxyVIP, metadata: {name: %s}, spec: {poolRef: {name: %s}, mode: BGP, ports: [80]%s}}`, ns, pool, address)
		},
		patch: func(address string) string {
			if address == "" {
				return `{"spec":{"address":null}}`
			}
			return fmt.Sprintf(`{"spec":{"address":"%s/32"}}`, address)
		},
		pooled: func(ns, _ string) string { return fmt.Sprintf(`{"spec":{"poolRef":{"name":%q}}}`, ns) },
		named:  []string{"spec", "address"}, failures: failing("Bound"), served: serving("Bound"),
	},
	"IPClaim": {
		pool: ipPool,
		claim: func(ns, pool, address string) string {
			return fmt.Sprintf(`{apiVersion: ipam.metal3.io/v1alpha1, kind: IPClaim, metadata: {namespace: %s, name: c%s}, spec: {pool: {name: %s}}}`, ns, annotation(address), pool)
		},
		patch: annotate,
		named: []string{"metadata", "annotations", "ipAddress"},
		failures: func(o map[string]any) string {
			text, _, _ := unstructured.NestedString(o, "status", "errorMessage")
			return text
		},
		served: func(o map[string]any) bool {
			_, failed, _ := unstructured.NestedString(o, "status", "errorMessage")
			_, has, _ := unstructured.NestedMap(o, "status", "address")
			return has && !failed
		},
	},
	"IPAddressClaim of an IPPool":     ipAddressClaim(ipPool, "ipam.metal3.io", "IPPool"),
	"IPAddressClaim of a NetworkPool": ipAddressClaim(networkPool, "butler.butlerlabs.dev", "NetworkPool"),
}

func ipAddressClaim(pool func(string, int) string, group, kind string) correctable {
	return correctable{
		pool: pool,
		claim: func(ns, pool, address string) string {
			return fmt.Sprintf(`{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, metadata: {namespace: %s, name: c%s},
				spec: {poolRef: {apiGroup: %s, kind: %s, name: %s}}}`, ns, annotation(address), group, kind, pool)
		},
		patch:  annotate,
		pooled: func(_, pool string) string { return fmt.Sprintf(`{"spec":{"poolRef":{"name":%q}}}`, pool) },
		named:  []string{"metadata", "annotations", "ipAddress"}, failures: failing("Ready"), served: serving("Ready"),
	}
}

// onEveryCorrectable runs a test for each kind of claim in a namespace of its own, with a block of addresses, 10.block.0.0/20 at least.
func onEveryCorrectable(t *testing.T, test func(t *testing.T, ns string, k correctable, pool string)) {
	t.Helper()
	for name, k := range correctables {
		t.Run(name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			block++
			test(t, ns, k, k.pool(ns, block))
		})
	}
}

// fails waits until a claim says that it has no address, and why.
func (k correctable) fails(t *testing.T, claim string, parts ...string) {
	t.Helper()
	suite.Becomes(t, admin, object(t, claim), func(o *unstructured.Unstructured) string {
		text := k.failures(o.Object)
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return fmt.Sprintf("failure %q does not say %q", text, part)
			}
		}
		if text == "" {
			return "it has not failed"
		}
		return ""
	})
}

// correct patches a claim, whose answer names this address, or any where it is "", and which is served within a second or so.
func (k correctable) correct(t *testing.T, claim, patch, want string) {
	t.Helper()
	o, began := object(t, claim), time.Now()
	if err := admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatalf("correct with %s: %v", patch, err)
	}
	got, _, _ := unstructured.NestedString(o.Object, k.named...)
	if got = strings.TrimSuffix(got, "/32"); got == "" || want != "" && got != want {
		t.Errorf("the patch answered address %q, want %q", got, want)
	}
	suite.Becomes(t, admin, o, func(o *unstructured.Unstructured) string {
		if !k.served(o.Object) {
			return fmt.Sprintf("it is not served: %v %v", o.GetAnnotations(), o.Object["status"])
		}
		return ""
	})
	if now, _, _ := unstructured.NestedString(o.Object, k.named...); strings.TrimSuffix(now, "/32") != got {
		t.Errorf("it was answered %s and has %s", got, now)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it was served after %s", took)
	}
}

// A claim stored before its pool names what the pool does not offer.
func TestCorrection_OutsideThePool(t *testing.T) {
	onEveryCorrectable(t, func(t *testing.T, ns string, k correctable, pool string) {
		claim := k.claim(ns, "p", "10.9.9.9")
		for _, to := range []string{fmt.Sprintf("10.%d.0.9", block), ""} {
			suite.Kubectl(t, cluster, "", "create", "-f", file(t, claim))
			suite.Kubectl(t, cluster, "", "create", "-f", file(t, pool))
			k.fails(t, claim, object(t, pool).GetName(), "10.9.9.9", "is outside the pool")
			if text := k.failures(suite.Stored(t, admin, object(t, claim)).Object); strings.Contains(strings.ToLower(text), "exhausted") {
				t.Errorf("it says %q of a pool with room", text)
			}
			k.correct(t, claim, k.patch(to), to)
			suite.Kubectl(t, cluster, "", "delete", "-f", file(t, claim, pool))
		}
	})
}

// A wish is corrected to another that cannot be met, and keeps what it was.
func TestCorrection_ToWhatCannotBeGiven(t *testing.T) {
	onEveryCorrectable(t, func(t *testing.T, ns string, k correctable, pool string) {
		claim := k.claim(ns, "p", "10.9.9.9")
		suite.Kubectl(t, cluster, "", "create", "-f", file(t, claim))
		suite.Kubectl(t, cluster, "", "create", "-f", file(t, pool))
		k.fails(t, claim, "is outside the pool")
		if err := admin.Patch(t.Context(), object(t, claim), client.RawPatch(types.MergePatchType, []byte(k.patch("10.9.9.8")))); err == nil || !strings.Contains(err.Error(), "10.9.9.8") {
			t.Errorf("another address outside: %v", err)
		}
		k.correct(t, claim, k.patch(""), "")
		// What is allocated now stays.
		before := suite.Stored(t, admin, object(t, claim))
		o := object(t, claim)
		if err := admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(k.patch("")))); err != nil {
			t.Error(err)
		}
		was, _, _ := unstructured.NestedString(before.Object, k.named...)
		if now, _, _ := unstructured.NestedString(o.Object, k.named...); now != was {
			t.Errorf("an update that omits the allocated address %s leaves %s", was, now)
		}
	})
}

// The pool is missing for ever, as its name is mistyped.
func TestCorrection_OfAMistypedPool(t *testing.T) {
	onEveryCorrectable(t, func(t *testing.T, ns string, k correctable, pool string) {
		if k.pooled == nil {
			claim := k.claim(ns, ns+"-typo", "") // Metal3's CRD has the pool of an IPClaim stay as it is: the message names the way out
			suite.Kubectl(t, cluster, "", "create", "-f", file(t, claim))
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pool":{"name":"p"}}}`))
			suite.Refused(t, admin.Patch(t.Context(), object(t, claim), patch), 422, "create another IPClaim in the other pool and delete this one")
			return
		}
		suite.Kubectl(t, cluster, "", "create", "-f", file(t, pool))
		for _, address := range []string{"", fmt.Sprintf("10.%d.0.9", block)} {
			claim := k.claim(ns, ns+"-typo", address)
			suite.Kubectl(t, cluster, "", "create", "-f", file(t, claim))
			k.fails(t, claim, ns+"-typo does not exist")
			k.correct(t, claim, k.pooled(ns, "p"), address)
			suite.Kubectl(t, cluster, "", "delete", "-f", file(t, claim))
		}
	})
}

// Both claims are stored before their pool; the older one wins.
func TestCorrection_OfTheLoserOfAConflict(t *testing.T) {
	onEveryCorrectable(t, func(t *testing.T, ns string, k correctable, pool string) {
		address := fmt.Sprintf("10.%d.0.9", block)
		for _, to := range []string{fmt.Sprintf("10.%d.0.8", block), ""} {
			loser := k.claim(ns, "p", address)
			winner := object(t, loser)
			winner.SetName(ns + "-winner")
			suite.Create(t, admin, winner)
			suite.Becomes(t, admin, winner, func(o *unstructured.Unstructured) string { // so that it is older by a second
				if time.Since(o.GetCreationTimestamp().Time) < 1100*time.Millisecond {
					return "it is too young"
				}
				return ""
			})
			suite.Kubectl(t, cluster, "", "create", "-f", file(t, loser))
			suite.Kubectl(t, cluster, "", "create", "-f", file(t, pool))
			suite.Becomes(t, admin, winner, func(o *unstructured.Unstructured) string {
				if !k.served(o.Object) {
					return fmt.Sprintf("the winner is not served: %v", o.Object["status"])
				}
				return ""
			})
			k.fails(t, loser, address, "is held by", "-winner")
			k.correct(t, loser, k.patch(to), to)
			if got := suite.Stored(t, admin, winner); !k.served(got.Object) {
				t.Errorf("the winner has lost its address: %v", got.Object["status"])
			}
			for _, o := range []client.Object{winner, object(t, loser)} {
				suite.Delete(t, admin, o)
			}
			suite.Delete(t, admin, object(t, pool))
		}
	})
}

// A count that differs from the pinned range was ignored: it may be corrected to the size of the range, also once that is allocated.
func TestCorrection_OfACount(t *testing.T) {
	ns := suite.Namespace(t, admin)
	block++
	suite.Kubectl(t, cluster, "", "create", "-f", file(t, networkPool(ns, block)))
	k := correctables["IPAllocation"]
	claim := strings.Replace(k.claim(ns, "p", fmt.Sprintf("10.%d.0.9", block)), "count: 1", "count: 5", 1)
	suite.Kubectl(t, cluster, "", "create", "-f", file(t, claim))
	suite.Becomes(t, admin, object(t, claim), func(o *unstructured.Unstructured) string {
		if !k.served(o.Object) {
			return "not Ready"
		}
		return ""
	})
	patch := func(text string) error {
		return admin.Patch(t.Context(), object(t, claim), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	suite.Refused(t, patch(`{"spec":{"count":4}}`), 422, "spec.count", "cannot be changed while addresses are held")
	for _, text := range []string{`{"spec":{"count":1}}`, `{"spec":{"count":null}}`} {
		if err := patch(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if count, _, _ := unstructured.NestedInt64(suite.Stored(t, admin, object(t, claim)).Object, "spec", "count"); count != 1 {
			t.Errorf("%s: count is %d, want 1", text, count)
		}
	}
	suite.Refused(t, patch(`{"spec":{"count":5}}`), 422, "spec.count", "cannot be changed while addresses are held")
}

// What else a failed allocation says may change too, and what the allocator wrote from it follows.
func TestCorrection_OfOtherFields(t *testing.T) {
	ns := suite.Namespace(t, admin)
	block++
	k := correctables["IPAllocation"]
	claim := k.claim(ns, "p", "10.9.9.9")
	suite.Kubectl(t, cluster, "", "create", "-f", file(t, claim))
	suite.Kubectl(t, cluster, "", "create", "-f", file(t, networkPool(ns, block)))
	k.fails(t, claim, "is outside the pool")
	o := object(t, claim)
	text := `{"spec":{"type":"loadbalancer","count":3,"tenantClusterRef":{"name":"other","namespace":"else"}}}`
	if err := admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{"allocation-type": "loadbalancer", "tenant": "other", "team": "else", "network-pool": "p"} {
		if got := o.GetLabels()["butler.butlerlabs.dev/"+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	k.correct(t, claim, k.patch(""), "")
	if count, _, _ := unstructured.NestedInt64(suite.Stored(t, admin, object(t, claim)).Object, "status", "allocatedCount"); count != 3 {
		t.Errorf("%d addresses, want the 3 of the corrected count", count)
	}
}
