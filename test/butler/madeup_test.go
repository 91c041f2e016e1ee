package butler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/suite"
)

// object reads one from YAML.
func object(t *testing.T, text string, args ...any) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf(text, args...)), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// updateReview is the AdmissionReview of an update of an object.
func updateReview(t *testing.T, old, o *unstructured.Unstructured, dryRun bool) []byte {
	t.Helper()
	raw := func(o *unstructured.Unstructured) runtime.RawExtension {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	kind := o.GroupVersionKind()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "made-up", Operation: admissionv1.Update, Kind: metav1.GroupVersionKind(kind), Namespace: o.GetNamespace(), Name: o.GetName(),
			Object: raw(o), OldObject: raw(old), DryRun: &dryRun,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// poolKinds have one address each, that a claim takes and an update removes. %[1]s is the
// namespace.
var poolKinds = map[string]struct{ path, pool, claim, without, invalid, full string }{
	"NetworkPool": {
		"/validate-butler-butlerlabs-dev-v1alpha1-networkpool",
		"{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {name: made-up, namespace: %[1]s}, spec: {cidr: 10.46.0.0/32}}",
		"{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: IPAllocation, metadata: {name: a, namespace: %[1]s}, " +
			"spec: {poolRef: {name: made-up}, tenantClusterRef: {name: web, namespace: team-a}, type: nodes, count: 1}}",
		"{reserved: [{cidr: 10.46.0.0/32}]}",
		"{tenantAllocation: {start: 10.46.0.0}}",
		"1 address requested, 0 free, largest free block 0: release some or enlarge the pool, or wait: 10.46.0.0 is withheld",
	},
	"IPPool": {
		"/validate-ipam-metal3-io-v1alpha1-ippool",
		"{apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, metadata: {name: made-up, namespace: %[1]s}, spec: {namePrefix: m, pools: [{start: 10.46.1.0, end: 10.46.1.0}]}}",
		"{apiVersion: ipam.metal3.io/v1alpha1, kind: IPClaim, metadata: {name: a, namespace: %[1]s, annotations: {ipAddress: 10.46.1.0}}, spec: {pool: {name: made-up}}}",
		"{pools: [{start: 10.46.1.1, end: 10.46.1.1}]}",
		"{pools: [{start: 10.46.1.1, end: 10.46.1.0}]}",
		"10.46.1.0 is withheld",
	},
	"ProxyIPPool": {
		"/validate-novaedge-io-v1alpha1-proxyippool",
		"{apiVersion: novaedge.io/v1alpha1, kind: ProxyIPPool, metadata: {name: made-up-%[1]s}, spec: {addresses: [10.46.2.0], autoAssign: true}}",
		"{apiVersion: novaedge.io/v1alpha1, kind: ProxyVIP, metadata: {name: a-%[1]s}, spec: {poolRef: {name: made-up-%[1]s}, mode: BGP, ports: [80]}}",
		"{addresses: [10.46.2.1]}",
		"{addresses: [10.46.2.9-10.46.2.1]}",
		"1 address requested, 0 free, largest free block 0: release some or enlarge the pool, or wait: 10.46.2.0 is withheld",
	},
}

func TestNetworkPool_UpdateByAnyCaller(t *testing.T) {
	ns := namespace(t)
	send := port(t)
	for kind, tc := range poolKinds {
		t.Run(kind, func(t *testing.T) {
			p, claim := object(t, tc.pool, ns), object(t, tc.claim, ns)
			suite.Create(t, admin, p)
			mayCreate := func() error { return admin.Create(t.Context(), claim.DeepCopy(), client.DryRunAll) }
			suite.AwaitObject(t, admin, p, func(p *unstructured.Unstructured) string {
				if len(p.GetFinalizers()) == 0 {
					return "finalizer"
				}
				return ""
			})
			update := changeSpec(t, p, tc.without)
			version, err := strconv.Atoi(p.GetResourceVersion())
			if err != nil {
				t.Fatal(err)
			}
			for name, change := range map[string]func(old *unstructured.Unstructured){
				"no version":        func(o *unstructured.Unstructured) { o.SetResourceVersion(""); o.SetUID("") },
				"another UID":       func(o *unstructured.Unstructured) { o.SetUID(types.UID(strings.Repeat("0", 36))) },
				"an older version":  func(o *unstructured.Unstructured) { o.SetResourceVersion(strconv.Itoa(version - 1)) },
				"a version to come": func(o *unstructured.Unstructured) { o.SetResourceVersion(strconv.Itoa(version + 1e6)) },
				"another pool":      func(o *unstructured.Unstructured) { o.SetName("other"); o.SetUID("") },
			} {
				old := p.DeepCopy()
				change(old)
				if code, text := send(tc.path, updateReview(t, old, update, false)); code != 200 {
					t.Errorf("%s: HTTP %d %s", name, code, text)
				}
				if err := mayCreate(); err != nil {
					t.Errorf("after an update of %s: %v", name, err)
				}
			}
			suite.Eventually(t, suite.Soon, func(context.Context) error { // the version that is stored, unless the manager writes the status meanwhile
				if code, text := send(tc.path, updateReview(t, suite.Read(t, admin, p), update, false)); code != 200 || !strings.Contains(string(text), `"allowed":true`) {
					t.Fatalf("the stored version: HTTP %d %s", code, text)
				}
				if err = mayCreate(); err == nil {
					return errors.New("an update of the stored version withholds nothing")
				}
				return nil
			})
			suite.RequireDenied(t, err, 403, tc.full, "as an update of pool "+strings.TrimPrefix(client.ObjectKeyFromObject(p).String(), "/"), "if the update is not stored, it is free again at 20")
		})
	}
}

// The API server repeats an update of a replaced version, but not a dry run of it.
func TestPool_DryRunOfAnUpdateBesideAStatus(t *testing.T) {
	ns := namespace(t)
	send := port(t)
	for kind, tc := range poolKinds {
		t.Run(kind, func(t *testing.T) {
			p := object(t, strings.ReplaceAll(tc.pool, "made-up", "dry-run"), ns)
			suite.Create(t, admin, p)
			old := p.DeepCopy()
			suite.AwaitObject(t, admin, p, func(p *unstructured.Unstructured) string {
				if p.GetResourceVersion() == old.GetResourceVersion() {
					return "no status"
				}
				return ""
			})
			code, text := send(tc.path, updateReview(t, old, changeSpec(t, old, tc.invalid), true))
			if code != 200 || !strings.Contains(string(text), `"allowed":false`) || !strings.Contains(string(text), `"code":422`) {
				t.Errorf("HTTP %d %s, want a denial", code, text)
			}
		})
	}
}

// changeSpec returns a copy of a pool with other values of fields of its spec.
func changeSpec(t *testing.T, p *unstructured.Unstructured, fields string) *unstructured.Unstructured {
	t.Helper()
	var spec map[string]any
	if err := yaml.Unmarshal([]byte(fields), &spec); err != nil {
		t.Fatal(err)
	}
	changed := p.DeepCopy()
	for field, value := range spec {
		changed.Object["spec"].(map[string]any)[field] = value
	}
	return changed
}
