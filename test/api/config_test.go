package api

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

func TestConfig_SamplesAreAccepted(t *testing.T) {
	out, _, err := cluster.Kubectl(t.Context(), "", "apply", "--dry-run=server", "--validate=strict", "--output=name", "--kustomize=../../config/samples")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(strings.Fields(out)); got != 11 {
		t.Errorf("want eleven samples, got:\n%s", out)
	}
}

// What is installed in a cluster is read as it stands, but for cert-manager's own kinds,
// which a bare API server does not know.
func TestConfig_DefaultInstallationIsAccepted(t *testing.T) {
	text, _, err := cluster.Kubectl(t.Context(), "", "kustomize", "../../config/default")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		kinds[o.GetKind()]++
		if strings.HasPrefix(o.GetAPIVersion(), "cert-manager.io/") {
			continue
		}
		err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership, client.DryRunAll)
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if strings.HasSuffix(o.GetKind(), "WebhookConfiguration") && o.GetAnnotations()["cert-manager.io/inject-ca-from"] != "butler-ipam-system/butler-ipam-webhook" {
			t.Errorf("%s %s: nobody puts the certificate authority into it", o.GetKind(), o.GetName())
		}
	}
	for _, kind := range []string{"CustomResourceDefinition", "ClusterRole", "Deployment", "Service", "Certificate", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s is installed", kind)
		}
	}
}
