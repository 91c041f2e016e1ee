package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"butlerlabs.dev/ipam/reconcilers/apiserver"
	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks/certificates"
)

// keepCertificates does what a manager does with certificates of its own, with the rights
// that the chart gives it and no others.
func keepCertificates(t *testing.T, namespace, name string) {
	t.Helper()
	config, err := cluster.ConfigFor("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	kept := certificates.NewSelfManaged(certificates.SelfManagedConfig{
		Secret: types.NamespacedName{Namespace: namespace, Name: name + "-certificates"}, Host: name + "-webhook." + namespace + ".svc",
		Mutating: []string{"zz-butler-ipam"}, Validating: []string{name}, Life: time.Hour, Now: time.Now,
		NewServerClock: func() certificates.ServerClock { return apiserver.NewClock(time.Now) },
	})
	scheme := runtime.NewScheme()
	if err := certificates.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	quiet := funcr.New(func(string, string) {}, funcr.Options{})
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme, Logger: quiet, Cache: cache.Options{ByObject: kept.Caches()}, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)}, // several tests of this process start one
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The manager writes into an object that others apply again and again, each in their way.
func TestSelfManaged_CABundleSurvivesApply(t *testing.T) {
	const namespace, name = "selfmanaged", "own-butler-ipam"
	restricted(t, namespace)
	admin, err := client.New(cluster.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var bundle []byte
	// trusted waits until all webhooks have the authorities that are stored.
	trusted := func(webhooks int) {
		t.Helper()
		var missing error
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			var secret corev1.Secret
			var mutating admissionv1.MutatingWebhookConfiguration
			var validating admissionv1.ValidatingWebhookConfiguration
			err := errors.Join(admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name + "-certificates"}, &secret),
				admin.Get(ctx, types.NamespacedName{Name: "zz-butler-ipam"}, &mutating), admin.Get(ctx, types.NamespacedName{Name: name}, &validating))
			if err != nil {
				return false, err
			}
			bundle = secret.Data["ca.crt"]
			var all []string
			for _, w := range mutating.Webhooks {
				all = append(all, string(w.ClientConfig.CABundle))
			}
			for _, w := range validating.Webhooks {
				all = append(all, string(w.ClientConfig.CABundle))
			}
			missing = nil
			if len(all) != webhooks {
				missing = fmt.Errorf("there are %d webhooks, want %d", len(all), webhooks)
			}
			for _, b := range all {
				if b == "" || b != string(bundle) {
					missing = fmt.Errorf("a webhook has the caBundle %q, stored is %q", b, bundle)
				}
			}
			return missing == nil, nil
		})
		if err != nil {
			t.Fatalf("%v: %v", err, missing)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if _, err := helm(t, cluster.KubectlEnv(), append(args, "--namespace="+namespace)...); err != nil {
			t.Fatal(err)
		}
	}
	values := []string{"--values=testdata/selfmanaged.yaml", "--set=crds.install=false"}
	run(append([]string{"install", "own", chart}, values...)...)
	defer run("uninstall", "own", "--ignore-not-found")
	keepCertificates(t, namespace, name)
	trusted(6)
	first := string(bundle)

	version := func() string {
		stdout, _ := suite.Kubectl(t, cluster, "", "get", "mutatingwebhookconfiguration/zz-butler-ipam", "validatingwebhookconfiguration/"+name, "secret/"+name+"-certificates",
			"--namespace="+namespace, "--output=jsonpath={.items[*].metadata.resourceVersion}")
		return stdout
	}
	rendered, err := template(t, "own", namespace, "selfmanaged.yaml", "--set=crds.install=false")
	if err != nil {
		t.Fatal(err)
	}
	var webhooks []string // the two configurations, and without the last webhook
	for _, text := range strings.Split(rendered, "\n---\n") {
		if strings.Contains(text, "WebhookConfiguration\n") {
			webhooks = append(webhooks, text)
		}
	}
	whole := strings.Join(webhooks, "\n---\n")

	before := version()
	run(append([]string{"upgrade", "own", chart}, values...)...)
	for range 2 { // the first time a new manager of the fields is written down
		before = version()
		suite.Kubectl(t, cluster, whole, "apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "--filename=-")
	}
	if after := version(); after != before {
		t.Errorf("applying the same again writes something: %s, before %s", after, before)
	}
	trusted(6)

	run(append([]string{"upgrade", "own", chart, "--set=commonLabels.team=platform"}, values...)...)
	trusted(6)
	run("rollback", "own", "1")
	trusted(6)
	suite.Kubectl(t, cluster, whole, "replace", "--filename=-") // without a caBundle
	trusted(6)
	if string(bundle) != first {
		t.Error("the authority is another one, and nothing was due")
	}

	// Whoever has it applied can take a webhook away.
	suite.Kubectl(t, cluster, "", "delete", "mutatingwebhookconfiguration/zz-butler-ipam", "validatingwebhookconfiguration/"+name)
	suite.Kubectl(t, cluster, whole, "apply", "--server-side", "--field-manager=gitops", "--filename=-")
	trusted(6)
	last := strings.LastIndex(whole, "\n- admissionReviewVersions")
	suite.Kubectl(t, cluster, whole[:last]+"\n", "apply", "--server-side", "--field-manager=gitops", "--filename=-")
	trusted(5)
}
