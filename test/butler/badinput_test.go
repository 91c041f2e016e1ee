package butler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/suite"
)

// post sends bytes as a create, once, and returns what the API server says to them. The
// resource is "plural", or "plural@version".
func post(ctx context.Context, resource, namespace string, body []byte) error {
	config := cluster.Config()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	resource, version, found := strings.Cut(resource, "@")
	if !found {
		version = "v1alpha1"
	}
	url := fmt.Sprintf("%s/apis/butler.butlerlabs.dev/%s/namespaces/%s/%s", config.Host, version, namespace, resource)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode < 300 {
		return err
	}
	status := metav1.Status{}
	if err := json.Unmarshal(text, &status); err != nil || status.Kind != "Status" {
		status = metav1.Status{Code: int32(resp.StatusCode), Message: string(text)}
	}
	return &apierrors.StatusError{ErrStatus: status}
}

const v1alpha1Header = "apiVersion: butler.butlerlabs.dev/v1alpha1\nkind: "

// bad is what is wrong with an object that is right otherwise: YAML laid over it, where
// null takes a field away.
type bad struct {
	over string
	code int32
	want []string
}

func TestInvalidInput_DeniedNamingTheField(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.60.0.0/24"))
	long := strings.Repeat("n", 253)
	pinned := func(first, last string) string {
		return fmt.Sprintf("spec: {pinnedRange: {startAddress: %q, endAddress: %q}}", first, last)
	}
	for kind, cases := range map[string]map[string]bad{
		"IPAllocation": {
			"no spec":                          {"spec: null", 422, []string{"spec"}},
			"a spec that is a list":            {"spec: []", 422, []string{"spec"}},
			"a spec that is text":              {"spec: text", 422, []string{"spec"}},
			"no pool":                          {"spec: {poolRef: null}", 422, []string{"spec.poolRef.name", "Required"}},
			"a pool without a name":            {"spec: {poolRef: {name: ''}}", 422, []string{"spec.poolRef.name", "Required"}},
			"a pool name with a slash":         {"spec: {poolRef: {name: a/b}}", 422, []string{"spec.poolRef.name", "a/b"}},
			"a pool name in capitals":          {"spec: {poolRef: {name: Pool}}", 422, []string{"spec.poolRef.name", "lowercase"}},
			"a pool name of 254 characters":    {"spec: {poolRef: {name: " + long + "n}}", 422, []string{"spec.poolRef.name", "253"}},
			"a pool that is a number":          {"spec: {poolRef: {name: 7}}", 422, []string{"spec.poolRef.name", "number"}},
			"no cluster":                       {"spec: {tenantClusterRef: null}", 422, []string{"spec.tenantClusterRef.name", "Required"}},
			"a cluster without a namespace":    {"spec: {tenantClusterRef: {namespace: ''}}", 422, []string{"spec.tenantClusterRef.namespace", "Required"}},
			"a cluster namespace with a dot":   {"spec: {tenantClusterRef: {namespace: a.b}}", 422, []string{"spec.tenantClusterRef.namespace", "a.b"}},
			"a cluster namespace of 64":        {"spec: {tenantClusterRef: {namespace: " + long[:64] + "}}", 422, []string{"spec.tenantClusterRef.namespace", "63"}},
			"no type":                          {"spec: {type: null}", 422, []string{"spec.type", "nodes", "loadbalancer"}},
			"an unknown type":                  {"spec: {type: pods}", 422, []string{"spec.type", "pods", "nodes", "loadbalancer"}},
			"a count of 0":                     {"spec: {count: 0}", 422, []string{"spec.count", "at least 1"}},
			"a negative count":                 {"spec: {count: -1}", 422, []string{"spec.count", "at least 1"}},
			"a count of 2^31":                  {"spec: {count: 2147483648}", 422, []string{"spec.count", "2147483648"}},
			"a count of 2^63":                  {"spec: {count: 9223372036854775808}", 422, []string{"spec.count"}},
			"a count of 2^127":                 {"spec: {count: 170141183460469231731687303715884105728}", 422, []string{"spec.count", "does not fit here: write a whole number, of at most 2147483647"}},
			"a count that is a power":          {"spec: {count: 2^127}", 422, []string{"spec.count", "string does not fit here: write a whole number, of at most 2147483647"}},
			"a count that is half":             {"spec: {count: 1.5}", 422, []string{"spec.count", "1.5"}},
			"a count that is text":             {"spec: {count: '4'}", 422, []string{"spec.count", "string"}},
			"a count larger than the pool":     {"spec: {count: 2147483647}", 403, []string{"2147483647 addresses requested, 256 free, largest free block 256"}},
			"a range without an end":           {"spec: {pinnedRange: {startAddress: 10.60.0.1}}", 422, []string{"spec.pinnedRange.endAddress"}},
			"an empty range":                   {"spec: {pinnedRange: {}}", 422, []string{"spec.pinnedRange.startAddress", "spec.pinnedRange.endAddress"}},
			"a range that is text":             {"spec: {pinnedRange: 10.60.0.1-10.60.0.2}", 422, []string{"spec.pinnedRange", "string"}},
			"an address that is a name":        {pinned("gateway", "10.60.0.2"), 422, []string{"spec.pinnedRange.startAddress", "gateway", "must be an IPv4 or IPv6 address"}},
			"an address with too many parts":   {pinned("10.60.0.1.1", "10.60.0.2"), 422, []string{"spec.pinnedRange.startAddress", "10.60.0.1.1"}},
			"an address beyond 255":            {pinned("10.60.0.1", "10.60.0.256"), 422, []string{"spec.pinnedRange.endAddress", "10.60.0.256"}},
			"an address with leading zeros":    {pinned("10.60.0.01", "10.60.0.2"), 422, []string{"spec.pinnedRange.startAddress", "must have no leading zeros: write 10.60.0.1"}},
			"an address with a prefix":         {pinned("10.60.0.0/29", "10.60.0.7"), 422, []string{"spec.pinnedRange.startAddress", "must be an address without a prefix length: write 10.60.0.0"}},
			"an address with a blank":          {pinned("10.60.0.1 ", "10.60.0.2"), 422, []string{"spec.pinnedRange.startAddress", "must have no blanks around it: write 10.60.0.1"}},
			"a reversed range":                 {pinned("10.60.0.9", "10.60.0.1"), 422, []string{"spec.pinnedRange", "reversed", "lower address first"}},
			"two families in a range":          {pinned("10.60.0.1", "2001:db8::1"), 422, []string{"spec.pinnedRange", "one family"}},
			"a range of the other family":      {pinned("2001:db8::1", "2001:db8::2"), 422, []string{"spec.pinnedRange", "outside the pool"}},
			"a zoned address":                  {pinned("fe80::1%eth0", "fe80::2%eth0"), 422, []string{"spec.pinnedRange.startAddress", "zone", "fe80::1"}},
			"IPv4 written as IPv6":             {pinned("::ffff:10.60.0.1", "::ffff:10.60.0.2"), 422, []string{"spec.pinnedRange.startAddress", "write 10.60.0.1"}},
			"an address not in canonical form": {pinned("2001:DB8:0::1", "2001:db8::2"), 422, []string{"spec.pinnedRange.startAddress", "must be in canonical form, in lower case and as short as can be: write 2001:db8::1"}},
			"everything there is":              {pinned("0.0.0.0", "255.255.255.255"), 422, []string{"spec.pinnedRange", "outside the pool"}},
			"a name of 254 characters":         {"metadata: {name: " + long + "n}", 422, []string{"metadata.name", "253"}},
			"a name in capitals":               {"metadata: {name: Web}", 422, []string{"metadata.name", "lowercase"}},
			"no name":                          {"metadata: {name: null}", 422, []string{"name or generateName is required"}},
			"a generateName in capitals":       {"metadata: {name: null, generateName: Web-}", 422, []string{"metadata.generateName", "lowercase"}},
			"another namespace":                {"metadata: {namespace: elsewhere}", 400, []string{"namespace"}},
			"a label that is none":             {"metadata: {labels: {a: 'b c'}}", 422, []string{"metadata.labels", "b c"}},
			"a finalizer that is none":         {"metadata: {finalizers: ['a b']}", 422, []string{"metadata.finalizers"}},
			"5,000 finalizers":                 {"metadata: {finalizers: [" + strings.Repeat("'',", 5000) + "]}", 422, []string{"metadata.finalizers", "must have at most 4096 items"}},
			"an annotation of 300 KiB":         {"metadata: {annotations: {a: " + strings.Repeat("x", 300<<10) + "}}", 422, []string{"metadata.annotations", "262144"}},
			"an owner without a name":          {"metadata: {ownerReferences: [{apiVersion: v1, kind: Node, uid: a}]}", 422, []string{"metadata.ownerReferences"}},
			"another version":                  {"apiVersion: butler.butlerlabs.dev/v1", 400, []string{"v1alpha1"}},
			"another group":                    {"apiVersion: example.org/v1alpha1", 400, []string{"v1alpha1"}},
		},
		"NetworkPool": {
			"no network":                  {"spec: {cidr: null}", 422, []string{"spec.cidr"}},
			"a network that is a word":    {"spec: {cidr: lan}", 422, []string{"spec.cidr", "must be an IPv4 or IPv6 network"}},
			"a network without a prefix":  {"spec: {cidr: 10.61.0.0}", 422, []string{"spec.cidr"}},
			"a prefix of 33":              {"spec: {cidr: 10.61.0.0/33}", 422, []string{"spec.cidr"}},
			"a network with host bits":    {"spec: {cidr: 10.61.0.1/24}", 422, []string{"spec.cidr", "bits set after the prefix"}},
			"an IPv4 network as IPv6":     {"spec: {cidr: '::ffff:10.61.0.0/120'}", 422, []string{"spec.cidr"}},
			"all of IPv6":                 {"spec: {cidr: '::/0'}", 422, []string{"spec.cidr", "use a longer prefix"}},
			"reserved elsewhere":          {"spec: {reserved: [{cidr: 10.99.0.0/28}]}", 422, []string{"reserved", "inside spec.cidr"}},
			"reserved with host bits":     {"spec: {reserved: [{cidr: 10.61.0.1/28}]}", 422, []string{"spec.reserved", "bits set after the prefix"}},
			"257 reserved networks":       {"spec: {reserved: [" + strings.Repeat("{cidr: 10.61.0.0/28},", 257) + "]}", 422, []string{"spec.reserved", "256"}},
			"a reversed tenant range":     {"spec: {tenantAllocation: {ranges: [{start: 10.61.0.9, end: 10.61.0.1}]}}", 422, []string{"spec.tenantAllocation.ranges[0]", "reversed"}},
			"overlapping tenant ranges":   {"spec: {tenantAllocation: {ranges: [{start: 10.61.0.1, end: 10.61.0.9}, {start: 10.61.0.9, end: 10.61.0.12}]}}", 422, []string{"spec.tenantAllocation.ranges[1]", "overlaps"}},
			"a start without an end":      {"spec: {tenantAllocation: {start: 10.61.0.1}}", 422, []string{"start and end must be set together"}},
			"defaults of 0":               {"spec: {tenantAllocation: {defaults: {nodesPerTenant: 0}}}", 422, []string{"nodesPerTenant"}},
			"a reuse delay that is none":  {"spec: {reuseDelay: soon}", 422, []string{"spec.reuseDelay"}},
			"a reuse delay of a year":     {"spec: {reuseDelay: 8760h}", 422, []string{"spec.reuseDelay", "720h"}},
			"a routing domain with space": {"spec: {routingDomain: 'a b'}", 422, []string{"spec.routingDomain"}},
		},
	} {
		for name, tc := range cases {
			t.Run(kind+"/"+name, func(t *testing.T) {
				err := post(t.Context(), strings.ToLower(kind)+"s", ns, document(t, kind, ns, tc.over))
				suite.RequireDenied(t, err, tc.code, tc.want...)
			})
		}
	}
	for name, tc := range map[string]struct {
		resource, body string
		code           int32
	}{
		"a version that is not served": {"ipallocations@v1", "{}", 404},
		"no object":                    {"ipallocations", "", 400},
		"no JSON":                      {"ipallocations", "\x00\x01\x02", 400},
		"half an object":               {"ipallocations", `{"apiVersion":"butler.butlerlabs.dev/v1alpha1","kind":"IPAllocation","spec":{`, 400},
		"an array":                     {"ipallocations", "[]", 400},
		"an object of 4 MiB":           {"ipallocations", `{"spec":"` + strings.Repeat("x", 4<<20) + `"}`, 413},
	} {
		t.Run(name, func(t *testing.T) {
			suite.RequireDenied(t, post(t.Context(), tc.resource, ns, []byte(tc.body)), tc.code)
		})
	}

	if lines := openGrants(t, ns); len(lines) > 0 {
		t.Errorf("%d grants are open, want none: %v", len(lines), lines)
	}
	suite.Create(t, admin, claim(ns, "all", 256))
}

// document is a valid object in JSON with something laid over it.
func document(t *testing.T, kind, namespace, over string) []byte {
	t.Helper()
	text := v1alpha1Header + kind + "\nmetadata: {name: x, namespace: " + namespace + "}\n"
	if kind == "NetworkPool" {
		text += "spec: {cidr: 10.61.0.0/24}"
	} else {
		text += "spec: {poolRef: {name: pool}, tenantClusterRef: {name: web, namespace: team-a}, type: nodes}"
	}
	var base, change map[string]any
	if err := errors.Join(yaml.Unmarshal([]byte(text), &base), yaml.Unmarshal([]byte(over), &change)); err != nil {
		t.Fatal(err)
	}
	lay(base, change)
	raw, err := json.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// lay puts change over base, field by field.
func lay(base, change map[string]any) {
	for field, value := range change {
		below, isMap := value.(map[string]any)
		present, hasMap := base[field].(map[string]any)
		switch {
		case value == nil:
			delete(base, field)
		case isMap && hasMap:
			lay(present, below)
		default:
			base[field] = value
		}
	}
}
