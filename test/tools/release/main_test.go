package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckVersion(t *testing.T) {
	for version, refused := range map[string]string{
		"v1.2.3":             "",
		"v0.1.0-rc.1":        "",
		"":                   "VERSION is not set",
		"dev":                "must be a semantic version",
		"9135be1":            "must be a semantic version",
		"1.2.3":              "must be a semantic version",
		"v1.2":               "must be a semantic version",
		"v01.2.3":            "must be a semantic version",
		"v1.2.3+build":       "must be a semantic version", // no tag of an image
		"v1.2.3-dirty":       "without changes",
		"v1.2.3-5-g9135be1":  "not that of a tagged commit",
		"v1.2.3-rc.1-dirty":  "without changes",
		"v1.2.3; rm -rf tmp": "must be a semantic version",
	} {
		err := checkVersion(version)
		if refused == "" && err == nil {
			continue
		}
		if refused == "" || err == nil || !strings.Contains(err.Error(), refused) || !strings.Contains(err.Error(), "set VERSION=v1.2.3") {
			t.Errorf("%q: %v, want %q and the remedy", version, err, refused)
		}
	}
}

// repository returns a git repository with one commit.
func repository(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "test")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	mustGit(t, dir, "init", "--quiet")
	commit(t, dir, "state: first")
	return dir
}

func mustGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := git(dir, args...); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, dir, subject string) {
	t.Helper()
	mustGit(t, dir, "commit", "--quiet", "--allow-empty", "--message="+subject)
}

func TestCheckClean(t *testing.T) {
	dir := repository(t)
	if err := checkClean(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkClean(dir); err == nil || !strings.Contains(err.Error(), "commit or stash them:\n?? new.go") {
		t.Errorf("with a new file: %v", err)
	}
}

func TestNotes_SinceThePreviousTag(t *testing.T) {
	dir := repository(t)
	notes := func() string {
		r := release{version: "v0.2.0", image: "registry.example.com/butler-ipam", root: dir, out: t.TempDir()}
		if err := r.writeNotes(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(r.out, "NOTES.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := notes(); !strings.HasSuffix(got, "\nThis is the first release.\n") {
		t.Errorf("without a tag:\n%s", got)
	}
	mustGit(t, dir, "tag", "v0.1.0")
	commit(t, dir, "ledger: second")
	commit(t, dir, "chart: third")
	mustGit(t, dir, "tag", "v0.2.0") // of the release itself
	got := notes()
	if !strings.HasPrefix(got, "# Butler IPAM v0.2.0\n") || !strings.HasSuffix(got, "\n## Changes since v0.1.0\n\n- chart: third\n- ledger: second\n") {
		t.Errorf("since v0.1.0:\n%s", got)
	}
}
