package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// annotationPatch on an object with an answer of the allocator is the JSON patch by which
// the webhook of applyPatches changes the object.
const annotationPatch = "example.com/patch"

// applyPatches registers a mutating webhook of another program, which the API server
// calls after the allocator's. It returns when the webhook is called.
func applyPatches(t *testing.T) {
	t.Helper()
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	rules := suite.RulesFor(operations, "*", butlerv1.GroupVersion.Group, novaedgev1.GroupVersion.Group, metal3v1.GroupVersion.Group, "ipam.cluster.x-k8s.io")
	condition := fmt.Sprintf("[%q, %q].all(a, a in object.metadata.?annotations.orValue({}))", annotationPatch, butlerv1.AnnotationGrant)
	suite.RegisterMutatingWebhook(t, admin, "patches", suite.RespondingWebhook(t, func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		o := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(r.Object.Raw, o); err != nil {
			t.Error(err)
		}
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(o.Annotations[annotationPatch]), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
	}), condition, rules)
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, suite.Kinds[0].Pool(ns, "10.0.0.1", "10.0.0.20"))
	suite.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		claim := suite.Kinds[0].Claim(ns, "c", "")
		setPatch(claim, `[{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]`)
		if err := admin.Create(ctx, claim); err != nil {
			return err
		}
		if err := admin.Delete(ctx, claim); err != nil {
			return err
		}
		suite.AwaitGone(t, admin, claim)
		if claim.GetLabels()["seen"] == "" {
			return errors.New("the webhook is not called yet")
		}
		return nil
	})
}

func setPatch(o client.Object, patch string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationPatch] = patch
	o.SetAnnotations(annotations)
}

// changedAnswer is the part of a denial that names the cause and the remedy.
const changedAnswer = "another webhook or client has changed the allocator's answer: find and correct that webhook or client"

