package chart

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// What the chart writes a second time, with values in it, is what config/ has; what it
// takes from there has lost nothing.
func TestChart_EqualsConfig(t *testing.T) {
	rendered, err := template(t, "butler-ipam", "butler-ipam-system", "", "--set=image.tag=latest", "--set=apis.novaedge=true,apis.metal3=true,apis.clusterApi=true")
	if err != nil {
		t.Fatal(err)
	}
	kustomized, _, err := cluster.Kubectl(t.Context(), "", "kustomize", filepath.Join(root, "config", "default"))
	if err != nil {
		t.Fatal(err)
	}
	want, got := whole(plain(t, kustomized)), whole(plain(t, rendered))
	delete(want, "Namespace/butler-ipam-system")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-config +chart):\n%s", diff)
	}
}

// What is stored of an API that is off keeps its addresses, so the manager goes on
// reading it. Nothing else is left of the API.
func TestChart_APISwitchedOff(t *testing.T) {
	const manager = "ClusterRole/prod-butler-ipam"
	for off, kinds := range map[string][]string{
		"novaedge":   {"novaedge.io", "proxyippools", "proxyvips"},
		"metal3":     {"ipam.metal3.io", "ipaddresses", "ipclaims", "ippools"},
		"clusterApi": {"ipam.cluster.x-k8s.io", "ipaddressclaims", "ipaddresses"},
		"butler":     {"butler.butlerlabs.dev", "ipallocations", "networkpools"},
	} {
		group, kinds := kinds[0], kinds[1:]
		args := []string{"--set=apis.novaedge=true,apis." + off + "=false"}
		if off != "butler" {
			args = nil // by default
		}
		text, err := template(t, "prod", "ipam", "", args...)
		if err != nil {
			t.Fatal(err)
		}
		objects := plain(t, text)
		var read []string
		for _, r := range objects[manager]["rules"].([]any) {
			rule := r.(map[string]any)
			if groups, _ := rule["apiGroups"].([]any); !slices.Contains(groups, any(group)) {
				continue
			}
			if diff := cmp.Diff([]any{"get", "list", "watch"}, rule["verbs"]); diff != "" {
				t.Errorf("without %s the manager's verbs for %v (-want +got):\n%s", off, rule["resources"], diff)
			}
			for _, resource := range rule["resources"].([]any) {
				read = append(read, resource.(string))
			}
		}
		slices.Sort(read)
		if diff := cmp.Diff(kinds, read); diff != "" {
			t.Errorf("without %s the manager reads (-want +got):\n%s", off, diff)
		}
		for key, o := range objects {
			o["metadata"] = nil // of which annotations and finalizers name groups too
			if b, err := json.Marshal(o); err != nil || key != manager && strings.Contains(string(b), `"`+group+`"`) {
				t.Errorf("without %s there is still something of %q in %s: %v", off, group, key, err)
			}
		}
	}
}

// Rights beyond an API's own objects, and what uses them, come and go together.
func TestChart_ServiceVIPs(t *testing.T) {
	const role, flag = "name: butler-ipam-service-vips", "- --service-vips"
	for args, on := range map[string][]string{"apis.novaedge=false": nil, "apis.novaedge=true": nil, "apis.novaedge=true,serviceVIPs=true": {role, flag}} {
		text, err := template(t, "butler-ipam", "ipam", "", "--set="+args)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{role, flag} {
			if got := strings.Contains(text, part); got != slices.Contains(on, part) {
				t.Errorf("with %s it has %q: %v", args, part, got)
			}
		}
	}
	if _, err := template(t, "butler-ipam", "ipam", "", "--set=serviceVIPs=true"); err == nil || !strings.Contains(err.Error(), "serviceVIPs needs apis.novaedge") {
		t.Errorf("without the API they can be switched on: %v", err)
	}
}

// The empty name is the default routing domain, and null is no flag.
func TestChart_ClusterRoutingDomain(t *testing.T) {
	for args, want := range map[string]string{"": "", "clusterRoutingDomain=": "--cluster-routing-domain=", "clusterRoutingDomain=red": "--cluster-routing-domain=red", "clusterRoutingDomain=null": ""} {
		text, err := template(t, "butler-ipam", "ipam", "", "--set="+args)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for line := range strings.Lines(text) {
			if flag, found := strings.CutPrefix(strings.TrimSpace(line), "- --cluster"); found {
				got = "--cluster" + flag
			}
		}
		if got != want {
			t.Errorf("with %q the manager has the flag %q, want %q", args, got, want)
		}
	}
	if _, err := template(t, "butler-ipam", "ipam", "", "--set=clusterRoutingDomain=-red"); err == nil {
		t.Error("a name that is no label value is accepted")
	}
}

