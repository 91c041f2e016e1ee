package sandbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// startControlPlane starts etcd, then kube-apiserver, and returns when both are ready.
// kube-apiserver starts last because it retries a failed connection to etcd only after a
// second.
func (s *Sandbox) startControlPlane(ctx context.Context) error {
	etcdProbe, err := s.httpProbe("https://" + s.EtcdAddress() + "/readyz")
	if err != nil {
		return err
	}
	apiServerProbe, err := s.httpProbe("https://" + s.apiServerPort.addr.String() + "/readyz")
	if err != nil {
		return err
	}
	s.etcd = s.newProcess("etcd", filepath.Join(s.assets, "etcd"), s.etcdArgs(), etcdProbe)
	storage := s.EtcdAddress()
	if s.options.EtcdBehind != nil {
		if storage, err = s.options.EtcdBehind(storage); err != nil {
			return err
		}
	}
	s.apiServer = s.newProcess("kube-apiserver", filepath.Join(s.assets, "kube-apiserver"), s.apiServerArgs(storage), apiServerProbe)
	for _, process := range []*Process{s.etcd, s.apiServer} {
		if err := process.Start(); err != nil {
			return err
		}
		if err := process.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) etcdArgs() []string {
	client, peer := "https://"+s.EtcdAddress(), "https://"+s.etcdPeerPort.addr.String()
	return append([]string{
		"--name=sandbox",
		"--data-dir=" + filepath.Join(s.dir, "etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=sandbox=" + peer,
		"--cert-file=" + s.pki("etcd.crt"),
		"--key-file=" + s.pki("etcd.key"),
		"--trusted-ca-file=" + s.pki("ca.crt"),
		"--client-cert-auth",
		"--peer-cert-file=" + s.pki("etcd.crt"),
		"--peer-key-file=" + s.pki("etcd.key"),
		"--peer-trusted-ca-file=" + s.pki("ca.crt"),
		"--peer-client-cert-auth",
		"--log-level=warn",
	}, s.options.EtcdArgs...)
}

func (s *Sandbox) apiServerArgs(storage string) []string {
	addr := s.apiServerPort.addr
	return append([]string{
		"--bind-address=" + addr.Addr().String(),
		fmt.Sprintf("--secure-port=%d", addr.Port()),
		"--advertise-address=" + addr.Addr().String(),
		"--endpoint-reconciler-type=none", // a loopback address is not permitted as endpoint of the Service kubernetes
		"--etcd-servers=https://" + storage,
		"--etcd-cafile=" + s.pki("ca.crt"),
		"--etcd-certfile=" + s.pki("etcd.crt"),
		"--etcd-keyfile=" + s.pki("etcd.key"),
		"--tls-cert-file=" + s.pki("apiserver.crt"),
		"--tls-private-key-file=" + s.pki("apiserver.key"),
		"--client-ca-file=" + s.pki("ca.crt"),
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.pki("service-account.key"),
		"--service-account-signing-key-file=" + s.pki("service-account.key"),
		"--service-cluster-ip-range=10.96.0.0/12",
		"--profiling=false",
	}, s.options.APIServerArgs...)
}

// EtcdClient returns a client of etcd with all rights, which bypasses the API server.
func (s *Sandbox) EtcdClient() (*clientv3.Client, error) {
	config, err := s.adminTLS()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: []string{"https://" + s.EtcdAddress()}, TLS: config, Logger: zap.NewNop()})
}

// adminTLS returns a TLS configuration with the administrator's certificate, which the
// API server and etcd trust.
func (s *Sandbox) adminTLS() (*tls.Config, error) {
	certificate, err := tls.X509KeyPair(s.admin.CertData, s.admin.KeyData)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.authority.Certificate)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}, nil
}

// httpProbe returns a probe that succeeds when url responds with status 200 to the
// administrator.
func (s *Sandbox) httpProbe(url string) (func(context.Context) error, error) {
	config, err := s.adminTLS()
	if err != nil {
		return nil, err
	}
	httpClient := &http.Client{Transport: &http.Transport{
		// Without keep-alive: a probe of a restarted process must not use a connection to
		// the former process.
		DisableKeepAlives: true,
		TLSClientConfig:   config,
	}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := httpClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}, nil
}

// UseVersion replaces CRDs, roles and webhooks by those of another version, and starts
// later managers from its program. The running managers continue.
func (s *Sandbox) UseVersion(ctx context.Context, configDir, managerBinary string) error {
	s.mu.Lock()
	s.options.ConfigDir, s.options.ManagerBinary = configDir, managerBinary
	s.mu.Unlock()
	if err := s.installConfig(ctx); err != nil {
		return err
	}
	return s.InstallWebhooks(ctx)
}

// installConfig applies the namespaces and, from ConfigDir, RBAC, the service account,
// priorities and CRDs, and waits until the custom resources are served.
func (s *Sandbox) installConfig(ctx context.Context) error {
	config := s.options.ConfigDir
	rbac, err := readDirectory(filepath.Join(config, "rbac"))
	if err != nil {
		return err
	}
	var manager []*unstructured.Unstructured
	for _, name := range []string{"serviceaccount.yaml", "flowschema.yaml"} {
		objects, err := readObjects(filepath.Join(config, "manager", name))
		if err != nil {
			return err
		}
		manager = append(manager, objects...)
	}
	crds := []string{filepath.Join(config, "crd")}
	if s.options.Tenants {
		crds = append(crds, filepath.Join(config, "tenants"))
		roles, err := readDirectory(filepath.Join(config, "tenants", "rbac"))
		if err != nil {
			return err
		}
		rbac = append(rbac, roles...)
	}
	if s.options.ClusterAPI {
		crds = append(crds, "bin/clusterapi")
	}
	namespaces := []*unstructured.Unstructured{newObject("v1", "Namespace", ManagerNamespace), newObject("v1", "Namespace", Namespace)}
	if err := apply(ctx, s.client, slices.Concat(namespaces, rbac, manager)...); err != nil {
		return err
	}
	return s.InstallCRDs(ctx, crds...)
}
