package gitops

import (
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/expr-lang/expr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// link has the keys of a deep link of Argo CD:
// https://argo-cd.readthedocs.io/en/stable/operator-manual/deep_links/
type link struct {
	URL         string `json:"url"`
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	IconClass   string `json:"icon.class,omitempty"`
	Condition   string `json:"if,omitempty"`
}

// Argo CD evaluates the condition of a link with expr, and its URL as a template of Go.
// It offers the object as "resource".
func TestLinks(t *testing.T) {
	text, err := os.ReadFile("../../config/argocd/links.yaml")
	must(t, err)
	var patch struct {
		Data map[string]string `json:"data"`
	}
	must(t, yaml.UnmarshalStrict(text, &patch))
	var links []link
	must(t, yaml.UnmarshalStrict([]byte(patch.Data["resource.links"]), &links))
	if len(patch.Data) != 1 || len(links) == 0 {
		t.Fatalf("the patch has %d keys and %d links", len(patch.Data), len(links))
	}
	const console = "https://ipam.example.com/pool?pool="
	for object, want := range map[string][]string{
		"{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {namespace: ns, name: p}}":                              {console + "NetworkPool/ns/p"},
		"{apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, metadata: {namespace: ns, name: p}}":                                          {console + "IPPool/ns/p"},
		"{apiVersion: novaedge.io/v1alpha1, kind: ProxyIPPool, metadata: {name: p}}":                                                       {console + "ProxyIPPool/p"},
		"{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: IPAllocation, metadata: {namespace: ns, name: a}, spec: {poolRef: {name: p}}}": {console + "NetworkPool/ns/p"},
		"{apiVersion: ipam.metal3.io/v1alpha1, kind: IPClaim, metadata: {namespace: ns, name: c}}":                                         nil,
		"{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: p}}":                                                        nil,
		"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: c}}":                                                            nil,
	} {
		var resource map[string]any
		must(t, yaml.Unmarshal([]byte(object), &resource))
		environment := map[string]any{"resource": resource}
		var got []string
		for _, l := range links {
			if l.Title == "" || l.URL == "" {
				t.Fatalf("a link lacks its title or its URL: %+v", l)
			}
			applies, err := expr.Eval(l.Condition, environment)
			must(t, err)
			if applies != true {
				continue
			}
			parsed, err := template.New(l.Title).Parse(l.URL)
			must(t, err)
			var url strings.Builder
			must(t, parsed.Execute(&url, environment))
			got = append(got, url.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("links of %s (-want +got):\n%s", object, diff)
		}
	}
}
