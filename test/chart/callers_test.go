package chart

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// blocksOf gives the fenced blocks of one language in a section of the chart's README, in
// order.
func blocksOf(t *testing.T, section, language string, want int) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n### "+section+"\n")
	if !found {
		t.Fatalf("no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n##")
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(rest, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) != want {
		t.Fatalf("%d blocks of %s in %q, want %d", len(blocks), language, section, want)
	}
	return blocks
}

// shell runs commands of the README in a directory.
func shell(t *testing.T, dir string, env []string, commands string) (output string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands)
	run.Dir, run.Env = dir, append(os.Environ(), env...)
	text, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(text)
}

const certificateSection = "A client certificate for the API servers"

// The files and commands are those of the README.
func TestClientCertificate_KeepsOthersFromTheWebhooks(t *testing.T) {
	dir := t.TempDir()
	commands := blocksOf(t, certificateSection, "sh", 3)
	shell(t, dir, nil, commands[0])
	// The sandbox has another directory, and a port that is not that of a Service.
	here := strings.NewReplacer("/etc/kubernetes/webhooks", dir, "butler-ipam-webhook.butler-ipam-system.svc", `"*"`)
	files := blocksOf(t, certificateSection, "yaml", 2)
	for i, name := range []string{"kubeconfig.yaml", "admission.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(here.Replace(files[i])), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, c := suite.StartSandbox(t, sandbox.Options{
		Replicas: 2, APIServerArgs: []string{"--admission-control-config-file=" + filepath.Join(dir, "admission.yaml")},
		ManagerArgs: []string{"--webhook-client-ca=" + filepath.Join(dir, "client-ca.crt")},
	})
	configMap, _, _ := strings.Cut(commands[1], "\n") // what follows is helm upgrade
	shell(t, dir, s.KubectlEnv(), configMap)
	firstAllocation(t, dir, s)
	suite.Create(t, c, &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "default"}, Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.49.0.0/24"}})
	for range 4 { // by either replica: one of them passes the call on
		a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Namespace: "default"}, Spec: v1alpha1.IPAllocationSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: "pool"}, TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "web", Namespace: "team-a"}, Type: v1alpha1.TypeNodes,
		}}
		suite.Create(t, c, a)
		if a.Spec.PinnedRange == nil {
			t.Error("a create is answered without addresses")
		}
	}
	for _, m := range s.Managers() {
		connection, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", m.WebhookAddress, &tls.Config{InsecureSkipVerify: true})
		if err == nil { // the client learns of it when it reads
			_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = connection.Read(make([]byte, 1))
		}
		if err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("a caller without certificate: %v", err)
		}
	}
}

// firstAllocation runs the commands of the README's section with that name: the
// allocation gets the first addresses that are not reserved.
func firstAllocation(t *testing.T, dir string, s *sandbox.Sandbox) {
	t.Helper()
	const section = "First pool and allocation"
	if err := os.WriteFile(filepath.Join(dir, "first.yaml"), []byte(blocksOf(t, section, "yaml", 1)[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	output := shell(t, dir, s.KubectlEnv(), blocksOf(t, section, "sh", 1)[0])
	if !strings.Contains(output, "10.40.0.16") || strings.Contains(output, "Warning") {
		t.Errorf("the first allocation:\n%s", output)
	}
	t.Log(output)
}

func TestNetworkPolicy_LetsTheNamedCallersAndTheReplicasThrough(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(blocksOf(t, "A NetworkPolicy", "yaml", 1)[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := template(t, "prod", "guarded", "", "--values="+values, "--show-only=templates/networkpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	restricted(t, "guarded")
	suite.Kubectl(t, cluster, text, "apply", "--namespace=guarded", "--dry-run=server", "--validate=strict", "--filename=-")
	policy := as[networkingv1.NetworkPolicy](t, parse(t, text), "NetworkPolicy/prod-butler-ipam")
	var from []string
	for _, peer := range policy.Spec.Ingress[0].From {
		switch {
		case peer.IPBlock != nil:
			from = append(from, peer.IPBlock.CIDR)
		case cmp.Equal(peer.PodSelector, &policy.Spec.PodSelector) && peer.NamespaceSelector == nil:
			from = append(from, "replicas")
		}
	}
	if got := strings.Join(from, " "); got != "replicas 192.0.2.10/32 192.0.2.11/32" {
		t.Errorf("who reaches the webhooks: %s", got)
	}
	suite.Kubectl(t, cluster, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"cp","labels":{"node-role.kubernetes.io/control-plane":""}}}`, "create", "--filename=-")
	t.Cleanup(func() { _, _, _ = cluster.Kubectl(context.Background(), "", "delete", "node", "cp") })
	suite.Kubectl(t, cluster, "", "patch", "node", "cp", "--subresource=status",
		`--patch={"status":{"addresses":[{"type":"Hostname","address":"cp"},{"type":"InternalIP","address":"192.0.2.10"}]}}`)
	if got := shell(t, "", cluster.KubectlEnv(), blocksOf(t, "A NetworkPolicy", "sh", 3)[0]); got != "192.0.2.10\n" {
		t.Errorf("the addresses of the control plane: %q", got)
	}
}
