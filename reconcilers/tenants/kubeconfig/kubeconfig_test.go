package kubeconfig_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"butlerlabs.dev/ipam/reconcilers/tenants/kubeconfig"
)

const secret = "s3cr3t"

var certificate, key = pair()

// pair is a certificate and its key in PEM.
func pair() (certificate, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "admin"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		panic(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// with is a kubeconfig as control planes write it, but for a change.
func with(t *testing.T, change func(all *api.Config, cluster *api.Cluster, user *api.AuthInfo)) []byte {
	t.Helper()
	cluster := &api.Cluster{Server: "https://10.40.0.1:6443", CertificateAuthorityData: certificate}
	user := &api.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	all := &api.Config{
		Clusters:       map[string]*api.Cluster{"tenant": cluster},
		AuthInfos:      map[string]*api.AuthInfo{"admin": user},
		Contexts:       map[string]*api.Context{"admin@tenant": {Cluster: "tenant", AuthInfo: "admin"}},
		CurrentContext: "admin@tenant",
	}
	change(all, cluster, user)
	text, err := clientcmd.Write(*all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParse_AcceptsInlineData(t *testing.T) {
	tlsConfig := rest.TLSClientConfig{CAData: certificate, CertData: certificate, KeyData: key}
	byToken := rest.TLSClientConfig{CAData: certificate, ServerName: "kubernetes"}
	cases := map[string]struct {
		change func(*api.Config, *api.Cluster, *api.AuthInfo)
		want   *rest.Config
	}{
		"certificate": {func(*api.Config, *api.Cluster, *api.AuthInfo) {}, &rest.Config{Host: "https://10.40.0.1:6443", TLSClientConfig: tlsConfig}},
		"token and server name": {
			func(_ *api.Config, c *api.Cluster, u *api.AuthInfo) {
				c.TLSServerName = "kubernetes"
				*u = api.AuthInfo{Token: secret}
			},
			&rest.Config{Host: "https://10.40.0.1:6443", BearerToken: secret, TLSClientConfig: byToken},
		},
		"another context that is refused": {
			func(all *api.Config, _ *api.Cluster, _ *api.AuthInfo) {
				all.Contexts["other"] = &api.Context{Cluster: "other", AuthInfo: "other"}
				all.Clusters["other"] = &api.Cluster{Server: "http://10.40.0.1"}
				all.AuthInfos["other"] = &api.AuthInfo{TokenFile: "/etc/passwd"}
			},
			&rest.Config{Host: "https://10.40.0.1:6443", TLSClientConfig: tlsConfig},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := kubeconfig.Parse(with(t, tc.change))
			if err != nil {
				t.Fatal(err)
			}
			// Compared by fields: a rest.Config prints without its credentials.
			if got.Host != tc.want.Host || got.BearerToken != tc.want.BearerToken || got.ServerName != tc.want.ServerName ||
				!bytes.Equal(got.CAData, tc.want.CAData) || !bytes.Equal(got.CertData, tc.want.CertData) || !bytes.Equal(got.KeyData, tc.want.KeyData) {
				t.Errorf("want %+v, got %+v", tc.want, got)
			}
			if got.ExecProvider != nil || got.AuthProvider != nil || got.Insecure || got.CAFile+got.CertFile+got.KeyFile+got.BearerTokenFile != "" || got.Proxy != nil {
				t.Errorf("more than inline data: %+v", got)
			}
		})
	}
}

func TestParse_RejectsReferences(t *testing.T) {
	const inline = `set token, or client-certificate-data and client-key-data`
	cluster := func(change func(*api.Cluster)) func(*api.Config, *api.Cluster, *api.AuthInfo) {
		return func(_ *api.Config, c *api.Cluster, _ *api.AuthInfo) { change(c) }
	}
	user := func(change func(*api.AuthInfo)) func(*api.Config, *api.Cluster, *api.AuthInfo) {
		return func(_ *api.Config, _ *api.Cluster, u *api.AuthInfo) { change(u) }
	}
	cases := map[string]struct {
		change func(*api.Config, *api.Cluster, *api.AuthInfo)
		want   string
	}{
		"no current context":      {func(all *api.Config, _ *api.Cluster, _ *api.AuthInfo) { all.CurrentContext = "" }, `current-context is missing: name the context to use`},
		"unknown current context": {func(all *api.Config, _ *api.Cluster, _ *api.AuthInfo) { all.CurrentContext = "x" }, `current-context "x" is not among the contexts`},
		"unknown cluster":         {func(all *api.Config, _ *api.Cluster, _ *api.AuthInfo) { all.Contexts["admin@tenant"].Cluster = "x" }, `context "admin@tenant": cluster "x" is not among the clusters`},
		"unknown user":            {func(all *api.Config, _ *api.Cluster, _ *api.AuthInfo) { all.Contexts["admin@tenant"].AuthInfo = "x" }, `context "admin@tenant": user "x" is not among the users`},

		"no server":          {cluster(func(c *api.Cluster) { c.Server = "" }), `cluster "tenant": server is missing: set the URL of the API server`},
		"no URL":             {cluster(func(c *api.Cluster) { c.Server = "https://a b" }), `cluster "tenant": server is no URL: use https://HOST:PORT`},
		"no host":            {cluster(func(c *api.Cluster) { c.Server = "https:///path" }), `cluster "tenant": server is no URL: use https://HOST:PORT`},
		"plain HTTP":         {cluster(func(c *api.Cluster) { c.Server = "http://10.40.0.1" }), `cluster "tenant": server with scheme "http" is refused: use https`},
		"unix socket":        {cluster(func(c *api.Cluster) { c.Server = "unix://socket" }), `cluster "tenant": server with scheme "unix" is refused: use https`},
		"password in URL":    {cluster(func(c *api.Cluster) { c.Server = "https://a:" + secret + "@10.40.0.1" }), `cluster "tenant": server with credentials in it is refused: put them in the user`},
		"insecure":           {cluster(func(c *api.Cluster) { c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil }), `cluster "tenant": insecure-skip-tls-verify is refused: set certificate-authority-data`},
		"proxy":              {cluster(func(c *api.Cluster) { c.ProxyURL = "http://proxy" }), `cluster "tenant": proxy-url is refused: the API server must be reachable directly`},
		"CA in a file":       {cluster(func(c *api.Cluster) { c.CertificateAuthority = "/etc/passwd" }), `cluster "tenant": certificate-authority names a file, which is refused: set certificate-authority-data`},
		"no CA":              {cluster(func(c *api.Cluster) { c.CertificateAuthorityData = nil }), `cluster "tenant": certificate-authority-data is missing: set the CA of the API server`},
		"CA that is no cert": {cluster(func(c *api.Cluster) { c.CertificateAuthorityData = key }), `cluster "tenant": certificate-authority-data holds no certificate in PEM`},

		"exec": {user(func(u *api.AuthInfo) {
			u.Exec = &api.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode}
		}), `user "admin": exec is refused: ` + inline},
		"auth provider":     {user(func(u *api.AuthInfo) { u.AuthProvider = &api.AuthProviderConfig{Name: "oidc"} }), `user "admin": auth-provider is refused: ` + inline},
		"token file":        {user(func(u *api.AuthInfo) { u.TokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" }), `user "admin": tokenFile names a file, which is refused: ` + inline},
		"certificate file":  {user(func(u *api.AuthInfo) { u.ClientCertificate = "/etc/passwd" }), `user "admin": client-certificate names a file, which is refused: ` + inline},
		"key file":          {user(func(u *api.AuthInfo) { u.ClientKey = "/etc/passwd" }), `user "admin": client-key names a file, which is refused: ` + inline},
		"password":          {user(func(u *api.AuthInfo) { u.Username, u.Password = "admin", secret }), `user "admin": username and password are refused, API servers no longer accept them: ` + inline},
		"impersonation":     {user(func(u *api.AuthInfo) { u.ImpersonateGroups = []string{"system:masters"} }), `user "admin": impersonation is refused: use the credentials of the impersonated user`},
		"no credentials":    {user(func(u *api.AuthInfo) { *u = api.AuthInfo{} }), `user "admin": credentials are missing: ` + inline},
		"certificate alone": {user(func(u *api.AuthInfo) { u.ClientKeyData = nil }), `user "admin": client-certificate-data and client-key-data must be set together`},
		"pair that is none": {user(func(u *api.AuthInfo) { u.ClientKeyData = []byte(secret) }), `user "admin": client-certificate-data and client-key-data are no matching pair in PEM`},
		"token and exec": {user(func(u *api.AuthInfo) {
			*u = api.AuthInfo{Token: secret, Exec: &api.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1"}}
		}), `user "admin": exec is refused: ` + inline},
		"token and tokenFile": {user(func(u *api.AuthInfo) { *u = api.AuthInfo{Token: secret, TokenFile: "/etc/passwd"} }), `user "admin": tokenFile names a file, which is refused: ` + inline},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refused(t, tc.want)(kubeconfig.Parse(with(t, tc.change)))
		})
	}
}

// Reading it would take a processor for minutes, or hours.
func TestParse_RejectsOversizedKey(t *testing.T) {
	der := func(value any) []byte {
		t.Helper()
		text, err := asn1.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	odd := func(bits uint) *big.Int { return new(big.Int).SetBit(big.NewInt(1), int(bits-1), 1) }
	type pkcs1 struct {
		Version       int
		N             *big.Int
		E             int
		D, P, Q       *big.Int
		Dp, Dq, Coeff *big.Int `asn1:"optional"`
	}
	type pkcs8 struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}
	large := der(pkcs1{N: odd(2048), E: 65537, D: odd(2048), P: odd(1 << 16), Q: odd(1024), Dp: big.NewInt(0), Dq: big.NewInt(0), Coeff: big.NewInt(0)})
	sequence := asn1.RawValue{}
	if _, err := asn1.Unmarshal(large, &sequence); err != nil {
		t.Fatal(err)
	}
	sequence.Bytes, sequence.FullBytes = append(sequence.Bytes, 0xff), nil // which is read over
	wrapped := func(key []byte) []byte {
		return der(pkcs8{Algorithm: pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}, Key: key})
	}
	for name, tc := range map[string]struct {
		kind string
		key  []byte
	}{
		"PKCS #1":                  {"RSA PRIVATE KEY", large},
		"PKCS #8":                  {"PRIVATE KEY", wrapped(large)},
		"with a tail":              {"RSA PRIVATE KEY", der(sequence)},
		"PKCS #8, with a tail":     {"PRIVATE KEY", wrapped(der(sequence))},
		"under the name of others": {"EC PRIVATE KEY", large},
	} {
		t.Run(name, func(t *testing.T) {
			text := with(t, func(_ *api.Config, _ *api.Cluster, u *api.AuthInfo) {
				u.ClientKeyData = pem.EncodeToMemory(&pem.Block{Type: tc.kind, Bytes: tc.key})
			})
			refused(t, `user "admin": client-key-data or client-certificate-data holds a key of more than 8192 bits`)(kubeconfig.Parse(text))
		})
	}
}

// Checking what it has signed would.
func TestParse_RejectsOversizedAuthorityKey(t *testing.T) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1)}
	long := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 8192, 1), E: 65537}
	certificate, err := x509.CreateCertificate(rand.Reader, of, of, long, signer)
	if err != nil {
		t.Fatal(err)
	}
	text := with(t, func(_ *api.Config, c *api.Cluster, _ *api.AuthInfo) {
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	})
	refused(t, `cluster "tenant": certificate-authority-data holds a key of more than 8192 bits`)(kubeconfig.Parse(text))
}

