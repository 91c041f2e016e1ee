package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// onEveryKind runs a test for each kind of claim in parallel, each in its own namespace
// and routing domain.
func onEveryKind(t *testing.T, test func(t *testing.T, k suite.Kind, ns string)) {
	t.Helper()
	onKinds(t, suite.Kinds, test)
}

// onKinds runs a test for the given kinds in parallel.
func onKinds(t *testing.T, kinds []suite.Kind, test func(t *testing.T, k suite.Kind, ns string)) {
	t.Helper()
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			test(t, k, suite.CreateNamespace(t, admin))
		})
	}
}

// dryRun creates a copy of a claim as a dry run, and returns the address in the response.
func dryRun(ctx context.Context, k suite.Kind, claim client.Object) (string, error) {
	o := claim.DeepCopyObject().(client.Object)
	err := admin.Create(ctx, o, client.DryRunAll)
	return k.Address(o), err
}

// createExhausted creates a claim whose pool is exhausted, and checks that the create is
// denied or the claim is stored without an address.
func createExhausted(t *testing.T, k suite.Kind, claim client.Object) {
	t.Helper()
	err := admin.Create(t.Context(), claim)
	if k.Denied {
		suite.RequireDenied(t, err, 403, "pool exhausted: pool ", "1 address requested, 0 free")
		return
	}
	if err != nil || k.Address(claim) != "" {
		t.Fatalf("create of %s %s returned address %q, %v: want a claim stored without an address", k.Name, claim.GetName(), k.Address(claim), err)
	}
	k.Fails(t, admin, claim, "Exhausted IP Pools")
}

// awaitServed waits until a claim of createExhausted has an address. A denied claim is
// created again.
func awaitServed(t *testing.T, k suite.Kind, claim client.Object) {
	t.Helper()
	if k.Denied {
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Create(ctx, claim) })
		t.Cleanup(func() { _ = admin.Delete(context.Background(), claim) })
	}
	k.Binds(t, admin, claim, "")
}

// poolText returns the name of a pool as in messages.
func poolText(pool client.Object) string {
	return "pool " + strings.TrimPrefix(pool.GetNamespace()+"/"+pool.GetName(), "/")
}

func TestClaim_Create(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.3")
		suite.CreateForTest(t, admin, pool)
		first := k.Claim(ns, "first", "")
		k.Gets(t, admin, first, "10.0.0.1")
		second := k.Claim(ns, "second", "")
		suite.CreateForTest(t, admin, second)
		if k.Cooldown == (len(second.GetFinalizers()) == 0) || len(second.GetAnnotations()[butlerv1.AnnotationGrant]) != 16 || second.GetAnnotations()[butlerv1.AnnotationOrigin] != butlerv1.OriginAuto {
			t.Errorf("the response has finalizers %q, annotations %v", second.GetFinalizers(), second.GetAnnotations())
		}
		k.Binds(t, admin, second, "10.0.0.2")
		k.Counts(t, admin, pool, 2)

		suite.Delete(t, admin, first)
		k.Counts(t, admin, pool, 1)
		k.Gets(t, admin, k.Claim(ns, "third", ""), "10.0.0.1")
	})
}

// A create of a name that is taken costs no address, whatever it requests.
func TestClaim_NameTaken(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.2"))
		first := k.Claim(ns, "first", "")
		suite.CreateForTest(t, admin, first)
		k.Binds(t, admin, first, "10.0.0.1") // the managers have observed it
		for _, err := range []error{admin.Create(t.Context(), k.Claim(ns, "first", "10.0.0.2")), admin.Create(t.Context(), k.Claim(ns, "first", "10.0.0.2"), client.DryRunAll)} {
			if !apierrors.IsAlreadyExists(err) {
				t.Errorf("got %v, want that it exists already", err)
			}
		}
		k.Gets(t, admin, k.Claim(ns, "second", ""), "10.0.0.2")
	})
}

