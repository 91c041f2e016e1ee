package sandbox

import (
	"os"
	"path/filepath"

	"butlerlabs.dev/ipam/test/pki"
)

// writePKI writes into dir what the servers read: ca.crt (once more beside the webhooks' pair, as cert-manager does), the key pairs
// etcd, apiserver and webhook/tls, and service-account.key.
func writePKI(a *pki.Authority, dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "webhook"), 0o700); err != nil {
		return err
	}
	for _, name := range []string{"ca.crt", "webhook/ca.crt"} {
		if err := writeFile(filepath.Join(dir, name), a.PEM); err != nil {
			return err
		}
	}
	for _, pair := range []struct {
		name string
		dns  []string
	}{
		{name: "etcd"},
		{name: "apiserver", dns: []string{"kubernetes.default.svc"}},
		{name: "webhook/tls", dns: []string{webhookService + "." + ManagerNamespace + ".svc"}},
	} {
		certificate, key, err := a.Server(pair.dns...)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, pair.name+".crt"), certificate); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, pair.name+".key"), key); err != nil {
			return err
		}
	}
	_, key, err := a.Server()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "service-account.key"), key)
}
