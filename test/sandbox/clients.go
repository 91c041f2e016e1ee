package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/test/pki"
)

// Config returns a client configuration of the cluster's administrator (group
// system:masters), without client-side throttling.
func (s *Sandbox) Config() *rest.Config { return rest.CopyConfig(s.admin) }

// ConfigFor returns a client configuration of any user, without client-side throttling.
// RBAC determines the user's rights.
func (s *Sandbox) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	certificate, key, err := s.authority.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:  "https://" + s.apiServerPort.addr.String(),
		QPS:   -1,
		Burst: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   s.authority.PEM,
			CertData: certificate,
			KeyData:  key,
		},
	}, nil
}

// accountLife is the lifetime of the token of the managers' service account: longer than
// any sandbox runs.
const accountLife = 365 * 24 * time.Hour

// prepareAccount requests a token of the managers' service account. The managers
// authenticate with the token, as in a pod.
func (s *Sandbox) prepareAccount(ctx context.Context) error {
	core, err := corev1client.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(accountLife / time.Second))}}
	if request, err = core.ServiceAccounts(ManagerNamespace).CreateToken(ctx, managerAccount, request, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("token of service account %s/%s: %w", ManagerNamespace, managerAccount, err)
	}
	s.account = rest.AnonymousClientConfig(s.admin)
	s.account.BearerToken = request.Status.Token
	return nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Sandbox) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// Kubectl runs kubectl as the administrator, with stdin as its standard input. If kubectl
// fails, the error contains its standard error output.
func (s *Sandbox) Kubectl(ctx context.Context, stdin string, args ...string) (stdout, stderr string, err error) {
	var out, problems bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(s.assets, "kubectl"), args...)
	command.Env = append(os.Environ(), s.KubectlEnv()...)
	command.Stdin = strings.NewReader(stdin)
	command.Stdout, command.Stderr = &out, &problems
	if err = command.Run(); err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), problems.String(), err
}

// KubectlEnv returns environment variables that let `kubectl` in a child process act as
// the administrator: PATH, kubeconfig, and a discovery cache of this sandbox. (The
// default cache is keyed by host and port, and an earlier sandbox may have used the same
// port.)
func (s *Sandbox) KubectlEnv() []string {
	return []string{
		"PATH=" + s.assets + string(os.PathListSeparator) + os.Getenv("PATH"),
		"KUBECONFIG=" + s.Kubeconfig(),
		"KUBECACHEDIR=" + filepath.Join(s.dir, "kubectl-cache"),
	}
}

// writeKubeconfig writes a configuration as a kubeconfig file.
func writeKubeconfig(path string, config *rest.Config, namespace string) error {
	text, err := pki.Kubeconfig("sandbox", config, namespace)
	if err != nil {
		return err
	}
	return writeFile(path, text)
}
