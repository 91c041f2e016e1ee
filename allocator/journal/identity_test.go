package journal

import (
	"regexp"
	"testing"
)

func TestNewIdentity_DiffersForEachProcess(t *testing.T) {
	t.Parallel()
	a, b := NewIdentity("pod-1", "10.1.2.3:9443"), NewIdentity("pod-1", "10.1.2.3:9443")
	if a == b || !regexp.MustCompile(`^pod-1@10\.1\.2\.3:9443_[A-Z0-9]{8}$`).MatchString(a) {
		t.Errorf("identities %q and %q", a, b)
	}
}

func TestAddressOf_ReturnsTheAddressOfTheIdentity(t *testing.T) {
	t.Parallel()
	for identity, want := range map[string]string{
		NewIdentity("pod-1", "10.1.2.3:9443"): "10.1.2.3:9443",
		NewIdentity("pod_1", "[fd00::1]:443"): "[fd00::1]:443",
		"no-address":                          "",
		"":                                    "",
	} {
		if got := AddressOf(identity); got != want {
			t.Errorf("address of %q is %q, want %q", identity, got, want)
		}
	}
}
