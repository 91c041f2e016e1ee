package report

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Claim is a claim of any kind.
type Claim struct {
	Object
	Pool          *Object   `json:"pool,omitempty"`
	RoutingDomain string    `json:"routingDomain,omitempty"`
	Ranges        []string  `json:"ranges"`
	Count         int64     `json:"count"`
	Digits        Digits    `json:"exact,omitempty"`
	Tenant        string    `json:"tenant,omitempty"`
	Team          string    `json:"team,omitempty"`
	Purpose       string    `json:"purpose"`
	Origin        string    `json:"origin,omitempty"`
	State         string    `json:"state"`
	Reason        string    `json:"reason,omitempty"`
	Created       time.Time `json:"created"`

	// Age is the time since Created, in words.
	Age string `json:"-"`
	// Exact contains Ranges for sizes without saturation.
	Exact []allocator.Range `json:"-"`
}

// NewClaim returns a claim with its age at the time now.
func NewClaim(c *inventory.Claim, now time.Time) Claim {
	return Claim{
		Object: *NewObject(c.Key), Pool: NewObject(c.Pool), RoutingDomain: c.Domain, Ranges: RangeTexts(c.Ranges), Count: allocator.Total(c.Ranges),
		Tenant: c.Tenant, Team: c.Team, Purpose: string(c.Purpose), Origin: c.Origin, State: string(c.State), Reason: c.Reason, Created: c.Created.UTC(),
		Digits: DigitsOf("count", c.Ranges...), Exact: c.Ranges, Age: duration.HumanDuration(now.Sub(c.Created)),
	}
}
