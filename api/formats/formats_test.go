package formats

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRules_StandOnce fails if two fields of the API groups have the same rule or
// pattern: a format with the rule belongs into this package.
func TestRules_StandOnce(t *testing.T) {
	files, err := filepath.Glob("../*/v1alpha1/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	places := map[string]string{} // marker -> file
	for _, file := range append(files, "formats.go") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			marker := strings.TrimSpace(line)
			if !strings.HasPrefix(marker, "// +kubebuilder:validation:XValidation:") && !strings.HasPrefix(marker, "// +kubebuilder:validation:Pattern=") {
				continue
			}
			if place, ok := places[marker]; ok && file != "formats.go" {
				t.Errorf("%s repeats a marker of %s: %.120s", file, place, marker)
			}
			places[marker] = file
		}
	}
}
