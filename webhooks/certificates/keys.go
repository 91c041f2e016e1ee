package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret and names of the files, as in cert-manager. Only SelfManaged uses
// ca.key.
const (
	certName  = corev1.TLSCertKey
	keyName   = corev1.TLSPrivateKeyKey
	caName    = corev1.ServiceAccountRootCAKey // ca.crt
	caKeyName = "ca.key"
)

const (
	// backdate is the time before issuance at which the validity of a certificate begins,
	// for clocks that are behind.
	backdate = time.Hour
	// disagreement bounds the difference between the clocks of this machine and of the
	// API server while this replica renews certificates. Invariant: disagreement <
	// backdate, so a certificate of one replica is valid for every replica that may
	// renew.
	disagreement = 10 * time.Minute
)

// Common names of authorities and certificates. Verification does not use them.
const (
	authorityName   = "butler-ipam-ca"
	certificateName = "butler-ipam"
)

// terms are the host name and the validity of certificates.
type terms struct {
	host string
	life time.Duration // of a certificate
}

// authorityLife returns the validity of an authority. Authorities and certificates are
// replaced after two thirds of their validity.
func (t terms) authorityLife() time.Duration { return 10 * t.life }

// settling returns the time for which a new authority is trusted before it signs, so that
// every API server and replica observes the authority first.
func (t terms) settling() time.Duration { return t.life / 20 }

// authority is a trusted certificate. An authority with a key can sign.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer // nil once a newer authority signs
}

func (a authority) validAt(now time.Time) bool {
	return !now.Before(a.certificate.NotBefore) && !now.After(a.certificate.NotAfter)
}

// keys is the content of the Secret.
type keys struct {
	authorities []authority      // trusted, newest first
	serving     *tls.Certificate // nil for none
}

// readKeys decodes a Secret. Unreadable parts are omitted, and renewed issues them again.
func readKeys(data map[string][]byte) (k keys) {
	certificates, _ := cert.ParseCertsPEM(data[caName])
	signers := readSigners(data[caKeyName])
	for _, c := range certificates {
		a := authority{certificate: c}
		for _, s := range signers {
			if public, ok := s.Public().(*ecdsa.PublicKey); ok && public.Equal(c.PublicKey) {
				a.key = s
			}
		}
		if c.IsCA {
			k.authorities = append(k.authorities, a)
		}
	}
	if pair, err := tls.X509KeyPair(data[certName], data[keyName]); err == nil {
		if _, ours := pair.PrivateKey.(*ecdsa.PrivateKey); ours {
			k.serving = &pair
		}
	}
	return k
}

func readSigners(text []byte) (all []crypto.Signer) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		key, _ := keyutil.ParsePrivateKeyPEM(pem.EncodeToMemory(block))
		if signer, ok := key.(crypto.Signer); ok {
			all = append(all, signer)
		}
	}
	return all
}

// data encodes keys as the data of the Secret.
func (k keys) data() (map[string][]byte, error) {
	var signers bytes.Buffer
	for _, a := range k.authorities {
		if a.key == nil {
			continue
		}
		text, err := keyutil.MarshalPrivateKeyToPEM(a.key)
		if err != nil {
			return nil, err
		}
		signers.Write(text)
	}
	bundle, err := k.bundle()
	if err != nil {
		return nil, err
	}
	serving, err := cert.EncodeCertificates(k.serving.Leaf)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(k.serving.PrivateKey)
	return map[string][]byte{caName: bundle, caKeyName: signers.Bytes(), certName: serving, keyName: key}, err
}

// bundle returns the authorities in PEM.
func (k keys) bundle() ([]byte, error) {
	var all []*x509.Certificate
	for _, a := range k.authorities {
		all = append(all, a.certificate)
	}
	return cert.EncodeCertificates(all...)
}

