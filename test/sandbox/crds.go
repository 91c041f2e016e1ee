package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InstallCRDs applies the CRDs in these files and directories. It returns when the API
// server serves and announces all their versions: an earlier discovery request of a
// client would not find them. Relative paths are relative to the checkout; make builds
// the files in the checkout's bin/.
func (s *Sandbox) InstallCRDs(ctx context.Context, paths ...string) error {
	var crds []*unstructured.Unstructured
	for _, path := range paths {
		read, err := s.readCRDs(path)
		if err != nil {
			return err
		}
		crds = append(crds, read...)
	}
	if err := apply(ctx, s.client, crds...); err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfig(s.admin)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := poll(ctx, func(ctx context.Context) error { return established(ctx, s.client, d, crd.GetName()) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) readCRDs(path string) ([]*unstructured.Unstructured, error) {
	file := path
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.root, file)
	}
	read := readObjects
	if filepath.Ext(file) == "" {
		read = readDirectory
	}
	crds, err := read(file)
	if err == nil && len(crds) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		return nil, fmt.Errorf("CRDs in %s: %w (those in bin: make metallb bin/clusterapi bin/crds)", path, err)
	}
	return crds, nil
}

func established(ctx context.Context, c client.Client, d discovery.DiscoveryInterface, name string) error {
	crd := newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
	if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
	if err != nil {
		return err
	}
	accepted := slices.ContainsFunc(conditions, func(condition any) bool {
		fields, ok := condition.(map[string]any)
		return ok && fields["type"] == "Established" && fields["status"] == "True"
	})
	if !accepted {
		return fmt.Errorf("custom resource definition %s is not established: conditions %v", name, conditions)
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, version := range versions {
		fields, ok := version.(map[string]any)
		if !ok || fields["served"] != true {
			continue
		}
		gv := schema.GroupVersion{Group: group, Version: fields["name"].(string)}
		if err := announced(d, gv, plural); err != nil {
			return err
		}
	}
	return nil
}

func announced(d discovery.DiscoveryInterface, gv schema.GroupVersion, plural string) error {
	resources, err := d.ServerResourcesForGroupVersion(gv.String())
	if err != nil {
		return err
	}
	for _, resource := range resources.APIResources {
		if resource.Name == plural {
			return nil
		}
	}
	return fmt.Errorf("%s is not served in %s", plural, gv)
}
