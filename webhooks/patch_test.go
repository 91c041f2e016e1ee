package webhooks

import (
	"encoding/json"
	"net/netip"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var allocations = newClaims(Options{}, ipAllocations{}, "ipallocation")

// patchFrom returns the patch of a changed claim.
func patchFrom(t *testing.T, before fields, a *v1alpha1.IPAllocation) patch {
	t.Helper()
	p, err := before.diff(allocations.recordFields(a))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// given applies what the webhook would answer for a range to a claim, as the API server
// does.
func given(t *testing.T, object, first, last string) (string, []string) {
	t.Helper()
	a, err := allocations.decode([]byte(object), false)
	if err != nil {
		t.Fatal(err)
	}
	before := allocations.recordFields(a)
	warnings := allocations.adapter.fillSpec(a, []allocator.Range{addresses(first, last)})
	setAnnotations(a, map[string]string{v1alpha1.AnnotationGrant: "", v1alpha1.AnnotationOrigin: "auto"})
	allocations.adapter.completeMetadata(a, "dc1")
	return patched(t, object, patchFrom(t, before, a)), warnings
}

func patched(t *testing.T, object string, p patch) string {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	result, err := operations.Apply([]byte(object))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return string(result)
}

const spec = `"poolRef":{"name":"vlan40"},"tenantClusterRef":{"name":"web","namespace":"team-a"},"type":"nodes"`

func TestPatch_FillsAbsentFieldsOnly(t *testing.T) {
	const labels = `"butler.butlerlabs.dev/allocation-type":"nodes","butler.butlerlabs.dev/network-pool":"vlan40",` +
		`"butler.butlerlabs.dev/routing-domain":"dc1","butler.butlerlabs.dev/team":"team-a","butler.butlerlabs.dev/tenant":"web"`
	for name, tc := range map[string]struct {
		object, want string
		wantWarnings []string
	}{
		"nothing but a spec": {
			object: `{"metadata":{"name":"a"},"spec":{` + spec + `}}`,
			want: `{"metadata":{"name":"a","annotations":{"butler.butlerlabs.dev/origin":"auto"},"finalizers":["butler.butlerlabs.dev/ipallocation"],
				"labels":{` + labels + `}},"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`,
		},
		"everything is there": {
			object: `{"metadata":{"annotations":{"butler.butlerlabs.dev/origin":"auto"},"finalizers":["butler.butlerlabs.dev/ipallocation"],
				"labels":{` + labels + `}},"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`,
			want: `{"metadata":{"annotations":{"butler.butlerlabs.dev/origin":"auto"},"finalizers":["butler.butlerlabs.dev/ipallocation"],
				"labels":{` + labels + `}},"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`,
		},
		"what the author wrote stays": {
			object: `{"metadata":{"annotations":{"note":"mine"},"finalizers":["example.org/mine"],"labels":{"butler.butlerlabs.dev/team":"platform","x":"y"}},
				"spec":{` + spec + `,"count":9,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`,
			want: `{"metadata":{"annotations":{"note":"mine","butler.butlerlabs.dev/origin":"auto"},
				"finalizers":["example.org/mine","butler.butlerlabs.dev/ipallocation"],
				"labels":{"butler.butlerlabs.dev/allocation-type":"nodes","butler.butlerlabs.dev/network-pool":"vlan40",
				"butler.butlerlabs.dev/routing-domain":"dc1","butler.butlerlabs.dev/team":"platform","butler.butlerlabs.dev/tenant":"web","x":"y"}},
				"spec":{` + spec + `,"count":9,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`,
			wantWarnings: []string{"spec.count 9 is ignored: spec.pinnedRange requests 4 addresses"},
		},
		"empty maps, lists and nulls": {
			object: `{"metadata":{"annotations":{},"finalizers":[],"labels":null},"spec":{` + spec + `,"pinnedRange":null}}`,
			want: `{"metadata":{"annotations":{"butler.butlerlabs.dev/origin":"auto"},"finalizers":["butler.butlerlabs.dev/ipallocation"],
				"labels":{` + labels + `}},"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`,
		},
		"unknown fields stay": {
			object: `{"metadata":{"name":"a","labels":{},"later":[1]},"spec":{` + spec + `,"later":{"x":1}},"later":2}`,
			want: `{"metadata":{"name":"a","annotations":{"butler.butlerlabs.dev/origin":"auto"},"finalizers":["butler.butlerlabs.dev/ipallocation"],
				"labels":{` + labels + `},"later":[1]},"spec":{` + spec + `,"later":{"x":1},"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}},"later":2}`,
		},
		"a token that proves nothing goes, an origin is corrected": {
			object: `{"metadata":{"annotations":{"butler.butlerlabs.dev/grant":"AAAAAAAAAAAAAAAA","butler.butlerlabs.dev/origin":"adopted"}},"spec":{` + spec + `}}`,
			want: `{"metadata":{"annotations":{"butler.butlerlabs.dev/origin":"auto"},"finalizers":["butler.butlerlabs.dev/ipallocation"],
				"labels":{` + labels + `}},"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings := given(t, tc.object, "10.0.0.0", "10.0.0.3")
			if diff := cmp.Diff(parsed(t, tc.want), parsed(t, got)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantWarnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatch_OmitsCountOfHugeRanges(t *testing.T) {
	object := `{"metadata":{},"spec":{` + spec + `,"pinnedRange":{"startAddress":"2001:db8::","endAddress":"2001:db8::ffff:ffff"}}}`
	got, warnings := given(t, object, "2001:db8::", "2001:db8::ffff:ffff")
	if spec := parsed(t, got)["spec"].(map[string]any); spec["count"] != nil || len(warnings) > 0 {
		t.Errorf("count %v, warnings %q: want none", spec["count"], warnings)
	}
}

func TestUpdate_RestoresAbsentFields(t *testing.T) {
	const stored = `{"metadata":{},"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`
	for name, tc := range map[string]struct{ object, want string }{
		"range and count": {`{"spec":{` + spec + `}}`, `{"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}}`},
		"nothing":         {stored, stored},
		"what was changed stays, to be refused": {
			`{"spec":{` + spec + `,"count":5,"pinnedRange":{"startAddress":"10.0.0.1","endAddress":"10.0.0.3"}}}`,
			`{"spec":{` + spec + `,"count":5,"pinnedRange":{"startAddress":"10.0.0.1","endAddress":"10.0.0.3"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, err := allocations.decode([]byte(stored), true)
			if err != nil {
				t.Fatal(err)
			}
			updated, err := allocations.decode([]byte(tc.object), false)
			if err != nil {
				t.Fatal(err)
			}
			before := allocations.recordFields(updated)
			allocations.adapter.restoreSpec(old, updated)
			p := patchFrom(t, before, updated)
			if diff := cmp.Diff(parsed(t, tc.want), parsed(t, patched(t, tc.object, p))); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			if tc.object == tc.want && len(p) > 0 {
				t.Errorf("patch %v, want none", p)
			}
		})
	}
}

func TestPatch_OfVIPThatChangesFamily(t *testing.T) {
	vips := newClaims(Options{}, proxyVIPs{}, "proxyvip")
	const (
		stored  = `{"metadata":{"annotations":{"butler.butlerlabs.dev/origin":"auto"}},"spec":{"poolRef":{"name":"p"},"addressFamily":"dual","address":"10.0.0.1/32","ipv6Address":"2001:db8::1/128"}}`
		updated = `{"metadata":{},"spec":{"poolRef":{"name":"p"},"addressFamily":"ipv6","address":"10.0.0.1/32","later":1}}`
		want    = `{"metadata":{},"spec":{"poolRef":{"name":"p"},"addressFamily":"ipv6","ipv6Address":"2001:db8::1/128","later":1}}`
	)
	old, err := vips.decode([]byte(stored), true)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vips.decode([]byte(updated), false)
	if err != nil {
		t.Fatal(err)
	}
	before := vips.recordFields(v)
	vips.adapter.restoreSpec(old, v)
	p, err := before.diff(vips.recordFields(v))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parsed(t, want), parsed(t, patched(t, updated, p))); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

func parsed(t *testing.T, object string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(object), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func addresses(first, last string) allocator.Range {
	return allocator.Range{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}
}

// The reconciler may have given the range to the stored claim before the update that
// requests the same range: nothing is left to grant.
func TestPatch_NothingGranted(t *testing.T) {
	a, err := allocations.decode([]byte(`{"spec":{`+spec+`,"count":4,"pinnedRange":{"startAddress":"10.40.0.1","endAddress":"10.40.0.4"}}}`), false)
	if err != nil {
		t.Fatal(err)
	}
	before := allocations.recordFields(a)
	if warnings := allocations.adapter.fillSpec(a, nil); len(warnings) > 0 {
		t.Errorf("warnings %q", warnings)
	}
	if p := patchFrom(t, before, a); len(p) > 0 {
		t.Errorf("patch %v", p)
	}
}

// Another webhook changes the object after the answer. want is the error; "" if the
// change does not matter.
func TestAnswer_Changed(t *testing.T) {
	const object = `{"metadata": {"name": "web", "labels": {"mine": "a"}, "annotations": {"mine": "b"}}, "spec": {"poolRef": {"name": "p"}, "type": "nodes", "tenantClusterRef": {"name": "web", "namespace": "team"}}}`
	a, err := allocations.decode([]byte(object), false)
	if err != nil {
		t.Fatal(err)
	}
	before := allocations.recordFields(a)
	allocations.adapter.fillSpec(a, []allocator.Range{addresses("10.0.0.8", "10.0.0.9")})
	setAnnotations(a, map[string]string{v1alpha1.AnnotationGrant: "token", v1alpha1.AnnotationOrigin: "auto"})
	allocations.adapter.completeMetadata(a, "dc1")
	answered, err := newAnswer(before, allocations.recordFields(a), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.IPAllocation)
		want   string
	}{
		"nothing":          {func(*v1alpha1.IPAllocation) {}, ""},
		"unrelated labels": {func(a *v1alpha1.IPAllocation) { a.Labels["other"], a.Labels["mine"] = "x", "x" }, ""},
		"an annotation":    {func(a *v1alpha1.IPAllocation) { delete(a.Annotations, "mine") }, ""},
		"count":            {func(a *v1alpha1.IPAllocation) { a.Spec.Count = ptr.To[int32](5) }, "spec.count is 5, and the allocator answered 2: "},
		"no count":         {func(a *v1alpha1.IPAllocation) { a.Spec.Count = nil }, "spec.count is absent, and the allocator answered 2: "},
		"type":             {func(a *v1alpha1.IPAllocation) { a.Spec.Type = v1alpha1.TypeLoadBalancer }, `spec.type is "loadbalancer", and the allocator answered "nodes": `},
		"label": {func(a *v1alpha1.IPAllocation) { delete(a.Labels, v1alpha1.LabelTeam) },
			`metadata.labels[butler.butlerlabs.dev/team] is absent, and the allocator answered "team": `},
		"origin": {func(a *v1alpha1.IPAllocation) { a.Annotations[v1alpha1.AnnotationOrigin] = "pinned" },
			`metadata.annotations[butler.butlerlabs.dev/origin] is "pinned", and the allocator answered "auto": `},
		"finalizer": {func(a *v1alpha1.IPAllocation) { a.Finalizers = []string{"other"} },
			`metadata.finalizers is "other", and the allocator answered "butler.butlerlabs.dev/ipallocation": `},
	} {
		t.Run(name, func(t *testing.T) {
			changed := a.DeepCopy()
			tc.change(changed)
			got, want := "", tc.want
			if err := answered.check(allocations.recordFields(changed), nil); err != nil {
				got = err.Error()
			}
			if want != "" {
				want += "another webhook or client has changed the allocator's answer: find and correct that webhook or client"
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