// whole puts the webhooks of all APIs, which the chart gives configurations of their own,
// into the first one of each kind.
func whole(objects map[string]map[string]any) map[string]map[string]any {
	for _, first := range []string{"MutatingWebhookConfiguration/zz-butler-ipam", "ValidatingWebhookConfiguration/butler-ipam"} {
		all := objects[first]["webhooks"].([]any)
		for key, o := range objects {
			if strings.HasPrefix(key, first+"-") {
				all = append(all, o["webhooks"].([]any)...)
				delete(objects, key)
			}
		}
		slices.SortFunc(all, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
		})
		objects[first]["webhooks"] = all
	}
	return objects
}

// plain is objects by their keys, without what a chart adds to every one.
func plain(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	for _, o := range parse(t, text) {
		unstructured.RemoveNestedField(o.Object, "metadata", "labels")
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "labels", "app.kubernetes.io/instance")
		objects[key(o)] = o.Object
	}
	return objects
}

func TestChart_ObjectsMatchTheirTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	for _, file := range valuesFiles {
		for _, o := range render(t, file) {
			if strings.HasPrefix(o.GetAPIVersion(), "cert-manager.io/") || strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/") {
				continue // the API server checks these against their CRDs
			}
			typed, err := scheme.New(o.GroupVersionKind())
			if err != nil {
				t.Errorf("%s %s: %v", file, key(o), err)
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
				t.Errorf("%s %s: %v", file, key(o), err)
			}
		}
	}
}

func TestChart_RendersTheSameTwice(t *testing.T) {
	for _, file := range valuesFiles {
		first, err := template(t, "prod", "ipam", file)
		if err != nil {
			t.Fatal(err)
		}
		second, err := template(t, "prod", "ipam", file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%s: (-first +second):\n%s", file, diff)
		}
	}
}

