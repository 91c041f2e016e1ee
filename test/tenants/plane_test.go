package tenants

import (
	"errors"

	"butlerlabs.dev/ipam/test/sandbox"
)

// plane is a tenant's control plane, started by the first test that needs one.
var plane controlPlane

type controlPlane struct {
	*sandbox.Sandbox
}

func (p *controlPlane) stop() error {
	if p.Sandbox == nil {
		return nil
	}
	return errors.Join(p.Stop())
}