// Another webhook changes an object after the allocator's answer: the denial names the
// field, both values and the remedy.
func TestAnswer_ChangedByAnotherWebhook(t *testing.T) {
	applyPatches(t)
	type change struct {
		patch  string
		denied []string // nil if the claim is stored
	}
	set := func(path, value string, denied ...string) change {
		return change{fmt.Sprintf(`[{"op": "replace", "path": %q, "value": %s}]`, path, value), denied}
	}
	without := func(path string, denied ...string) change {
		return change{fmt.Sprintf(`[{"op": "remove", "path": %q}]`, path), denied}
	}
	const prefix = "butler.butlerlabs.dev~1"
	changes := map[string]map[string]change{
		"IPAllocation": {
			"count":    set("/spec/count", "5", "spec.count is 5,", "answered 1:"),
			"no count": without("/spec/count", "spec.count is absent,", "answered 1:"),
			"no range": without("/spec/pinnedRange", "spec.pinnedRange is absent,", `answered {"startAddress":"10.0.0.`),
			"type":     set("/spec/type", `"loadbalancer"`, `spec.type is "loadbalancer",`, `answered "nodes":`),
			"tenant":   set("/spec/tenantClusterRef/name", `"other"`, `spec.tenantClusterRef is {"name":"other",`, `answered {"name":"web",`),
			"team":     set("/spec/tenantClusterRef/namespace", `"other"`, `spec.tenantClusterRef is {`, `"namespace":"other"`, `"namespace":"team"`),
			"label":    set("/metadata/labels/"+prefix+"tenant", `"other"`, "metadata.labels[butler.butlerlabs.dev/tenant]", `is "other",`, `answered "web":`),
		},
		"ProxyVIP": {
			"family":     set("/spec/addressFamily", `"dual"`, `spec.addressFamily is "dual",`, `answered "ipv4":`),
			"no address": without("/spec/address", "spec.address is absent,", `answered "10.0.0.`),
			"mode":       set("/spec/mode", `"OSPF"`),
		},
	}
	for _, k := range suite.Kinds {
		t.Run(k.Name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.20"))
			all := map[string]change{
				"origin":    set("/metadata/annotations/"+prefix+"origin", `"pinned"`, "metadata.annotations[butler.butlerlabs.dev/origin]", `is "pinned",`, `answered "auto":`),
				"unrelated": {`[{"op": "add", "path": "/metadata/labels/a", "value": "b"}, {"op": "add", "path": "/metadata/annotations/c", "value": "d"}]`, nil},
			}
			if k.Cooldown {
				all["finalizers"] = without("/metadata/finalizers", "metadata.finalizers is absent,", "answered \"")
			}
			if changes[k.Name] == nil { // the address is an annotation
				all["no address"] = without("/metadata/annotations/ipAddress", "metadata.annotations[ipAddress] is absent,", `answered "10.0.0.`)
			}
			for name, change := range changes[k.Name] {
				all[name] = change
			}
			for name, change := range all {
				claim := k.Claim(ns, "c", "")
				setPatch(claim, change.patch)
				err := admin.Create(t.Context(), claim)
				switch {
				case change.denied != nil:
					t.Run(name, func(t *testing.T) { suite.RequireDenied(t, err, 403, append(change.denied, changedAnswer)...) })
				case err != nil:
					t.Errorf("%s: %v", name, err)
				}
				if err == nil {
					suite.Delete(t, admin, claim)
				}
			}
		})
	}
	t.Run("IPAddress", func(t *testing.T) {
		ns, k := suite.CreateNamespace(t, admin), suite.Kinds[1]
		suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.20"))
		a := &metal3v1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool-10-0-0-9"}, Spec: metal3v1.IPAddressSpec{
			Address: "10.0.0.9", Prefix: 24, Pool: corev1.ObjectReference{Name: "pool"}, Claim: corev1.ObjectReference{Name: "web"},
		}}
		setPatch(a, set("/spec/claim/name", `"other"`).patch)
		suite.RequireDenied(t, admin.Create(t.Context(), a), 403, `spec.claim is {"name":"other"}`, `answered {"name":"web"}:`, changedAnswer)
	})
	// The reconciler writes the answer of a claim that was stored before its pool.
	t.Run("of the reconciler", func(t *testing.T) {
		ns, k := suite.CreateNamespace(t, admin), suite.Kinds[0]
		claim := k.Claim(ns, "c", "")
		setPatch(claim, set("/spec/type", `"loadbalancer"`).patch)
		suite.CreateForTest(t, admin, claim, k.Pool(ns, "10.0.0.1", "10.0.0.20"))
		k.Fails(t, admin, claim, `spec.type is "loadbalancer"`)
		suite.Change(t, admin, claim, func(o client.Object) { setPatch(o, "[]") })
		k.Binds(t, admin, claim, "")
	})
	// An update of a claim with its addresses, whose absent fields the allocator
	// restores.
	t.Run("of an update", func(t *testing.T) {
		for _, k := range suite.Kinds {
			t.Run(k.Name, func(t *testing.T) {
				ns := suite.CreateNamespace(t, admin)
				claim := k.Claim(ns, "c", "")
				suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.20"), claim)
				was := k.Address(claim)
				err := suite.TryChange(t, admin, claim, func(o client.Object) {
					k.Request(o, "") // restored
					annotations := o.GetAnnotations()
					delete(annotations, butlerv1.AnnotationOrigin) // restored
					o.SetAnnotations(annotations)
					setPatch(o, without("/metadata/annotations/"+prefix+"origin").patch)
				})
				suite.RequireDenied(t, err, 403, "metadata.annotations[butler.butlerlabs.dev/origin] is absent,", `answered "auto":`, changedAnswer)
				if got := k.Address(suite.Read(t, admin, claim)); got != was {
					t.Errorf("address %q, want %q", got, was)
				}
			})
		}
	})
	t.Run("of an update to another family", func(t *testing.T) {
		ns, k := suite.CreateNamespace(t, admin), suite.Kinds[len(suite.Kinds)-1]
		claim := k.Claim(ns, "c", "").(*novaedgev1.ProxyVIP)
		suite.CreateForTest(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.20"), claim)
		err := suite.TryChange(t, admin, claim, func(v *novaedgev1.ProxyVIP) {
			v.Spec.Ports = []int32{443}
			setPatch(v, set("/spec/addressFamily", `"dual"`).patch)
		})
		suite.RequireDenied(t, err, 403, "spec is without some addresses,", changedAnswer)
	})
}
