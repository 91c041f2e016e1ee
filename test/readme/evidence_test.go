package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testReference = regexp.MustCompile("^`(\\S+) (Test\\w+)`$")
	notTested     = regexp.MustCompile(`^not tested: \S`)
)

// A table with a last column "Checked by" names in each row the test that shows what the
// row says, as `DIRECTORY TestName`, or why there is none, as "not tested: REASON".
func TestEvidence_NamesTestsThatExist(t *testing.T) {
	rows := 0
	for name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		inTable := false
		for i, line := range strings.Split(string(text), "\n") {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			last := cells[len(cells)-1]
			switch {
			case !strings.HasPrefix(line, "|"):
				inTable = false
			case last == "Checked by":
				inTable = true
			case inTable && !strings.HasPrefix(last, "---"):
				rows++
				if problem := checkEvidence(last); problem != "" {
					t.Errorf("%s:%d: %q %s", name, i+1, last, problem)
				}
			}
		}
	}
	if rows == 0 {
		t.Error("no document has a table with a column Checked by")
	}
}

// checkEvidence returns what is wrong with a cell of the column "Checked by", or "".
func checkEvidence(cell string) string {
	if notTested.MatchString(cell) {
		return ""
	}
	reference := testReference.FindStringSubmatch(cell)
	if reference == nil {
		return "is neither `DIRECTORY TestName` nor \"not tested: REASON\""
	}
	files, err := filepath.Glob(filepath.Join(root, reference[1], "*_test.go"))
	if err != nil || len(files) == 0 {
		return "names a directory without tests"
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		if strings.Contains(string(text), "func "+reference[2]+"(") {
			return ""
		}
	}
	return "names a test that the directory does not have"
}
