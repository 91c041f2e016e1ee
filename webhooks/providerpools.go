package webhooks

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

// foreignPools warns of references to NetworkPools, in a ProviderConfig, that name another namespace: the schema keeps fields that it does not have, and the
// pools of tenants are in the manager's namespace.
func foreignPools(raw []byte, namespace string) (warnings []string) {
	var config struct {
		Spec struct {
			Network struct {
				PoolRefs []struct{ Name, Namespace string }
			}
		}
	}
	if json.Unmarshal(raw, &config) != nil {
		return nil
	}
	for i, ref := range config.Spec.Network.PoolRefs {
		if ref.Namespace == "" || ref.Namespace == namespace {
			continue
		}
		if len(warnings) == maxNamed {
			break
		}
		warnings = append(warnings, fmt.Sprintf("%s: %q does not count, the NetworkPool %q of namespace %s is meant: create the pool there, and leave namespace out",
			field.NewPath("spec", "network", "poolRefs").Index(i).Child("namespace"), fields.Short(ref.Namespace), fields.Short(ref.Name), namespace))
	}
	return warnings
}