// A claim that is deleted within a second of its creation leaves nothing behind
// (metal3-io/ip-address-manager #694).
func TestClaim_CreateAndDelete(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.2")
		suite.CreateForTest(t, admin, pool)
		var all []client.Object
		for i := range 20 {
			c := k.Claim(ns, fmt.Sprintf("brief-%d", i), "")
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Create(ctx, c) }) // the pool may be full for a moment
			if err := admin.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		for _, c := range all {
			suite.AwaitGone(t, admin, c)
		}
		k.Counts(t, admin, pool, 0)
		for _, left := range []client.ObjectList{&metal3v1.IPAddressList{}, &ipamv1.IPAddressList{}} {
			if err := admin.List(t.Context(), left, client.InNamespace(ns)); err != nil || meta.LenList(left) > 0 {
				t.Errorf("left behind: %+v, %v", left, err)
			}
		}
		for i, want := range []string{"10.0.0.1", "10.0.0.2"} {
			k.Gets(t, admin, k.Claim(ns, fmt.Sprintf("stays-%d", i), ""), want)
		}
	})
}

func TestClaim_DryRun(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.2")
		suite.CreateForTest(t, admin, pool)
		t.Run("takes_nothing", func(t *testing.T) {
			for range 20 {
				c := k.Claim(ns, "dry", "")
				if err := admin.Create(t.Context(), c, client.DryRunAll); err != nil || k.Address(c) != "10.0.0.1" || c.GetAnnotations()[butlerv1.AnnotationGrant] != "" {
					t.Fatalf("the dry run returns %q with annotations %v, %v: want 10.0.0.1 without a token", k.Address(c), c.GetAnnotations(), err)
				}
			}
			k.Counts(t, admin, pool, 0)
		})
		k.Gets(t, admin, k.Claim(ns, "first", ""), "10.0.0.1")
		t.Run("matches_real_create", func(t *testing.T) {
			for name, claim := range map[string]client.Object{
				"any address": k.Claim(ns, "any", ""), "exact address": k.Claim(ns, "exact", "10.0.0.2"), "taken": k.Claim(ns, "taken", "10.0.0.1"),
				"outside": k.Claim(ns, "outside", "10.0.0.9"), "invalid name": k.Claim(ns, "X_", ""), "no address": k.Claim(ns, "odd", "10.0.0.300"),
			} {
				dry, actual := claim.DeepCopyObject().(client.Object), claim.DeepCopyObject().(client.Object)
				dryErr, err := admin.Create(t.Context(), dry, client.DryRunAll), admin.Create(t.Context(), actual)
				if fmt.Sprint(dryErr) != fmt.Sprint(err) {
					t.Errorf("%s: the dry run returns %v, the create %v", name, dryErr, err)
				}
				if err != nil {
					continue
				}
				created := actual.DeepCopyObject().(client.Object)
				for _, o := range []client.Object{dry, actual} {
					delete(o.GetAnnotations(), butlerv1.AnnotationGrant)
					o.SetUID("")
					o.SetResourceVersion("")
					o.SetCreationTimestamp(actual.GetCreationTimestamp())
					o.SetManagedFields(nil)
				}
				if diff := cmp.Diff(actual, dry); diff != "" {
					t.Errorf("%s: responses differ (-create +dry run):\n%s", name, diff)
				}
				suite.Delete(t, admin, created)
				suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
					_, err := dryRun(ctx, k, k.Claim(ns, "probe", "10.0.0.2"))
					return err
				})
			}
			dryErr, err := admin.Create(t.Context(), k.Claim(ns, "first", ""), client.DryRunAll), admin.Create(t.Context(), k.Claim(ns, "first", ""))
			if err == nil || fmt.Sprint(dryErr) != err.Error() {
				t.Errorf("existing name: the dry run returns %v, the create %v", dryErr, err)
			}
		})
	})
}

