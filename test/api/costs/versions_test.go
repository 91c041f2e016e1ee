package costs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each supported minor version has a file in test/controlplane, and the documents name
// the oldest and the newest.
func TestSupportedVersionsAreNamedAndTested(t *testing.T) {
	files, err := filepath.Glob("../../controlplane/v1.*.mod")
	if err != nil {
		t.Fatal(err)
	}
	minors := []int{minor(t, "../../controlplane/go.mod", `k8s\.io/kubernetes v1\.(\d+)\.`)}
	newest := minors[0]
	for _, file := range files {
		named, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "v1."), ".mod"))
		if err != nil {
			t.Fatal(err)
		}
		if got := minor(t, file, `k8s\.io/kubernetes v1\.(\d+)\.`); got != named {
			t.Errorf("%s requires Kubernetes 1.%d", file, got)
		}
		minors = append(minors, named)
	}
	slices.Sort(minors)
	oldest := minors[0]
	for i, got := range minors {
		if want := oldest + i; got != want {
			t.Errorf("test/controlplane has %v, not every minor version from 1.%d to 1.%d once", minors, oldest, newest)
			break
		}
	}

	if got := minor(t, "go.mod", `k8s\.io/apiextensions-apiserver v0\.(\d+)\.`); got != oldest {
		t.Errorf("the rules are checked with Kubernetes 1.%d, the oldest is 1.%d", got, oldest)
	}
	versions := strings.NewReplacer("OLDEST", fmt.Sprintf("1.%d", oldest), "NEWEST", fmt.Sprintf("1.%d", newest))
	for file, text := range map[string]string{
		"../../../README.md":                     "Kubernetes OLDEST or later (tested to NEWEST)",
		"../../../charts/butler-ipam/README.md":  "- Kubernetes OLDEST or later",
		"../../../charts/butler-ipam/Chart.yaml": `kubeVersion: ">=OLDEST.0-0"`,
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := versions.Replace(text); !strings.Contains(string(content), want) {
			t.Errorf("%s does not say %q", file, want)
		}
	}
}

// minor returns the minor version of Kubernetes that the pattern finds in a go.mod file.
func minor(t *testing.T, file, pattern string) int {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(string(content))
	if found == nil {
		t.Fatalf("%s requires no Kubernetes", file)
	}
	number, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return number
}