func TestParse_AcceptsUsualKeys(t *testing.T) {
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa4096, err := rsa.GenerateKey(rand.Reader, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"ECDSA": p256, "Ed25519": ed, "RSA": rsa4096} {
		of := &x509.Certificate{SerialNumber: big.NewInt(1)}
		certificate, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kubeconfig.Parse(with(t, func(_ *api.Config, c *api.Cluster, u *api.AuthInfo) {
			c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
			u.ClientCertificateData, u.ClientKeyData = c.CertificateAuthorityData, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
		})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParse_RejectsOtherText(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"nothing":         {"", `current-context is missing: name the context to use`},
		"another object":  {"apiVersion: v1\nkind: Secret\n", `the text is no kubeconfig`},
		"a list":          {"[" + secret + "]", `the text is no kubeconfig`},
		"text":            {secret, `the text is no kubeconfig`},
		"bytes":           {"\x00\xff" + secret, `the text is no kubeconfig`},
		"a wrong type":    {"apiVersion: v1\nkind: Config\nusers: " + secret, `the text is no kubeconfig`},
		"a wrong base64":  {"apiVersion: v1\nkind: Config\nusers: [{name: a, user: {client-key-data: " + secret + "!}}]", `the text is no kubeconfig`},
		"aliases":         {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]", `the text is no kubeconfig`},
		"more than there": {strings.Repeat("#", kubeconfig.MaxSize+1), `the kubeconfig has 262145 bytes, the limit is 262144`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refused(t, tc.want)(kubeconfig.Parse([]byte(tc.text)))
		})
	}
}

func TestFromSecret_PrefersServiceKey(t *testing.T) {
	at := func(server string) []byte {
		return with(t, func(_ *api.Config, c *api.Cluster, _ *api.AuthInfo) { c.Server = server })
	}
	inside, outside := at("https://tenant.svc:6443"), at("https://10.40.0.1:6443")
	cases := map[string]struct {
		data map[string][]byte
		want string
	}{
		"both":         {map[string][]byte{"admin.svc": inside, "admin.conf": outside}, "https://tenant.svc:6443"},
		"one":          {map[string][]byte{"admin.conf": outside}, "https://10.40.0.1:6443"},
		"one is empty": {map[string][]byte{"admin.svc": {}, "admin.conf": outside}, "https://10.40.0.1:6443"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := kubeconfig.FromSecret(tc.data)
			if err != nil {
				t.Fatal(err)
			}
			if c.Host != tc.want {
				t.Errorf("want %s, got %s", tc.want, c.Host)
			}
		})
	}
	refused(t, `neither key admin.svc nor admin.conf holds a kubeconfig`)(kubeconfig.FromSecret(nil))
	refused(t, `neither key admin.svc nor admin.conf holds a kubeconfig`)(kubeconfig.FromSecret(map[string][]byte{"value": outside, "admin.conf": {}}))
	refused(t, `key admin.svc: the text is no kubeconfig`)(kubeconfig.FromSecret(map[string][]byte{"admin.svc": []byte(secret), "admin.conf": outside}))
	if got := kubeconfig.SecretName("mycluster"); got != "mycluster-admin-kubeconfig" {
		t.Errorf("Secret %s", got)
	}
}

// refused wants an error and nothing that could be used, and no credentials in what is
// told.
func refused(t *testing.T, want string) func(*rest.Config, error) {
	t.Helper()
	return func(c *rest.Config, err error) {
		t.Helper()
		if err == nil || c != nil {
			t.Fatalf("want %q, got %v and %v", want, err, c)
		}
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells a secret: %v", err)
		}
	}
}
