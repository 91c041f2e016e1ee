package kubeconfig

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
)

// maxBits is how long the numbers of an RSA key may be, as in crypto/tls for those of a server. Reading a private key takes eight times as long for
// each doubling, hours for what a kubeconfig has room for; and so, in part, does checking a signature with a public one.
const maxBits = 8192

// oversized tells whether a certificate or a private key in PEM has a number of more than maxBits, before anything computes with it.
func oversized(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			if oversizedKey(block.Bytes) {
				return true
			}
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxBits {
				return true
			}
		}
	}
	return false
}

// oversizedKey reads a key of PKCS #1, or of PKCS #8, which has such a one in an OCTET STRING. What it cannot read is not much larger than a number.
func oversizedKey(der []byte) bool {
	const most = maxBits/8 + 1
	for range 2 {
		var parts []asn1.RawValue
		if _, err := asn1.Unmarshal(der, &parts); err != nil {
			return len(der) > most
		}
		der = nil
		for _, p := range parts {
			switch {
			case p.Tag == asn1.TagOctetString && der == nil:
				der = p.Bytes
			case len(p.Bytes) > most:
				return true
			}
		}
	}
	return len(der) > most
}
