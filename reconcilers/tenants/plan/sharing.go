package plan

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// sharing is what MetalLB compares before two Services get one address: equal keys, no
// common port and, for external traffic policy Local, equal selectors.
type sharing struct {
	key, selector string
	ports         []string // protocol/number
}

func sharingOf(s *corev1.Service) sharing {
	sh := sharing{key: readAnnotation(s, metallbSharing)}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		sh.selector = labels.Set(s.Spec.Selector).String()
	}
	for _, p := range s.Spec.Ports {
		sh.ports = append(sh.ports, string(p.Protocol)+"/"+strconv.Itoa(int(p.Port)))
	}
	return sh
}

// maxComparedPorts bounds the ports that are compared. After the bound each further
// Service counts as needing an address of its own.
const maxComparedPorts = 1 << 20

// sharingGroup are Services that may share addresses if their ports differ.
type sharingGroup struct {
	addresses []map[string]bool // address -> ports in use
	full      map[string]int    // port -> number of addresses, from the first, that all use the port
}

// countAddressesFor returns how many addresses waiting Services need: an address each, or
// one for several Services with sharing. As in MetalLB, a Service gets the first address
// with free ports.
func countAddressesFor(waiting []Service) (count int32) {
	compared := 0
	groups := map[[2]string]*sharingGroup{} // key and selector -> group
	for _, s := range waiting {
		if s.sharing.key == "" || compared >= maxComparedPorts {
			count++
			continue
		}
		id := [2]string{s.sharing.key, s.sharing.selector}
		if groups[id] == nil {
			groups[id] = &sharingGroup{full: map[string]int{}}
		}
		if groups[id].addService(s.sharing.ports, &compared) {
			count++
		}
	}
	return count
}

// addService assigns ports to the first address with these ports free, and reports
// whether the address is new. compared counts compared ports.
func (g *sharingGroup) addService(ports []string, compared *int) (isNew bool) {
	at := 0
	for _, port := range ports {
		at = max(at, g.full[port])
	}
	for at < len(g.addresses) && slices.ContainsFunc(ports, func(port string) bool { *compared++; return g.addresses[at][port] }) {
		at++
	}
	if at == len(g.addresses) {
		g.addresses = append(g.addresses, map[string]bool{})
		isNew = true
	}
	for _, port := range ports {
		g.addresses[at][port] = true
		for g.full[port] < len(g.addresses) && g.addresses[g.full[port]][port] {
			g.full[port]++
		}
	}
	return isNew
}
