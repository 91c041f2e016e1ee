package kubeconfig

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
)

// maxKeyBits bounds the numbers of an RSA key, as crypto/tls does for server keys.
// Reading a private key takes eight times as long for each doubling of the length: hours
// for a key of the size of a kubeconfig. Checking a signature with a public key is slow
// too.
const maxKeyBits = 8192

// hasOversizedKey reports whether a certificate or private key in PEM has a number of
// more than maxKeyBits. No computation with the numbers is made.
func hasOversizedKey(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			if isOversizedKey(block.Bytes) {
				return true
			}
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxKeyBits {
				return true
			}
		}
	}
	return false
}

// isOversizedKey reads a key of PKCS #1, or of PKCS #8, which wraps a PKCS #1 key in an
// OCTET STRING. Other data is oversized if longer than one number.
func isOversizedKey(der []byte) bool {
	const maxBytes = maxKeyBits/8 + 1
	for range 2 {
		var parts []asn1.RawValue
		if _, err := asn1.Unmarshal(der, &parts); err != nil {
			return len(der) > maxBytes
		}
		der = nil
		for _, p := range parts {
			switch {
			case p.Tag == asn1.TagOctetString && der == nil:
				der = p.Bytes
			case len(p.Bytes) > maxBytes:
				return true
			}
		}
	}
	return len(der) > maxBytes
}
