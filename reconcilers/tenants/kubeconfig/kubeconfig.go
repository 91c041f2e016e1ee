package kubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Keys of the Secret. keyService has the Service of the API server in the management
// cluster and is preferred, KeyExternal the external address.
const (
	keyService  = "admin.svc"
	KeyExternal = "admin.conf"
)

// MaxSize bounds a kubeconfig, in bytes. It leaves room for many certificates.
const MaxSize = 256 << 10

// SecretName returns the name of the Secret with the kubeconfig of a TenantCluster, in
// its status.tenantNamespace.
func SecretName(tenant string) string { return tenant + "-admin-kubeconfig" }

// FromSecret returns the client configuration in the data of a Secret, from keyService,
// or from KeyExternal if keyService is empty.
func FromSecret(data map[string][]byte) (*rest.Config, error) {
	for _, key := range []string{keyService, KeyExternal} {
		if text := data[key]; len(text) > 0 {
			c, err := Parse(text)
			if err != nil {
				return nil, fmt.Errorf("key %s: %w", key, err)
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("neither key %s nor %s holds a kubeconfig", keyService, KeyExternal)
}

// Parse returns the client configuration of the current context of a kubeconfig. Other
// contexts are ignored.
func Parse(text []byte) (*rest.Config, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("the kubeconfig has %d bytes, the limit is %d", len(text), MaxSize)
	}
	all, err := clientcmd.Load(text)
	if err != nil {
		return nil, errors.New("the text is no kubeconfig") // the cause may quote credentials
	}
	current := all.Contexts[all.CurrentContext]
	switch {
	case all.CurrentContext == "":
		return nil, errors.New("current-context is missing: name the context to use")
	case current == nil:
		return nil, fmt.Errorf("current-context %q is not among the contexts", all.CurrentContext)
	}
	cluster, user := all.Clusters[current.Cluster], all.AuthInfos[current.AuthInfo]
	switch {
	case cluster == nil:
		return nil, fmt.Errorf("context %q: cluster %q is not among the clusters", all.CurrentContext, current.Cluster)
	case user == nil:
		return nil, fmt.Errorf("context %q: user %q is not among the users", all.CurrentContext, current.AuthInfo)
	}
	c := &rest.Config{}
	if err := readCluster(cluster, c); err != nil {
		return nil, fmt.Errorf("cluster %q: %w", current.Cluster, err)
	}
	if err := readUser(user, c); err != nil {
		return nil, fmt.Errorf("user %q: %w", current.AuthInfo, err)
	}
	return c, nil
}

func readCluster(from *api.Cluster, to *rest.Config) error {
	server, err := url.Parse(from.Server)
	switch {
	case from.Server == "":
		return errors.New("server is missing: set the URL of the API server")
	case err != nil || server.Host == "":
		return errors.New("server is no URL: use https://HOST:PORT")
	case server.Scheme != "https":
		return fmt.Errorf("server with scheme %q is refused: use https", server.Scheme)
	case server.User != nil:
		return errors.New("server with credentials in it is refused: put them in the user")
	case from.InsecureSkipTLSVerify:
		return errors.New("insecure-skip-tls-verify is refused: set certificate-authority-data")
	case from.ProxyURL != "":
		return errors.New("proxy-url is refused: the API server must be reachable directly")
	case from.CertificateAuthority != "":
		return errors.New("certificate-authority names a file, which is refused: set certificate-authority-data")
	case len(from.CertificateAuthorityData) == 0:
		return errors.New("certificate-authority-data is missing: set the CA of the API server")
	case hasOversizedKey(from.CertificateAuthorityData):
		return fmt.Errorf("certificate-authority-data holds a key of more than %d bits", maxKeyBits)
	case !x509.NewCertPool().AppendCertsFromPEM(from.CertificateAuthorityData):
		return errors.New("certificate-authority-data holds no certificate in PEM")
	}
	to.Host = from.Server
	to.TLSClientConfig = rest.TLSClientConfig{CAData: from.CertificateAuthorityData, ServerName: from.TLSServerName}
	return nil
}

func readUser(from *api.AuthInfo, to *rest.Config) error {
	const inline = "set token, or client-certificate-data and client-key-data"
	switch {
	case from.Exec != nil:
		return errors.New("exec is refused: " + inline)
	case from.AuthProvider != nil:
		return errors.New("auth-provider is refused: " + inline)
	case from.TokenFile != "":
		return errors.New("tokenFile names a file, which is refused: " + inline)
	case from.ClientCertificate != "":
		return errors.New("client-certificate names a file, which is refused: " + inline)
	case from.ClientKey != "":
		return errors.New("client-key names a file, which is refused: " + inline)
	case from.Username != "" || from.Password != "":
		return errors.New("username and password are refused, API servers no longer accept them: " + inline)
	case from.Impersonate != "" || from.ImpersonateUID != "" || len(from.ImpersonateGroups) > 0 || len(from.ImpersonateUserExtra) > 0:
		return errors.New("impersonation is refused: use the credentials of the impersonated user")
	case (len(from.ClientCertificateData) == 0) != (len(from.ClientKeyData) == 0):
		return errors.New("client-certificate-data and client-key-data must be set together")
	case from.Token == "" && len(from.ClientCertificateData) == 0:
		return errors.New("credentials are missing: " + inline)
	}
	if len(from.ClientCertificateData) > 0 {
		if hasOversizedKey(from.ClientKeyData) || hasOversizedKey(from.ClientCertificateData) {
			return fmt.Errorf("client-key-data or client-certificate-data holds a key of more than %d bits", maxKeyBits)
		}
		if _, err := tls.X509KeyPair(from.ClientCertificateData, from.ClientKeyData); err != nil {
			return errors.New("client-certificate-data and client-key-data are no matching pair in PEM")
		}
	}
	to.BearerToken = from.Token
	to.CertData, to.KeyData = from.ClientCertificateData, from.ClientKeyData
	return nil
}