// renewed returns the keys that the Secret should contain at a time. The result equals k
// while no renewal is due.
func (k keys) renewed(now time.Time, t terms) (keys, error) {
	next := keys{serving: k.serving}
	for _, a := range k.authorities {
		if a.validAt(now) { // an authority that is not valid yet was issued by a wrong clock
			next.authorities = append(next.authorities, a)
		}
	}
	if len(next.authorities) == 0 || next.authorities[0].key == nil || !now.Before(t.dueAt(next.authorities[0].certificate, t.authorityLife())) {
		a, err := newAuthority(now, t)
		if err != nil {
			return k, err
		}
		next.authorities = slices.Insert(next.authorities, 0, a)
	}
	i, settled := next.signer(now, t)
	signer := next.authorities[i]
	if !next.good(now, t) || settled && (!now.Before(t.dueAt(next.serving.Leaf, t.life)) || next.serving.Leaf.CheckSignatureFrom(signer.certificate) != nil) {
		pair, err := signer.issue(now, t)
		if err != nil {
			return k, err
		}
		next.serving = pair
	}
	if settled {
		for j := range next.authorities[i+1:] {
			next.authorities[i+1+j].key = nil
		}
	}
	return next, nil
}

// signer returns the index of the newest authority that has settled and has a key; if
// there is none, the index of the newest authority.
func (k keys) signer(now time.Time, t terms) (i int, settled bool) {
	for i, a := range k.authorities {
		if a.key != nil && !now.Before(t.settledAt(a.certificate)) {
			return i, true
		}
	}
	return 0, false
}

// good reports whether keys contains a certificate that can be served.
func (k keys) good(now time.Time, t terms) bool {
	if k.serving == nil {
		return false
	}
	_, err := k.serving.Leaf.Verify(x509.VerifyOptions{
		Roots: k.pool(), DNSName: t.host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err == nil
}

// contested reports whether an authority is valid at exactly one of two times.
func (k keys) contested(x, y time.Time) bool {
	return slices.ContainsFunc(k.authorities, func(a authority) bool { return a.validAt(x) != a.validAt(y) })
}

// pool returns the authorities as a CertPool.
func (k keys) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range k.authorities {
		pool.AddCert(a.certificate)
	}
	return pool
}

// nextTurn returns the time of the next renewal, settling or expiry.
func (k keys) nextTurn(now time.Time, t terms) time.Time {
	turns := []time.Time{t.dueAt(k.serving.Leaf, t.life), t.dueAt(k.authorities[0].certificate, t.authorityLife())}
	for _, a := range k.authorities {
		turns = append(turns, t.settledAt(a.certificate), a.certificate.NotAfter.Add(time.Second))
	}
	next := now.Add(t.life)
	for _, turn := range turns {
		if turn.After(now) && turn.Before(next) {
			next = turn
		}
	}
	return next
}

// dueAt returns the time at which a certificate is replaced: a third of its validity
// before its expiry.
func (terms) dueAt(c *x509.Certificate, life time.Duration) time.Time {
	return c.NotAfter.Add(-life / 3)
}

// settledAt returns the time from which an authority may sign: every API server and
// replica trusts the authority by then.
func (t terms) settledAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(backdate + t.settling())
}

func newAuthority(now time.Time, t terms) (authority, error) {
	template := template(authorityName, now, now.Add(t.authorityLife()))
	template.IsCA, template.MaxPathLenZero = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	certificate, key, err := sign(template, authority{})
	return authority{certificate, key}, err
}

// issue returns a certificate that expires no later than its authority. Replicas also use
// the certificate as TLS clients of each other.
func (a authority) issue(now time.Time, t terms) (*tls.Certificate, error) {
	end := now.Add(t.life)
	if a.certificate.NotAfter.Before(end) {
		end = a.certificate.NotAfter
	}
	template := template(certificateName, now, end)
	template.DNSNames = []string{t.host}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf, key, err := sign(template, a)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func template(name string, now, end time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
}

// sign returns a certificate with a new key. Without an authority the certificate is
// self-signed.
func sign(template *x509.Certificate, by authority) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if by.certificate == nil {
		by = authority{template, key}
	}
	if by.key == nil {
		return nil, nil, errors.New("an authority without a key cannot sign")
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, key.Public(), by.key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}