// A claim that finds its pool full is served when addresses are added or released
// (metal3-io/ip-address-manager #1537).
func TestClaim_Exhaustion(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.1")
		suite.CreateForTest(t, admin, pool)
		first := k.Claim(ns, "first", "")
		k.Gets(t, admin, first, "10.0.0.1")
		var waiting []client.Object
		for i := range 3 {
			waiting = append(waiting, k.Claim(ns, fmt.Sprintf("waits-%d", i), ""))
			createExhausted(t, k, waiting[i])
		}
		if k.Denied {
			_, dryErr := dryRun(t.Context(), k, waiting[0])
			if err := admin.Create(t.Context(), waiting[0]); fmt.Sprint(dryErr) != err.Error() {
				t.Errorf("the dry run returns %v, the create %v", dryErr, err)
			}
		} else if address, err := dryRun(t.Context(), k, k.Claim(ns, "dry", "")); address != "" || err != nil {
			t.Errorf("the dry run returns address %q, %v", address, err)
		}
		suite.Change(t, admin, pool, func(p client.Object) { k.Resize(p, "10.0.0.1", "10.0.0.3") })
		for _, c := range waiting[:2] {
			awaitServed(t, k, c)
		}
		if !k.Denied {
			k.Fails(t, admin, waiting[2], "Exhausted IP Pools")
		}
		suite.Delete(t, admin, first)
		awaitServed(t, k, waiting[2])
		if got := k.Address(waiting[2]); got != "10.0.0.1" {
			t.Errorf("the released address is 10.0.0.1, the claim that waited has %s", got)
		}
	})
}

func TestClaim_ExactAddress(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.9"))
		c := k.Claim(ns, "exact", "10.0.0.5")
		k.Gets(t, admin, c, "10.0.0.5")
		if got := c.GetAnnotations()[butlerv1.AnnotationOrigin]; got != butlerv1.OriginPinned {
			t.Errorf("origin %q, want %q", got, butlerv1.OriginPinned)
		}
		suite.RequireDenied(t, admin.Create(t.Context(), k.Claim(ns, "outside", "10.9.0.1")), 422, k.Outside)
		suite.RequireDenied(t, admin.Create(t.Context(), k.Claim(ns, "odd", "10.0.0.300")), 422, "10.0.0.300")
		suite.Change(t, admin, c, func(o client.Object) { k.Request(o, "") })
		if got := k.Address(suite.Read(t, admin, c)); got != "10.0.0.5" {
			t.Errorf("after an update that omits the address the claim has %q", got)
		}
		err := suite.TryChange(t, admin, c, func(o client.Object) { k.Request(o, "10.0.0.9") })
		if k.Name == "ProxyVIP" { // a ProxyVIP may change its address within the pool
			if err != nil {
				t.Error(err)
			}
			k.Binds(t, admin, c, "10.0.0.9")
			return
		}
		suite.RequireDenied(t, err, 422, "10.0.0.5")
	})
}

func TestClaim_Conflict(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.9"))
		owner := k.Claim(ns, "owner", "10.0.0.1")
		k.Gets(t, admin, owner, "10.0.0.1")
		suite.RequireDenied(t, admin.Create(t.Context(), k.Claim(ns, "thief", "10.0.0.1")), 403, k.Taken)
		thief := k.Claim(ns, "thief", "10.0.0.1") // with the token of the owner
		annotations := thief.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[butlerv1.AnnotationGrant] = owner.GetAnnotations()[butlerv1.AnnotationGrant]
		thief.SetAnnotations(annotations)
		suite.RequireDenied(t, admin.Create(t.Context(), thief), 403, k.Taken)
		k.Binds(t, admin, owner, "10.0.0.1")
	})
	// Pools of all kinds offer the same addresses.
	t.Run("between_kinds", func(t *testing.T) {
		t.Parallel()
		ns := suite.CreateNamespace(t, admin)
		createPools(t, ns, "10.0.0.1", "10.0.0.9")
		for i, k := range suite.Kinds {
			k.Gets(t, admin, k.Claim(ns, fmt.Sprintf("owner-%d", i), fmt.Sprintf("10.0.0.%d", 9-i)), fmt.Sprintf("10.0.0.%d", 9-i))
		}
		for i, k := range suite.Kinds {
			for j := range suite.Kinds {
				if j != i {
					suite.RequireDenied(t, admin.Create(t.Context(), k.Claim(ns, fmt.Sprintf("thief-%d", i), fmt.Sprintf("10.0.0.%d", 9-j))), 403)
				}
			}
			k.Gets(t, admin, k.Claim(ns, fmt.Sprintf("next-%d", i), ""), fmt.Sprintf("10.0.0.%d", i+1)) // 10.0.0.5 was the last
			if i == 3 {
				break
			}
		}
	})
}

