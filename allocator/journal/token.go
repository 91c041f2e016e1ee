package journal

import (
	"encoding/base64"
	"fmt"
)

// Token identifies one grant, or the ranges that one pool update withholds: 96 random
// bits. The token of a grant is written into the claim together with the ranges. An
// observed claim is matched with its grant by the token. The zero Token means none.
type Token [12]byte

// ParseToken parses the result of String. The empty string is the zero Token.
func ParseToken(s string) (Token, error) {
	var t Token
	if s == "" {
		return t, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(t) {
		return t, fmt.Errorf("grant token %.40q is not %d characters of unpadded base64url", s, base64.RawURLEncoding.EncodedLen(len(t)))
	}
	copy(t[:], b)
	return t, nil
}

// IsZero reports whether t means no token.
func (t Token) IsZero() bool { return t == Token{} }

// String returns 16 characters of base64url, or "" for the zero Token.
func (t Token) String() string {
	if t.IsZero() {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(t[:])
}
