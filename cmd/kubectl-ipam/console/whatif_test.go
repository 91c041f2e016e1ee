package console

import (
	"strings"
	"testing"
)

// The page of a change that breaks a rule, or that changes nothing, has only the rule or
// this fact, and no owner that would leave the pool.
func TestPlan_WithoutEffect(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	for name, test := range map[string]struct {
		change, text string
		free         bool // the page has the numbers of free addresses
	}{
		"network outside of cidr": {"reserve=10.99.0.0/24", "<li>spec.reserved[1].cidr: ", false},
		"smaller network":         {"cidr=10.40.0.0/27", "<li>spec.cidr: Forbidden: may grow but never shrink", false},
		"reserved already":        {"reserve=10.40.0.0/29", "The change has no effect: the pool has these values already.", true},
		"accepted":                {"cidr=10.40.0.0/25", "The change would be accepted.", true},
	} {
		page := mainOf(mustGet(t, h, "/plan?"+test.change+"&"+vlan40))
		if !strings.Contains(page, test.text) || strings.Contains(page, "Free addresses: ") != test.free || strings.Contains(page, "Owners of these addresses") {
			t.Errorf("%s: %s", name, page)
		}
	}
}
