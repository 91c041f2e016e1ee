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

// Keys of the Secret, and names of the files; cert-manager has the same. The last is SelfManaged's own.
const (
	certName  = corev1.TLSCertKey
	keyName   = corev1.TLSPrivateKeyKey
	caName    = corev1.ServiceAccountRootCAKey // ca.crt
	caKeyName = "ca.key"
)

const (
	// backdate is by how much a certificate is good before it is made, for clocks that are behind.
	backdate = time.Hour
	// disagreement is how far the clocks of this machine and of the API server may differ while this replica renews certificates. It is
	// less than backdate, so what one replica makes is valid for every other that may replace it.
	disagreement = 10 * time.Minute
)

// Common names of authorities and certificates. Nobody goes by them.
const (
	authorityName   = "butler-ipam-ca"
	certificateName = "butler-ipam"
)

// terms say for whom certificates are, and for how long.
type terms struct {
	host string
	life time.Duration // of a certificate
}

// authorityLife is how long an authority is good. It is replaced after two thirds of that, as a certificate is.
func (t terms) authorityLife() time.Duration { return 10 * t.life }

// settling is how long a new authority is trusted before it signs: time for every API server and replica to learn of it.
func (t terms) settling() time.Duration { return t.life / 20 }

// authority signs certificates, as long as it has its key.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer // nil when a newer one signs
}

func (a authority) validAt(now time.Time) bool {
	return !now.Before(a.certificate.NotBefore) && !now.After(a.certificate.NotAfter)
}

// keys are what the Secret holds.
type keys struct {
	authorities []authority      // trusted, newest first
	serving     *tls.Certificate // nil for none
}

// readKeys takes what can be read, and leaves out the rest, which is made anew.
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

// data is the Secret's.
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

// bundle is the authorities in PEM.
func (k keys) bundle() ([]byte, error) {
	var all []*x509.Certificate
	for _, a := range k.authorities {
		all = append(all, a.certificate)
	}
	return cert.EncodeCertificates(all...)
}

// renewed is what the Secret should hold at a time. It is the same as long as nothing is due.
func (k keys) renewed(now time.Time, t terms) (keys, error) {
	next := keys{serving: k.serving}
	for _, a := range k.authorities {
		if a.validAt(now) { // one that is not valid yet is made by a clock that was wrong
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

// signer is the newest authority that has settled and can sign; while there is none, the newest.
func (k keys) signer(now time.Time, t terms) (i int, settled bool) {
	for i, a := range k.authorities {
		if a.key != nil && !now.Before(t.settledAt(a.certificate)) {
			return i, true
		}
	}
	return 0, false
}

// good says whether there is a certificate that can be served.
func (k keys) good(now time.Time, t terms) bool {
	if k.serving == nil {
		return false
	}
	_, err := k.serving.Leaf.Verify(x509.VerifyOptions{
		Roots: k.pool(), DNSName: t.host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err == nil
}

// contested tells whether an authority is valid at one of two times only.
func (k keys) contested(x, y time.Time) bool {
	return slices.ContainsFunc(k.authorities, func(a authority) bool { return a.validAt(x) != a.validAt(y) })
}

// pool is the authorities.
func (k keys) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range k.authorities {
		pool.AddCert(a.certificate)
	}
	return pool
}

// nextTurn is when something is due again.
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

// dueAt is when a certificate is to be replaced, a third of its life before its end.
func (terms) dueAt(c *x509.Certificate, life time.Duration) time.Time {
	return c.NotAfter.Add(-life / 3)
}

// settledAt is when everybody has long known an authority.
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

// issue makes a certificate that does not outlive its authority. Replicas show it to one another as clients, too.
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

// sign makes a certificate with a key of its own; without an authority it signs itself.
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
