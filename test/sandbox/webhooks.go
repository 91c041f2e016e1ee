package sandbox

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"

	admissionVersion = "admissionregistration.k8s.io/v1"
	barrierName      = "sandbox-barrier"
)

// InstallWebhooks applies the webhook configurations of ConfigDir with the front in place
// of their Service. It returns when the API server calls the webhooks: the API server
// observes the configurations by a watch, so a create directly after the apply could
// bypass them.
func (s *Sandbox) InstallWebhooks(ctx context.Context) error {
	objects, err := readObjects(filepath.Join(s.options.ConfigDir, "webhook", "manifests.yaml"))
	if err != nil {
		return err
	}
	if s.options.Tenants {
		tenants, err := readObjects(filepath.Join(s.options.ConfigDir, "tenants", "webhook", "manifests.yaml"))
		if err != nil {
			return err
		}
		objects = append(objects, tenants...)
	}
	return s.install(ctx, objects)
}

func (s *Sandbox) install(ctx context.Context, configurations []*unstructured.Unstructured) error {
	for _, configuration := range configurations {
		if err := s.pointToFront(configuration); err != nil {
			return err
		}
	}
	if err := apply(ctx, s.client, append([]*unstructured.Unstructured{frontService()}, configurations...)...); err != nil {
		return err
	}
	for _, kind := range []string{mutating, validating} {
		if err := s.awaitConfigurations(ctx, kind); err != nil {
			return fmt.Errorf("the API server does not call the webhooks of a new %s: %w", kind, err)
		}
	}
	return nil
}

// frontService returns the Service of the webhooks, which leads to the front's port on
// this machine. With a Service, the API server behaves as in a cluster: it speaks
// HTTP/1.1 and uses separate connections for each webhook. With a URL, all webhooks would
// share connections.
func frontService() *unstructured.Unstructured {
	service := newObject("v1", "Service", webhookService)
	service.SetNamespace(ManagerNamespace)
	service.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
	return service
}

// pointToFront sets the front's port and the authority of the managers' certificates in
// every clientConfig.
func (s *Sandbox) pointToFront(configuration *unstructured.Unstructured) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	front, err := netip.ParseAddrPort(s.front.Address())
	if err != nil {
		return err
	}
	for _, webhook := range webhooks {
		fields, ok := webhook.(map[string]any)
		if !ok {
			return fmt.Errorf("%s %s: a webhook is not an object", configuration.GetKind(), configuration.GetName())
		}
		path, found, err := unstructured.NestedString(fields, "clientConfig", "service", "path")
		if err != nil || !found {
			return fmt.Errorf("%s %s, webhook %v: clientConfig.service.path is required", configuration.GetKind(), configuration.GetName(), fields["name"])
		}
		client := map[string]any{
			"service": map[string]any{"name": webhookService, "namespace": ManagerNamespace, "path": path, "port": int64(front.Port())},
		}
		if !s.options.SelfManaged {
			client["caBundle"] = base64.StdEncoding.EncodeToString(s.webhookAuthority().PEM)
		}
		fields["clientConfig"] = client
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}

// awaitConfigurations returns when the API server applies all configurations of a kind
// that were written before the call, and knows the Service. The API server's watch
// delivers in order, so the API server observes a configuration written now last.
// awaitConfigurations writes a configuration that fails the dry-run create of one
// labelled ConfigMap, because its port has no listener, and removes the configuration
// when the create fails.
func (s *Sandbox) awaitConfigurations(ctx context.Context, kind string) error {
	labels := map[string]any{barrierName: kind}
	barrier := newObject(admissionVersion, kind, barrierName)
	barrier.Object["webhooks"] = []any{map[string]any{
		"name":                    barrierName + ".butlerlabs.dev",
		"admissionReviewVersions": []any{"v1"},
		"sideEffects":             "None",
		"failurePolicy":           "Fail",
		"timeoutSeconds":          int64(1),
		"clientConfig":            map[string]any{"service": map[string]any{"name": webhookService, "namespace": ManagerNamespace, "port": int64(1)}},
		"objectSelector":          map[string]any{"matchLabels": labels},
		"rules": []any{map[string]any{
			"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE"},
		}},
	}}
	if err := apply(ctx, s.client, barrier); err != nil {
		return err
	}
	probe := func(ctx context.Context) error {
		object := newObject("v1", "ConfigMap", "")
		object.SetGenerateName(barrierName + "-")
		object.SetNamespace(ManagerNamespace)
		object.SetLabels(map[string]string{barrierName: kind})
		err := s.client.Create(ctx, object, client.DryRunAll)
		if apierrors.IsInternalError(err) && strings.Contains(err.Error(), barrierName) && !strings.Contains(err.Error(), "not found") {
			return nil
		}
		if err == nil {
			return fmt.Errorf("%s was not called", barrierName)
		}
		return err
	}
	if err := poll(ctx, probe); err != nil {
		return err
	}
	return s.client.Delete(ctx, barrier)
}