// A webhook of another program changes the pool of a claim after the allocator has
// allocated the address. The changed claim is denied: its address may have another owner
// in the routing domain of the other pool.
func TestClaim_PoolChangedByAnotherWebhook(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.9"))
		other := k.Pool(ns+"-other", "10.0.0.1", "10.0.0.9")
		if other.GetNamespace() != "" {
			other.SetNamespace(ns)
			other.SetName("other")
		}
		suite.CreateForTest(t, admin, other)
		owner := k.Claim(ns, "owner", "")
		k.Repool(owner, other.GetName())
		k.Gets(t, admin, owner, "10.0.0.1")

		claim := k.Claim(ns, "changed", "")
		group := resourceGroup(t, claim)
		hook := suite.RespondingWebhook(t, func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			patch, err := repoolPatch(k, r.Object.Raw, other.GetName())
			if err != nil {
				return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
			}
			return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		})
		suite.RegisterMutatingWebhook(t, admin, ns, hook, fmt.Sprintf("object.metadata.name == %q && request.?namespace.orValue('') == %q", claim.GetName(), claim.GetNamespace()),
			suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}, k.Resource, group))
		var denied error
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // the API server calls the webhook shortly after the webhook is stored
			o := claim.DeepCopyObject().(client.Object)
			switch denied = admin.Create(ctx, o); {
			case denied == nil:
				return errors.Join(errors.New("the claim is stored"), admin.Delete(ctx, o))
			case apierrors.IsAlreadyExists(denied): // being deleted
				return denied
			}
			return nil
		})
		suite.RequireDenied(t, denied, 403, "10.0.0.", "another webhook or client has changed the allocator's answer")
	})
}

// resourceGroup returns the API group of an object.
func resourceGroup(t *testing.T, o client.Object) string {
	t.Helper()
	kind, err := admin.GroupVersionKindFor(o)
	if err != nil {
		t.Fatal(err)
	}
	return kind.Group
}

// repoolPatch returns a JSON patch that replaces the pool of a claim.
func repoolPatch(k suite.Kind, claim []byte, pool string) ([]byte, error) {
	o := k.Claim("", "", "")
	if err := json.Unmarshal(claim, o); err != nil {
		return nil, err
	}
	k.Repool(o, pool)
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	return json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": raw["spec"]}})
}

// createPools creates a pool of each kind for the test. All offer the same addresses of
// one routing domain.
func createPools(t *testing.T, ns, first, last string) {
	t.Helper()
	made := map[string]bool{}
	for _, k := range suite.Kinds {
		if p := k.Pool(ns, first, last); !made[fmt.Sprintf("%T", p)] {
			made[fmt.Sprintf("%T", p)] = true
			suite.CreateForTest(t, admin, p)
		}
	}
}