// Everything follows the release's name and namespace, but for what a cluster has once.
func TestChart_References(t *testing.T) {
	for _, file := range valuesFiles {
		text, err := template(t, "prod", "ipam", file)
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range []string{"butler-ipam-system", `"butler-ipam-metrics`} {
			if strings.Contains(text, left) {
				t.Errorf("%s: %s is left", file, left)
			}
		}
		objects := parse(t, text)
		for _, o := range objects {
			name := o.GetName()
			once := o.GetKind() == "CustomResourceDefinition" || name == "zz-butler-ipam"
			if !once && !strings.HasPrefix(name, "prod-butler-ipam") {
				t.Errorf("%s %s does not bear the release's name", file, key(o))
			}
			if namespace := o.GetNamespace(); namespace != "" && namespace != "ipam" || namespace != "" && strings.HasPrefix(o.GetKind(), "ClusterRole") {
				t.Errorf("%s %s is in namespace %s", file, key(o), namespace)
			}
		}
		as[corev1.ServiceAccount](t, objects, "ServiceAccount/prod-butler-ipam")
		account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ipam", Name: "prod-butler-ipam"}
		binding := as[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding/prod-butler-ipam")
		as[rbacv1.ClusterRole](t, objects, "ClusterRole/"+binding.RoleRef.Name)
		journal := as[rbacv1.RoleBinding](t, objects, "RoleBinding/prod-butler-ipam-journal")
		lease := as[rbacv1.Role](t, objects, "Role/"+journal.RoleRef.Name)
		if diff := cmp.Diff([][]rbacv1.Subject{{account}, {account}}, [][]rbacv1.Subject{binding.Subjects, journal.Subjects}); diff != "" {
			t.Errorf("%s: subjects (-want +got):\n%s", file, diff)
		}
		if got := lease.Rules[0].ResourceNames; !slices.Equal(got, []string{"butler-ipam-journal"}) {
			t.Errorf("%s: the role is for the Leases %v", file, got)
		}
		flow := as[flowcontrolv1.FlowSchema](t, objects, "FlowSchema/prod-butler-ipam-journal").Spec.Rules[0]
		if got := *flow.Subjects[0].ServiceAccount; got.Name != account.Name || got.Namespace != "ipam" || !slices.Equal(flow.ResourceRules[0].Namespaces, []string{"ipam"}) {
			t.Errorf("%s: the flow schema is for %+v in %v", file, got, flow.ResourceRules[0].Namespaces)
		}
		service := as[corev1.Service](t, objects, "Service/prod-butler-ipam-webhook")
		for _, config := range clientConfigs(t, objects, "prod-butler-ipam") {
			if config.Service.Name != service.Name || config.Service.Namespace != "ipam" {
				t.Errorf("%s: webhooks are called by %s/%s", file, config.Service.Namespace, config.Service.Name)
			}
		}
		pod := as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam").Spec.Template
		for name, value := range service.Spec.Selector {
			if pod.Labels[name] != value {
				t.Errorf("%s: the Service selects %s=%s, pods have %v", file, name, value, pod.Labels)
			}
		}
		if pod.Spec.ServiceAccountName != account.Name {
			t.Errorf("%s: pods run as %s", file, pod.Spec.ServiceAccountName)
		}
	}
}

func clientConfigs(t *testing.T, objects []*unstructured.Unstructured, name string) (all []admissionv1.WebhookClientConfig) {
	t.Helper()
	for _, w := range as[admissionv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration/zz-butler-ipam").Webhooks {
		all = append(all, w.ClientConfig)
	}
	for _, w := range as[admissionv1.ValidatingWebhookConfiguration](t, objects, "ValidatingWebhookConfiguration/"+name).Webhooks {
		all = append(all, w.ClientConfig)
	}
	return all
}

func TestChart_LongReleaseNames(t *testing.T) {
	text, err := template(t, strings.Repeat("a-long-name-", 4)+"12345", strings.Repeat("n", 63), "everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range parse(t, text) {
		if o.GetKind() != "CustomResourceDefinition" && len(o.GetName()) > 63 {
			t.Errorf("%s has more than 63 characters", key(o))
		}
	}
}

// The certificate that pods mount, the one that cert-manager makes and the one that the
// API server trusts are the same.
func TestChart_Certificates(t *testing.T) {
	type certificate struct{ Secret, Issuer, Injected, Bundle, Watched, Kept string }
	seen := func(objects []*unstructured.Unstructured) (got certificate) {
		for _, v := range as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam").Spec.Template.Spec.Volumes {
			if v.Name == "tls" {
				got.Secret = v.Secret.SecretName
			}
		}
		for _, arg := range as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam").Spec.Template.Spec.Containers[0].Args {
			if name, is := strings.CutPrefix(arg, "--certificate="); is {
				got.Watched = name
			}
			if name, is := strings.CutPrefix(arg, "--webhook-cert-secret="); is {
				got.Kept = name
			}
		}
		for _, o := range objects {
			if o.GetKind() != "Certificate" || o.GetName() != "prod-butler-ipam-webhook" {
				continue
			}
			spec := o.Object["spec"].(map[string]any)
			if names := fmt.Sprint(spec["dnsNames"]); spec["secretName"] != got.Secret || names != "[prod-butler-ipam-webhook.ipam.svc]" {
				t.Errorf("the certificate goes to %v, for %s", spec["secretName"], names)
			}
			issuer := spec["issuerRef"].(map[string]any)
			got.Issuer = fmt.Sprintf("%s %s", issuer["kind"], issuer["name"])
			if kind := issuer["kind"].(string); kind == "Issuer" && !slices.Contains(keys(objects), "Issuer/"+issuer["name"].(string)) {
				t.Errorf("there is no %s", got.Issuer)
			}
		}
		for _, o := range objects {
			if strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
				got.Injected = o.GetAnnotations()["cert-manager.io/inject-ca-from"]
			}
		}
		for _, config := range clientConfigs(t, objects, "prod-butler-ipam") {
			got.Bundle, _, _ = strings.Cut(string(config.CABundle), "\n")
		}
		return got
	}
	for file, want := range map[string]certificate{
		"": {Secret: "prod-butler-ipam-webhook-tls", Issuer: "Issuer prod-butler-ipam-ca", Injected: "ipam/prod-butler-ipam-webhook",
			Watched: "prod-butler-ipam-webhook"},
		"issuer.yaml": {Secret: "prod-butler-ipam-webhook-tls", Issuer: "ClusterIssuer platform", Injected: "ipam/prod-butler-ipam-webhook",
			Watched: "prod-butler-ipam-webhook"},
		"secret.yaml":      {Secret: "my-certificate", Bundle: pemHeader},
		"selfmanaged.yaml": {Kept: "prod-butler-ipam-certificates"},
	} {
		if diff := cmp.Diff(want, seen(render(t, file))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// What a mode needs no right for, it has none for; and where it has one to secrets or to
// write, it is for objects by their names.
func TestChart_Rights(t *testing.T) {
	type right struct{ Resource, Name, Verbs string }
	for file, want := range map[string][]right{
		"":            {{"certificates", "prod-butler-ipam-webhook", "list watch"}},
		"secret.yaml": nil,
		"selfmanaged.yaml": {
			{"mutatingwebhookconfigurations", "", "list watch"},
			{"mutatingwebhookconfigurations", "zz-butler-ipam", "patch"},
			{"secrets", "prod-butler-ipam-certificates", "get list watch update"},
			{"validatingwebhookconfigurations", "", "list watch"},
			{"validatingwebhookconfigurations", "prod-butler-ipam", "patch"},
		},
	} {
		var got []right
		objects := render(t, file)
		for _, o := range objects {
			var rules []rbacv1.PolicyRule
			switch o.GetKind() {
			case "Role":
				rules = as[rbacv1.Role](t, objects, key(o)).Rules
			case "ClusterRole":
				rules = as[rbacv1.ClusterRole](t, objects, key(o)).Rules
			}
			for _, rule := range rules {
				for _, resource := range rule.Resources {
					if slices.Contains([]string{"secrets", "certificates", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, resource) {
						got = append(got, right{resource, strings.Join(rule.ResourceNames, " "), strings.Join(rule.Verbs, " ")})
					}
				}
			}
		}
		slices.SortFunc(got, func(a, b right) int { return strings.Compare(a.Resource+a.Name, b.Resource+b.Name) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func TestChart_CommonLabelsAndAnnotations(t *testing.T) {
	objects := render(t, "everything.yaml")
	for _, o := range objects {
		labels := o.GetLabels()
		name := "butler-ipam"
		if strings.HasPrefix(o.GetName(), "prod-butler-ipam-console") {
			name = "butler-ipam-console"
		}
		if labels["team"] != "platform" || labels["app.kubernetes.io/instance"] != "prod" || labels["app.kubernetes.io/name"] != name || labels["app.kubernetes.io/managed-by"] != "Helm" {
			t.Errorf("%s has the labels %v", key(o), labels)
		}
		if o.GetAnnotations()["example.com/owner"] != "platform" {
			t.Errorf("%s has the annotations %v", key(o), o.GetAnnotations())
		}
		if kept := o.GetAnnotations()["helm.sh/resource-policy"] == "keep"; kept != (o.GetKind() == "CustomResourceDefinition") {
			t.Errorf("%s is kept when the release goes: %t", key(o), kept)
		}
	}
	pod := as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam").Spec.Template
	if pod.Labels["team"] != "platform" || pod.Labels["tier"] != "control" || pod.Annotations["example.com/owner"] != "platform" || pod.Annotations["example.com/scrape"] != "true" {
		t.Errorf("pods have the labels %v and the annotations %v", pod.Labels, pod.Annotations)
	}
	if as[rbacv1.ClusterRole](t, objects, "ClusterRole/prod-butler-ipam-viewer").Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
		t.Error("the role viewer is no part of view")
	}
}

// extra is the keys of the objects that others have not.
func extra(objects, than []*unstructured.Unstructured) (all []string) {
	for _, name := range keys(objects) {
		if !slices.Contains(keys(than), name) {
			all = append(all, name)
		}
	}
	return all
}

func TestChart_OptionalParts(t *testing.T) {
	always := render(t, "issuer.yaml")
	for _, tc := range []struct {
		file string
		want []string
	}{
		{"", []string{"Certificate/prod-butler-ipam-ca", "Issuer/prod-butler-ipam-ca", "Issuer/prod-butler-ipam-selfsigned"}},
		{"everything.yaml", []string{
			"Certificate/prod-butler-ipam-ca", "Certificate/prod-butler-ipam-console", "ClusterRole/prod-butler-ipam-console-user", "ClusterRole/prod-butler-ipam-tenants", "ClusterRole/prod-butler-ipam-tenants-viewer",
			"ClusterRoleBinding/prod-butler-ipam-console-reviews", "ClusterRoleBinding/prod-butler-ipam-console-tenants", "ClusterRoleBinding/prod-butler-ipam-console-viewer", "ClusterRoleBinding/prod-butler-ipam-tenants",
			"ConfigMap/prod-butler-ipam-dashboard", "CustomResourceDefinition/providerconfigs.butler.butlerlabs.dev",
			"CustomResourceDefinition/tenantclusters.butler.butlerlabs.dev", "Deployment/prod-butler-ipam-console", "Issuer/prod-butler-ipam-ca", "Issuer/prod-butler-ipam-selfsigned",
			"NetworkPolicy/prod-butler-ipam", "NetworkPolicy/prod-butler-ipam-console", "PrometheusRule/prod-butler-ipam", "Service/prod-butler-ipam-console",
			"ServiceAccount/prod-butler-ipam-console", "ServiceMonitor/prod-butler-ipam",
			"ValidatingWebhookConfiguration/prod-butler-ipam-tenants",
		}},
		{"secret.yaml", nil},
	} {
		if diff := cmp.Diff(tc.want, extra(render(t, tc.file), always)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.file, diff)
		}
	}
	for _, o := range render(t, "secret.yaml") {
		if kind := o.GetKind(); kind == "CustomResourceDefinition" || kind == "Certificate" || kind == "Issuer" {
			t.Errorf("%s is there", key(o))
		}
	}
}

func TestChart_Tenants(t *testing.T) {
	off := render(t, "")
	on, crds := render(t, "", "--set=tenants.enabled=true"), render(t, "", "--set=tenants.enabled=true,tenants.installCRDs=true")
	if diff := cmp.Diff([]string{"ClusterRole/prod-butler-ipam-tenants", "ClusterRole/prod-butler-ipam-tenants-viewer", "ClusterRoleBinding/prod-butler-ipam-tenants", "ValidatingWebhookConfiguration/prod-butler-ipam-tenants"}, extra(on, off)); diff != "" {
		t.Errorf("switched on (-want +got):\n%s", diff)
	}
	want := []string{"CustomResourceDefinition/providerconfigs.butler.butlerlabs.dev", "CustomResourceDefinition/tenantclusters.butler.butlerlabs.dev"}
	if diff := cmp.Diff(want, extra(crds, on)); diff != "" {
		t.Errorf("with CRDs (-want +got):\n%s", diff)
	}
	var names []string
	for _, w := range as[admissionv1.ValidatingWebhookConfiguration](t, on, "ValidatingWebhookConfiguration/prod-butler-ipam-tenants").Webhooks {
		names = append(names, w.Name)
		if s := w.ClientConfig.Service; s.Name != "prod-butler-ipam-webhook" || s.Namespace != "ipam" {
			t.Errorf("%s is served by %+v", w.Name, s)
		}
	}
	if diff := cmp.Diff([]string{"providerconfig.butler.butlerlabs.dev", "delete.providerconfig.butler.butlerlabs.dev"}, names); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
	args := as[appsv1.Deployment](t, on, "Deployment/prod-butler-ipam").Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--tenants", "--tenants-namespace=butler-system", "--tenants-shrink-after=10m"} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is not among %v", want, args)
		}
	}
	if _, err := template(t, "prod", "ipam", "", "--set=tenants.enabled=true,apis.butler=false,apis.novaedge=true"); err == nil || !strings.Contains(err.Error(), "switch apis.butler on") {
		t.Errorf("tenants without NetworkPools: %v", err)
	}
}

// AllocationHistories have records of every API, so their CRD and the right to read them
// are there whichever APIs are on. Values of a release that was installed by an older
// chart lack the value.
func TestChart_History(t *testing.T) {
	const crd = "CustomResourceDefinition/allocationhistories.butler.butlerlabs.dev"
	for args, want := range map[string]struct{ flag, installed, readable, writable bool }{
		"":                                     {false, true, true, false},
		"history=null":                         {false, true, true, false},
		"history.retentionDays=30":             {true, true, true, true},
		"apis.butler=false,apis.novaedge=true": {false, false, false, false},
		"apis.butler=false,apis.novaedge=true,history.retentionDays=30": {true, true, true, true},
	} {
		objects := render(t, "", "--set="+args)
		flag := slices.Contains(as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam").Spec.Template.Spec.Containers[0].Args, "--history-retention-days=30")
		installed := slices.Contains(keys(objects), crd)
		ofHistories := func(r rbacv1.PolicyRule) bool {
			return slices.Equal(r.Resources, []string{"allocationhistories"}) && slices.Equal(r.APIGroups, []string{"butler.butlerlabs.dev"})
		}
		readable := slices.ContainsFunc(as[rbacv1.ClusterRole](t, objects, "ClusterRole/prod-butler-ipam-viewer").Rules, ofHistories)
		writable := slices.Contains(keys(objects), "Role/prod-butler-ipam-history") && slices.ContainsFunc(as[rbacv1.Role](t, objects, "Role/prod-butler-ipam-history").Rules, ofHistories)
		if flag != want.flag || installed != want.installed || readable != want.readable || writable != want.writable {
			t.Errorf("%q: flag %t, CRD %t, readable %t, writable %t, want %+v", args, flag, installed, readable, writable, want)
		}
	}
}

func TestChart_PodValues(t *testing.T) {
	image := func(args ...string) string {
		return as[appsv1.Deployment](t, render(t, "", args...), "Deployment/prod-butler-ipam").Spec.Template.Spec.Containers[0].Image
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	for got, want := range map[string]string{
		image(): "butler-ipam:v0.1.0",
		image("--set=image.repository=example.com/ipam", "--set=image.tag=v2"): "example.com/ipam:v2",
		image("--set=image.tag=v2", "--set=image.digest="+digest):              "butler-ipam@" + digest,
	} {
		if got != want {
			t.Errorf("image %s, want %s", got, want)
		}
	}

	objects := render(t, "everything.yaml")
	deployment := as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam").Spec
	pod := deployment.Template.Spec
	manager := pod.Containers[0]
	want := []string{
		"--apis=butler", "--log-level=2", "--log-format=console", "--certificate=prod-butler-ipam-webhook", "--webhook-client-ca=/client-ca/ca.crt",
		"--tenants", "--tenants-namespace=platform", "--tenants-pending-after=500ms", "--tenants-shrink-after=5m", "--tenants-orphan-after=2m", "--tenants-release-limit=30m",
		"--tenants-max-services=2000000", "--grant-expiry=3m",
	}
	if !slices.Equal(manager.Args, want) {
		t.Errorf("arguments %q, want %q", manager.Args, want)
	}
	if *deployment.Replicas != 3 || manager.Lifecycle.PreStop.Sleep.Seconds != 10 || *pod.TerminationGracePeriodSeconds != 25 || len(pod.Tolerations) != 1 ||
		len(pod.NodeSelector) != 1 || pod.Affinity == nil || len(pod.ImagePullSecrets) != 1 || manager.ImagePullPolicy != corev1.PullAlways {
		t.Errorf("not as in everything.yaml: %+v", deployment)
	}
	if slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == "api-server-ca" }) < 0 {
		t.Error("the CA of the API servers is not mounted")
	}
	if got := as[appsv1.Deployment](t, render(t, "secret.yaml"), "Deployment/prod-butler-ipam").Spec.Template.Spec.SecurityContext; got.RunAsUser != nil || got.FSGroup != nil || !*got.RunAsNonRoot {
		t.Errorf("the security context without user and groups is %+v", got)
	}
	policy := as[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy/prod-butler-ipam").Spec
	if got := policy.Ingress[0].From; len(got) != 2 || !cmp.Equal(got[0].PodSelector, &policy.PodSelector) {
		t.Errorf("the webhooks are reached from %+v: want the replicas and the API servers", got)
	}
}

// pemHeader is what the schema requires of PEM certificates.
const pemHeader = "-----BEGIN CERTIFICATE-----"

func TestChart_InvalidValues(t *testing.T) {
	for arg, want := range map[string]string{
		"--set=replcas=3":                               "additional properties 'replcas' not allowed",
		"--set=replicas=two":                            "at '/replicas': got string, want integer",
		"--set=replicas=-1":                             "at '/replicas': minimum: got -1, want 1",
		"--set=image.digest=0123":                       "at '/image/digest': '0123' does not match pattern",
		"--set=image.pullPolicy=Sometimes":              "at '/image/pullPolicy': value must be one of",
		"--set=image=butler-ipam:1":                     "at '/image': got string, want object",
		"--set=logLevel=chatty":                         "at '/logLevel': 'chatty' does not match pattern",
		"--set=extraArgs={grant-expiry=3m}":             "at '/extraArgs/0': 'grant-expiry=3m' does not match pattern",
		"--set=history.retentionDays=-1":                "at '/history/retentionDays': minimum: got -1, want 0",
		"--set=preStopSeconds=0":                        "at '/preStopSeconds': minimum: got 0, want 1",
		"--set=commonLabels.team=1":                     "at '/commonLabels/team': got number, want string",
		"--set=certificates.duration=90d":               "at '/certificates/duration': '90d' does not match pattern",
		"--set=certificates.caBundle=ca.crt":            "at '/certificates/caBundle': 'ca.crt' does not match pattern",
		"--set=certificates.mode=none":                  "at '/certificates/mode': value must be one of",
		"--set=certificates.mode=secret":                "needs certificates.existingSecret and certificates.caBundle",
		"--set=replicas=0":                              "at '/replicas': minimum: got 0, want 1",
		"--set=image.repository=localhost:5000/ipam:v1": `image.repository "localhost:5000/ipam:v1" has a tag or a digest: set them as image.tag or image.digest`,
		"--set=image.repository=ipam@sha256:0123":       `image.repository "ipam@sha256:0123" has a tag or a digest`,
		"--set=tenants.installCRDs=true":                "tenants.installCRDs needs tenants.enabled",
		"--set=certificates.existingSecret=x":           "clear it with --set certificates.existingSecret= --set certificates.caBundle=, or give certificates.mode=secret",
		"--set=certificates.caBundle=" + pemHeader:      "clear it with --set certificates.caBundle=, or name its issuer in certificates.issuerRef.name",
		"--set=certificates.mode=self-managed,certificates.caBundle=" + pemHeader:                                                        "clear it with --set certificates.caBundle=",
		"--set=certificates.mode=self-managed,certificates.issuerRef.name=ca":                                                            "clear it with --set certificates.issuerRef.name=",
		"--set=certificates.mode=secret,certificates.existingSecret=x,certificates.issuerRef.name=ca,certificates.caBundle=" + pemHeader: "certificates.issuerRef is not used with certificates.mode=secret",
		"--set=networkPolicy.webhookFrom[0].ipBlock.cidr=192.0.2.1/32":                                                                   "restrict nothing without networkPolicy.enabled",
		"--set=networkPolicy.metricsFrom[0].ipBlock.cidr=192.0.2.1/32":                                                                   "restrict nothing without networkPolicy.enabled",
		"--set=console.enabled=true,networkPolicy.consoleFrom[0].ipBlock.cidr=192.0.2.1/32":                                              "restrict nothing without networkPolicy.enabled",
		"--set=console.enabled=true,certificates.mode=self-managed":                                                                      "console.enabled needs console.tlsSecret with certificates.mode=self-managed",
		"--set=fullnameOverride=" + strings.Repeat("a-name", 7):                                                                          "at '/fullnameOverride': maxLength",
	} {
		if _, err := template(t, "prod", "ipam", "", arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", arg, want, err)
		}
	}
	for _, valid := range []string{
		"--set=global.registry=x", // a value of a chart around this one
		"--set=image.repository=localhost:5000/platform/ipam",
		"--set=certificates.issuerRef.name=ca,certificates.caBundle=" + pemHeader,
		"--set=networkPolicy.webhookFrom=null,networkPolicy.metricsFrom=null",
	} {
		if _, err := template(t, "prod", "ipam", "", valid); err != nil {
			t.Errorf("%s is denied: %v", valid, err)
		}
	}
}

// The console has rights of its own, and no selector of the manager selects it.
func TestChart_Console(t *testing.T) {
	for file, args := range map[string][]string{
		"everything.yaml": nil, "selfmanaged.yaml": {"--set=console.enabled=true,console.tlsSecret=my-console"}, "secret.yaml": {"--set=console.enabled=true,console.tlsSecret=my-console"},
	} {
		objects := render(t, file, args...)
		deployment := as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam-console")
		pod, manager := deployment.Spec.Template, as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam")
		want := map[string]string{"everything.yaml": "prod-butler-ipam-console-tls"}[file]
		if want == "" {
			want = "my-console"
		}
		if got := pod.Spec.Volumes[0].Secret.SecretName; got != want {
			t.Errorf("%s: the certificate is in Secret %s, want %s", file, got, want)
		}
		if pod.Spec.ServiceAccountName != "prod-butler-ipam-console" || pod.Spec.Containers[0].Image != manager.Spec.Template.Spec.Containers[0].Image || pod.Spec.Containers[0].Args[0] != "console" {
			t.Errorf("%s: %+v", file, pod.Spec)
		}
		selectors := map[string]map[string]string{"the manager": manager.Spec.Selector.MatchLabels, "its disruption budget": as[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget/prod-butler-ipam").Spec.Selector.MatchLabels}
		for _, o := range objects {
			if o.GetKind() == "Service" && o.GetName() != "prod-butler-ipam-console" {
				selectors["Service "+o.GetName()] = as[corev1.Service](t, objects, key(o)).Spec.Selector
			}
		}
		for name, selector := range selectors {
			if labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
				t.Errorf("%s: %s selects the console: %v", file, name, selector)
			}
		}
		if labels.SelectorFromSet(as[corev1.Service](t, objects, "Service/prod-butler-ipam-console").Spec.Selector).Matches(labels.Set(manager.Spec.Template.Labels)) {
			t.Errorf("%s: the Service of the console selects the manager", file)
		}
		var roles []string
		for _, o := range objects {
			if o.GetKind() == "ClusterRoleBinding" || o.GetKind() == "RoleBinding" {
				binding := as[rbacv1.ClusterRoleBinding](t, objects, key(o))
				if slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == "prod-butler-ipam-console" }) {
					roles = append(roles, o.GetKind()+" "+binding.RoleRef.Name)
				}
			}
		}
		slices.Sort(roles)
		rights := []string{"ClusterRoleBinding prod-butler-ipam-viewer", "ClusterRoleBinding system:auth-delegator"}
		if file == "everything.yaml" { // with tenants
			rights = slices.Insert(rights, 0, "ClusterRoleBinding prod-butler-ipam-tenants-viewer")
		}
		if !slices.Equal(roles, rights) {
			t.Errorf("%s: the console has the roles %q, want %q", file, roles, rights)
		}
	}
}

// An upgrade with --reuse-values lacks the values that the earlier release of the chart
// did not have.
func TestChart_ValuesOfAnEarlierRelease(t *testing.T) {
	if diff := cmp.Diff(keys(render(t, "")), keys(render(t, "", "--set=console=null,history=null"))); diff != "" {
		t.Errorf("(-default +without):\n%s", diff)
	}
}

func TestChart_Dashboard(t *testing.T) {
	config := as[corev1.ConfigMap](t, render(t, "everything.yaml"), "ConfigMap/prod-butler-ipam-dashboard")
	if config.Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels %v", config.Labels)
	}
	if text := config.Data["butler-ipam.json"]; !json.Valid([]byte(text)) {
		t.Errorf("no JSON:\n%s", text)
	}
}

// A label that is given twice is there once, and that by which the Deployment knows its
// pods stays.
func TestChart_DuplicateLabels(t *testing.T) {
	objects := render(t, "", "--set-string", `commonLabels.team=a,commonLabels.app\.kubernetes\.io/name=other`, "--set-string", "serviceMonitor.labels.team=b",
		"--set", "serviceMonitor.enabled=true", "--set-string", `podLabels.team=c,podLabels.app\.kubernetes\.io/instance=other`)
	deployment := as[appsv1.Deployment](t, objects, "Deployment/prod-butler-ipam")
	for key, want := range map[string]string{"app.kubernetes.io/name": "butler-ipam", "app.kubernetes.io/instance": "prod", "team": "c"} {
		if got := deployment.Spec.Template.Labels[key]; got != want {
			t.Errorf("the pods have label %s=%q, want %q", key, got, want)
		}
	}
}
