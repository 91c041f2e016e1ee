package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../.."
	chart = root + "/charts/butler-ipam"
)

// Values with which the chart is rendered, beside the default ones: "".
var valuesFiles = []string{"", "everything.yaml", "issuer.yaml", "secret.yaml", "selfmanaged.yaml"}

// helm runs bin/helm with nothing of the user's own configuration.
func helm(t *testing.T, env []string, args ...string) (stdout string, err error) {
	t.Helper()
	home := t.TempDir()
	var out, problems bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "helm"), args...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	command.Env = append(command.Env, env...)
	command.Stdout, command.Stderr = &out, &problems
	if err = command.Run(); err != nil {
		err = fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), err
}

// template is `helm template` of a release in a namespace. The file is one of testdata,
// or none.
func template(t *testing.T, release, namespace, file string, args ...string) (string, error) {
	t.Helper()
	all := []string{"template", release, chart, "--namespace", namespace}
	if file != "" {
		all = append(all, "--values", filepath.Join("testdata", file))
	}
	return helm(t, nil, append(all, args...)...)
}

// render is template as objects, for values that are right.
func render(t *testing.T, file string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := template(t, "prod", "ipam", file, args...)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// parse reads YAML documents.
func parse(t *testing.T, text string) (objects []*unstructured.Unstructured) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// key names an object: Kind/name.
func key(o *unstructured.Unstructured) string { return o.GetKind() + "/" + o.GetName() }

func keys(objects []*unstructured.Unstructured) (all []string) {
	for _, o := range objects {
		all = append(all, key(o))
	}
	slices.Sort(all)
	return all
}

// as finds an object by its key, as its Go type.
func as[T any](t *testing.T, objects []*unstructured.Unstructured, name string) *T {
	t.Helper()
	for _, o := range objects {
		if key(o) == name {
			typed := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return typed
		}
	}
	t.Fatalf("no %s among %v", name, keys(objects))
	return nil
}
