package chart

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"

	"butlerlabs.dev/ipam/test/suite"
)

const (
	release          = "butler-ipam"
	releaseNamespace = "butler-ipam-system"
)

// checkout returns a directory in which commands of the README find the chart and
// config/, and the environment in which they find the cluster.
func checkout(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"charts", "config"} {
		target, err := filepath.Abs(filepath.Join(root, name))
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return dir, append(cluster.KubectlEnv(), "PATH="+bin+":"+os.Getenv("PATH"), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
}

// caBundles returns the caBundle of each webhook of the release, without duplicates.
func caBundles(t *testing.T) (all []string) {
	t.Helper()
	stdout, _ := suite.Kubectl(t, cluster, "", "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--selector=app.kubernetes.io/instance="+release,
		`--output=jsonpath={range .items[*].webhooks[*]}{.clientConfig.caBundle}{"\n"}{end}`)
	seen := map[string]bool{}
	for line := range strings.Lines(stdout) {
		text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if !seen[string(text)] {
			seen[string(text)], all = true, append(all, string(text))
		}
	}
	return all
}

// In modes self-managed and cert-manager another program writes the caBundle of the
// webhooks. Helm 4 replaces the caBundle with --force-conflicts only, as the README says
// at the command.
func TestHelm_ChangeToModeSecret(t *testing.T) {
	commands := blocksOf(t, "Mode secret", "sh", 4)
	createSecret := commands[0]
	upgrade, _, _ := strings.Cut(commands[2], "\nkubectl rollout ") // waits for pods, which do not exist here
	for _, mode := range []string{"self-managed", "cert-manager"} {
		t.Run("from_"+mode, func(t *testing.T) {
			dir, env := checkout(t)
			installRelease(t, "--set=crds.install=false", "--set=certificates.mode="+mode)
			if mode == "self-managed" {
				keepCertificates(t, releaseNamespace, release)
			} else {
				for _, configuration := range []string{"mutatingwebhookconfiguration/zz-butler-ipam", "validatingwebhookconfiguration/" + release} {
					suite.Kubectl(t, cluster, "", "patch", configuration, "--field-manager=cert-manager-cainjector", "--type=json",
						`--patch=[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"QQ=="}]`)
				}
			}
			awaitCABundle(t)

			shell(t, dir, env, createSecret)
			t.Cleanup(func() {
				if _, _, err := cluster.Kubectl(context.Background(), "", "delete", "secret/my-certificate", "--namespace="+releaseNamespace); err != nil {
					t.Error(err)
				}
			})
			shell(t, dir, env, "if "+upgrade+" 2>error; then echo no conflict; exit 1; fi; grep 'conflict occurred while applying object .*[.]caBundle' error")
			shell(t, dir, env, upgrade+" --force-conflicts")
			if mode == "self-managed" {
				// The manager runs on, as the former replicas do during the rollout: its
				// rights end with the first upgrade, after the webhooks have changed.
				if stdout, _, _ := cluster.Kubectl(t.Context(), "", "auth", "can-i", "patch", "mutatingwebhookconfigurations/zz-butler-ipam",
					"--as=system:serviceaccount:"+releaseNamespace+":"+release); stdout != "no\n" {
					t.Errorf("can the manager still write webhooks in mode secret: %q", stdout)
				}
				shell(t, dir, env, upgrade+" --force-conflicts")
			}
			want, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{string(want)}, caBundles(t)); diff != "" {
				t.Errorf("different caBundles of the webhooks (-want +got):\n%s", diff)
			}
		})
	}
}

// installRelease installs the release of the README and uninstalls it when the test ends.
// The sandbox has objects with the names of the release.
func installRelease(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"install", release, chart, "--take-ownership", "--force-conflicts", "--namespace=" + releaseNamespace}, args...)
	if _, err := helm(t, cluster.KubectlEnv(), args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { uninstallRelease(t) })
}

// uninstallRelease may run after the context of the test has ended.
func uninstallRelease(t *testing.T) {
	t.Helper()
	command := exec.Command(filepath.Join(root, "bin", "helm"), "uninstall", release, "--namespace="+releaseNamespace)
	command.Env = append(os.Environ(), cluster.KubectlEnv()...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

// awaitCABundle waits until a webhook has a caBundle.
func awaitCABundle(t *testing.T) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return !slices.Equal(caBundles(t), []string{""}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// CRDs that another program created stop an install with Helm 4. The CRDs of Metal3 and
// of kustomize are such CRDs.
func TestHelm_InstallOverForeignCRDs(t *testing.T) {
	const crd = "customresourcedefinition/networkpools.butler.butlerlabs.dev"
	suite.Kubectl(t, cluster, "", "annotate", "--overwrite", crd, "controller-gen.kubebuilder.io/version=v0.1.0", "--field-manager=clusterctl")
	install := func() error {
		_, err := helm(t, cluster.KubectlEnv(), "install", release, chart, "--take-ownership", "--namespace="+releaseNamespace, "--set=certificates.mode=self-managed")
		return err
	}
	for _, want := range []string{"conflict occurred while applying object /networkpools.butler.butlerlabs.dev", "cannot reuse a name that is still in use"} {
		if err := install(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("install without --force-conflicts: %v, want %q", err, want)
		}
	}
	uninstallRelease(t)
	suite.Kubectl(t, cluster, "", "get", crd)
	installRelease(t, "--set=certificates.mode=self-managed")
}
