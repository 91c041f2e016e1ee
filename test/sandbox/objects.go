package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fieldOwner is the field manager of all objects that the sandbox applies.
const fieldOwner = client.FieldOwner("sandbox")

// checkout returns the checkout that contains the working directory, also from a nested
// module. config/ and bin/ are read from the checkout.
func checkout() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "config", "crd")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no config/crd in %s or above it: run the sandbox inside the checkout", start)
		}
	}
}

// readObjects returns the objects of a YAML file in their order.
func readObjects(path string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(object.Object) > 0 { // otherwise a comment between two separators
			objects = append(objects, object)
		}
	}
}

// readDirectory returns the objects of all YAML files in a directory of config/, without
// the files for kustomize.
func readDirectory(dir string) ([]*unstructured.Unstructured, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		if filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		read, err := readObjects(path)
		if err != nil {
			return nil, err
		}
		objects = append(objects, read...)
	}
	return objects, nil
}

// apply creates objects or overwrites objects that an earlier run has left.
func apply(ctx context.Context, c client.Client, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		configuration := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := c.Apply(ctx, configuration, fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// newObject returns an object without content.
func newObject(apiVersion, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetName(name)
	return object
}
