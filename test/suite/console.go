package suite

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/sandbox"
)

// ConsoleAccount is the service account of the console, as the chart names it.
const ConsoleAccount = "butler-ipam-console"

// Console is a running butler-ipam console.
type Console struct {
	URL   string // https://127.0.0.1:PORT
	Roots *x509.CertPool
}

// StartConsole runs bin/butler-ipam console with the rights that the chart gives to the
// console, for these values of the chart ("tenants.enabled=true"). The console must end
// without an error when the test ends. root is the path of the repository.
func StartConsole(t *testing.T, s *sandbox.Sandbox, c client.Client, root string, values ...string) Console {
	t.Helper()
	rendered, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin/helm"), "template", "butler-ipam", filepath.Join(root, "charts/butler-ipam"), "--namespace="+sandbox.ManagerNamespace,
		"--set="+strings.Join(append(values, "console.enabled=true", "console.tlsSecret=tls"), ","), "--show-only=templates/console.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, rendered)
	}
	var rights []string
	for document := range strings.SplitSeq(string(rendered), "\n---\n") {
		for _, kind := range []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} {
			if strings.Contains(document, "\nkind: "+kind+"\n") {
				rights = append(rights, document)
			}
		}
	}
	if len(rights) < 4 {
		t.Fatalf("the chart has %d objects with rights of the console: %s", len(rights), rendered)
	}
	Kubectl(t, s, strings.Join(rights, "\n---\n"), "apply", "-f", "-")

	authority, err := pki.New("console")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	user, err := s.ConfigFor("nobody")
	if err != nil {
		t.Fatal(err)
	}
	access := rest.AnonymousClientConfig(user)
	access.BearerToken = tokenOf(t, c, sandbox.ManagerNamespace, ConsoleAccount)
	kubeconfig, err := pki.Kubeconfig("sandbox", access, "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "kubeconfig": kubeconfig} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(root, "bin/butler-ipam"), "console",
		"--bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--cert-dir="+dir)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	var read sync.WaitGroup
	read.Go(func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "Serving" {
				address <- line.Address
				continue
			}
			t.Logf("console: %s", lines.Text())
		}
		close(address)
	})
	t.Cleanup(func() {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		read.Wait()
		if err := command.Wait(); err != nil {
			t.Errorf("butler-ipam console: %v", err)
		}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	return Console{"https://" + <-address, roots}
}

// tokenOf returns a token of a service account.
func tokenOf(t *testing.T, c client.Client, ns, name string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// CreatePerson creates a service account with roles, and returns a token of the account.
//
//	bindings: ClusterRole -> namespace; "" for the cluster
func CreatePerson(t *testing.T, c client.Client, ns, name string, bindings map[string]string) (token string) {
	t.Helper()
	Create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}}
	for role, in := range bindings {
		of := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if in == "" {
			CreateForTest(t, c, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name + "-" + role}, RoleRef: of, Subjects: subject})
		} else {
			CreateForTest(t, c, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name + "-" + role}, RoleRef: of, Subjects: subject})
		}
		AwaitRole(t, c, "system:serviceaccount:"+ns+":"+name, role, in) // the console keeps a denial for a while
	}
	return tokenOf(t, c, ns, name)
}
