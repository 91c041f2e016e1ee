package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// outside is something in a document that a sandbox cannot execute.
type outside struct {
	document string
	pattern  *regexp.Regexp // of commands and of names of files
	reason   string
	place    string // what executes it instead
}

var elsewhere = []outside{
	{"test/README.md", regexp.MustCompile(`^make controlplane build$`), "builds the programs that this test runs", ".ci/run"},
	{"test/README.md", regexp.MustCompile(`^KUBEBUILDER_ASSETS=\$PWD/bin go test `), "runs another test", ".ci/run"},
	{"config/samples/terraform/README.md", regexp.MustCompile(`^(make sandbox CLUSTERAPI=1 CONTROLLERS=1|export .*|cd .*|tofu .*|kubectl get .*)$`),
		"OpenTofu and kube-controller-manager are built on request only", "test/clients"},
	{"config/argocd/README.md", regexp.MustCompile(`^kubectl patch configmap argocd-cm `), "needs Argo CD", "test/gitops"},
	{"charts/butler-ipam/README.md", regexp.MustCompile(`^kubectl (rollout status|logs|get lease|port-forward) |^curl `), "needs a node", "test/cluster"},
	{"charts/butler-ipam/README.md", regexp.MustCompile(`^make image `), "writes the image from a build of its own", "test/cluster"},
	{"charts/butler-ipam/README.md", regexp.MustCompile(`^skopeo `), "needs a registry", "test/tools/image"},
	{"charts/butler-ipam/README.md", regexp.MustCompile(`^kubectl apply --server-side -k `), "has the objects of the Helm release", "test/chart/apiserver_test.go"},
	{"charts/butler-ipam/README.md", regexp.MustCompile(`^kubectl delete -[kf] config/`), "deletes objects of the Helm release", "test/chart/apiserver_test.go"},
	{"charts/butler-ipam/README.md", regexp.MustCompile(`^first\.yaml$|^kubectl (create -f first\.yaml|wait ipallocation/first |get ipallocation first |delete ipallocation/first )`),
		"needs a manager", "test/chart/callers_test.go"},
	{"charts/butler-ipam/README.md", regexp.MustCompile(`^(kubeconfig|admission)\.yaml$`), "configures an API server", "test/chart/callers_test.go"},
	{"api/metal3/README.md", regexp.MustCompile(`^kubectl (scale|delete|rollout status|wait ipclaims) `), "needs Metal3's own manager and its objects", "test/clusterctl"},
	{"cmd/kubectl-ipam/README.md", regexp.MustCompile(`^check-roles\.yaml$|^kubectl create .*check`),
		"is executed by the test of the roles", "test/plugin/check_test.go"},
	{"reconcilers/tenants/README.md", regexp.MustCompile(`\bold-(tenant|pool|provider)\b`), "needs the control plane of a tenant", "test/tenants/existing_test.go"},
	{"reconcilers/tenants/README.md", regexp.MustCompile(`^kubectl logs `), "needs a node", "test/tenants/elastic_test.go"},
	{"README.md", regexp.MustCompile(`^make image `), "writes the image from a build of its own", "test/cluster"},
	{"README.md", regexp.MustCompile(`^skopeo `), "needs a registry", "test/tools/image"},
}

// documents returns all Markdown files of the repository, parsed, by their path.
func documents(t *testing.T) map[string]document {
	t.Helper()
	all := map[string]document{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git"):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if all[name], err = parse(string(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDocuments_Execute(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") != "" { // relative to the working directory of make
		assets, err := filepath.Abs(os.Getenv("KUBEBUILDER_ASSETS"))
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBEBUILDER_ASSETS", assets)
	}
	for name, d := range documents(t) {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			s := newSession(t, name)
			defer func() {
				if err := s.stop(); err != nil {
					t.Error(err)
				}
			}()
			for _, b := range d.blocks {
				if err := s.execute(b); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			for file := range s.files {
				t.Errorf("%s: no command uses %s", name, file)
			}
			for i := range elsewhere {
				o := &elsewhere[i]
				if o.document == name && !s.used[o] {
					t.Errorf("%s has nothing that matches %s", name, o.pattern)
				}
			}
		})
	}
}

// maxWords bounds the README at the top: a first look takes some minutes.
const maxWords = 900

func TestReadme_IsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > maxWords {
		t.Errorf("README.md has %d words, the limit is %d: move details to the README beside what they explain", words, maxWords)
	}
}

func TestElsewhere_PlacesExist(t *testing.T) {
	all := documents(t)
	for _, o := range elsewhere {
		if _, found := all[o.document]; !found {
			t.Errorf("no document %s", o.document)
		}
		if _, err := os.Stat(filepath.Join(root, o.place)); err != nil || o.reason == "" {
			t.Errorf("%s, %s: %v, reason %q", o.document, o.pattern, err, o.reason)
		}
	}
}

func TestLinks(t *testing.T) {
	all := documents(t)
	for name, d := range all {
		for _, l := range d.links {
			if strings.Contains(l.target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(l.target, "#")
			path := name
			if file != "" {
				path = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s:%d: no file %s", name, l.line, path)
			} else if anchor != "" && !all[path].anchors[anchor] {
				t.Errorf("%s:%d: %s has no heading #%s", name, l.line, path, anchor)
			}
		}
	}
}