// The existing provider allocated one address to claims of two kinds, because it compared
// a claim with claims of the same kind only (metal3-io/ip-address-manager #1529).
func TestClaim_ConcurrentCreates(t *testing.T) {
	t.Parallel()
	const clients, each = 65, 3
	ns := suite.CreateNamespace(t, admin)
	createPools(t, ns, "10.4.0.1", "10.4.0.255")
	var (
		mu    sync.Mutex
		owner = map[string]string{} // address -> claim
		calls sync.WaitGroup
	)
	for i := range clients {
		calls.Go(func() {
			k := suite.Kinds[i%len(suite.Kinds)]
			for j := range each {
				c := k.Claim(ns, fmt.Sprintf("c-%d-%d", i, j), "")
				if err := admin.Create(t.Context(), c); err != nil {
					t.Errorf("%s: %v", c.GetName(), err)
					continue
				}
				t.Cleanup(func() { _ = admin.Delete(context.Background(), c) })
				mu.Lock()
				if other, taken := owner[k.Address(c)]; taken {
					t.Errorf("%s and %s both have %s", other, c.GetName(), k.Address(c))
				}
				owner[k.Address(c)] = c.GetName()
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	if owner[""] != "" || len(owner) != clients*each {
		t.Errorf("%d claims have %d addresses", clients*each, len(owner))
	}
}

func TestClaim_Cooldown(t *testing.T) {
	t.Parallel()
	cooling := slices.DeleteFunc(slices.Clone(suite.Kinds), func(k suite.Kind) bool { return !k.Cooldown })
	t.Run("keeps_the_address", func(t *testing.T) {
		onKinds(t, cooling, func(t *testing.T, k suite.Kind, ns string) {
			pool := k.Pool(ns, "10.0.0.1", "10.0.0.9")
			k.Delay(pool, time.Hour)
			suite.CreateForTest(t, admin, pool)
			first := k.Claim(ns, "first", "")
			k.Gets(t, admin, first, "10.0.0.1")
			suite.Delete(t, admin, first)
			k.Gets(t, admin, k.Claim(ns, "second", ""), "10.0.0.2")
			suite.AwaitObject(t, admin, pool, func(p client.Object) string { return missingCooldown(p, "10.0.0.1") })
			if _, err := dryRun(t.Context(), k, k.Claim(ns, "exact", "10.0.0.1")); err == nil {
				t.Error("an address in cooldown is allocated to a claim that names it")
			}
			suite.Change(t, admin, pool, func(p client.Object) { k.Delay(p, time.Second) })
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
				_, err := dryRun(ctx, k, k.Claim(ns, "exact", "10.0.0.1"))
				return err
			})
		})
	})
	t.Run("ends", func(t *testing.T) {
		onKinds(t, cooling, func(t *testing.T, k suite.Kind, ns string) {
			const delay = 10 * time.Second // the second claim has to be denied within this time
			pool := k.Pool(ns, "10.0.0.1", "10.0.0.1")
			k.Delay(pool, delay)
			suite.CreateForTest(t, admin, pool)
			first, second := k.Claim(ns, "first", ""), k.Claim(ns, "second", "")
			k.Gets(t, admin, first, "10.0.0.1")
			released := time.Now()
			suite.Delete(t, admin, first)
			createExhausted(t, k, second)
			awaitServed(t, k, second)
			if took := time.Since(released); took < delay {
				t.Errorf("the address is allocated again after %s, want %s", took, delay)
			}
			k.Counts(t, admin, pool, 1)
			suite.AwaitObject(t, admin, pool, func(p client.Object) string { return p.GetAnnotations()[butlerv1.AnnotationCooldown] })
		})
	})
}

// missingCooldown returns "" if the pool records a cooldown of the address, and otherwise
// a text with the recorded cooldowns.
func missingCooldown(pool client.Object, address string) string {
	text := pool.GetAnnotations()[butlerv1.AnnotationCooldown]
	if p, ok := pool.(*butlerv1.NetworkPool); ok {
		for _, r := range p.Status.Releases {
			if r.ReusableAt != nil {
				text += " " + r.StartAddress
			}
		}
	}
	if !strings.Contains(text, address) {
		return fmt.Sprintf("the record %q lacks %s", text, address)
	}
	return ""
}

// Every manager is killed and started again: allocated addresses stay owned, and recorded
// cooldowns continue. The release of an allocation is recorded in the status of its pool
// before the finalizer is removed. If a user removes the finalizer, the pool records the
// cooldown in its annotation.
func TestClaim_Restart(t *testing.T) {
	type fixture struct {
		suite.Kind
		ns                                  string
		pool, kept, waits, released, forced client.Object
	}
	var all []fixture
	for _, k := range suite.Kinds {
		ns := suite.CreateNamespace(t, admin)
		w := fixture{k, ns, k.Pool(ns, "10.0.0.1", "10.0.0.3"), k.Claim(ns, "kept", ""), k.Claim(ns, "waits", ""), k.Claim(ns, "released", ""), k.Claim(ns, "forced", "")}
		k.Delay(w.pool, time.Hour)
		suite.CreateForTest(t, admin, w.pool)
		k.Gets(t, admin, w.kept, "10.0.0.1")
		k.Gets(t, admin, w.released, "10.0.0.2")
		k.Gets(t, admin, w.forced, "10.0.0.3")
		createExhausted(t, k, w.waits)
		all = append(all, w)
		if !k.Cooldown {
			continue
		}
		suite.Delete(t, admin, w.released)
		if lacks := missingCooldown(suite.Read(t, admin, w.pool), "10.0.0.2"); lacks != "" { // every manager may end at that moment
			t.Errorf("%s: the claim is deleted, but %s", k.Name, lacks)
		}
		suite.Change(t, admin, w.forced, func(o client.Object) { o.SetFinalizers([]string{"example.com/keeps"}) })
		if err := admin.Delete(t.Context(), w.forced); err != nil {
			t.Fatal(err)
		}
		suite.Change(t, admin, w.forced, func(o client.Object) { o.SetFinalizers(nil) })
		if k.Name == "IPAllocation" { // the address objects of the other kinds remain and own the address
			suite.AwaitObject(t, admin, w.pool, func(p client.Object) string { return missingCooldown(p, "10.0.0.3") })
		}
	}
	for _, m := range cluster.Managers() {
		if err := errors.Join(m.Kill(), ignoreExit(m.Wait(t.Context()))); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range cluster.Managers() {
		if err := errors.Join(m.Start(), m.Ready(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range all {
		t.Run(w.Name, func(t *testing.T) {
			version := w.kept.GetResourceVersion()
			w.Binds(t, admin, w.kept, "10.0.0.1")
			if now := w.kept.GetResourceVersion(); now != version {
				t.Errorf("the claim was written: version %s, was %s", now, version)
			}
			createExhausted(t, w.Kind, w.Claim(w.ns, "next", ""))
			for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
				if _, err := dryRun(t.Context(), w.Kind, w.Claim(w.ns, "exact", address)); err == nil {
					t.Errorf("%s is allocated again", address)
				}
			}
		})
	}
}

// ignoreExit drops the exit error of a killed process.
func ignoreExit(error) error { return nil }

// warnings collects the warnings in the responses to a client.
type warnings struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func TestClaim_PoolMissing(t *testing.T) {
	for _, k := range suite.Kinds {
		t.Run(k.Name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			var warned warnings
			c, err := suite.NewClient(cluster, func(config *rest.Config) { config.WarningHandler = &warned })
			if err != nil {
				t.Fatal(err)
			}
			pool := k.Pool(ns, "10.0.0.1", "10.0.0.4")
			var lags []time.Duration
			for range 5 {
				first, exact := k.Claim(ns, "first", ""), k.Claim(ns, "exact", "10.0.0.1")
				suite.CreateForTest(t, c, first, exact)
				if k.Address(first) != "" || k.Address(exact) != "10.0.0.1" || exact.GetAnnotations()[butlerv1.AnnotationGrant] != "" {
					t.Errorf("the responses have %q and %q, token %q", k.Address(first), k.Address(exact), exact.GetAnnotations()[butlerv1.AnnotationGrant])
				}
				if text := strings.Join(warned.text, "\n"); !strings.Contains(text, poolText(pool)+" does not exist: the claim waits") {
					t.Errorf("warnings: %q", text)
				}
				for _, c := range []client.Object{first, exact} {
					if k.Missing != "" {
						k.Fails(t, admin, c, k.Missing)
						k.Fails(t, admin, c, poolText(pool)+" does not exist")
					}
				}
				suite.CreateForTest(t, c, pool)
				created := time.Now()
				k.Binds(t, admin, exact, "10.0.0.1")
				k.Binds(t, admin, first, "10.0.0.2")
				lags = append(lags, time.Since(created))
				if a, ok := exact.(*butlerv1.IPAllocation); ok && ptr.Deref(a.Spec.Count, 0) != 1 {
					t.Errorf("count %v of an adopted address, want 1", a.Spec.Count)
				}
				if first, exact := first.GetAnnotations()[butlerv1.AnnotationOrigin], exact.GetAnnotations()[butlerv1.AnnotationOrigin]; first != butlerv1.OriginAuto || exact != butlerv1.OriginAdopted {
					t.Errorf("origins %q and %q, want %q and %q", first, exact, butlerv1.OriginAuto, butlerv1.OriginAdopted)
				}
				for _, o := range []client.Object{first, exact, pool} {
					suite.Delete(t, admin, o)
				}
				pool = k.Pool(ns, "10.0.0.1", "10.0.0.4")
			}
			if slices.Min(lags) > time.Second {
				t.Errorf("claims get addresses %s after the create of their pool", lags)
			}
		})
	}
}

func TestClaim_PoolShrinks(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.10")
		suite.CreateForTest(t, admin, pool)
		owner := k.Claim(ns, "owner", "10.0.0.5")
		k.Gets(t, admin, owner, "10.0.0.5")
		err := suite.TryChange(t, admin, pool, func(p client.Object) { k.Resize(p, "10.0.0.6", "10.0.0.10") })
		suite.RequireDenied(t, err, 403, poolText(pool)+": 10.0.0.5 would leave the pool's ranges while it is owned by "+k.Resource+"/"+owner.GetName())
		suite.Change(t, admin, pool, func(p client.Object) { k.Resize(p, "10.0.0.5", "10.0.0.6") })
		k.Gets(t, admin, k.Claim(ns, "next", ""), "10.0.0.6")
	})
}

func TestClaim_PoolDeletion(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.9")
		suite.CreateForTest(t, admin, pool)
		owner := k.Claim(ns, "owner", "")
		k.Gets(t, admin, owner, "10.0.0.1")
		k.Counts(t, admin, pool, 1)
		if k.Protected {
			denied := poolText(pool) + " cannot be deleted while 1 " + strings.TrimSuffix(k.Resource, "s") + " owns addresses of the pool"
			suite.RequireDenied(t, admin.Delete(t.Context(), pool, client.DryRunAll), 403, denied)
			suite.RequireDenied(t, admin.Delete(t.Context(), pool), 403, denied, "delete it first")
			if ns := pool.GetNamespace(); ns != "" {
				suite.RequireDenied(t, admin.DeleteAllOf(t.Context(), &butlerv1.NetworkPool{}, client.InNamespace(ns)), 403, denied)
			}
			if p := suite.Read(t, admin, pool); p.GetDeletionTimestamp() != nil {
				t.Fatal("the pool is being deleted, want it untouched")
			}
			suite.Delete(t, admin, owner)
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Delete(ctx, pool) }) // a replica may observe the end of the claim later
			suite.AwaitGone(t, admin, pool)
			return
		}
		if err := admin.Delete(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // a replica may observe the deletion later
			if _, err := dryRun(ctx, k, k.Claim(ns, "exact", "10.0.0.8")); err == nil {
				return errors.New("a dry run is not denied")
			}
			return nil
		})
		suite.RequireDenied(t, admin.Create(t.Context(), k.Claim(ns, "exact", "10.0.0.8")), 403, "is being deleted and allocates no more addresses")
		late := k.Claim(ns, "late", "")
		suite.Create(t, admin, late)
		if got := k.Address(late); got != "" {
			t.Errorf("a pool that is being deleted allocates %s", got)
		}
		k.Binds(t, admin, owner, "10.0.0.1")
		suite.Delete(t, admin, owner)
		suite.Delete(t, admin, late)
		suite.AwaitGone(t, admin, pool)
	})
}
