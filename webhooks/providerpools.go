package webhooks

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
)

// warnForeignPools warns of references of a ProviderConfig to NetworkPools in other
// namespaces: the field namespace is not in the schema, which keeps unknown fields, and
// the pools of tenants are in the manager's namespace.
func warnForeignPools(raw []byte, namespace string) (warnings []string) {
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
		warnings = append(warnings, fmt.Sprintf("%s: %q is ignored, the NetworkPool %q of namespace %s is used: create the pool there, and omit namespace",
			field.NewPath("spec", "network", "poolRefs").Index(i).Child("namespace"), fieldtext.Shorten(ref.Namespace), fieldtext.Shorten(ref.Name), namespace))
	}
	return warnings
}
