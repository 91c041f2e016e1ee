package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=list

const (
	clusterUseLimit = 2 * time.Second // bound of all reads for one warning
	nodePage        = 500
)

// clusterAddressUse finds addresses that the cluster itself uses: of Services, Pods, and
// Nodes. An object with such an address is unreachable in the cluster, and announcing the
// address would divert its traffic.
type clusterAddressUse struct {
	ledger *ledger.Ledger
	live   client.Reader
	log    logr.Logger
}

// warnNarrowed warns of a pool that moves the cluster's network, as the ledger knows it,
// from any routing domain to the default one: the addresses in use are not avoided in
// other routing domains any more.
func (u clusterAddressUse) warnNarrowed(pool ledger.Pool) []string {
	freed := u.ledger.NarrowsInUse(pool)
	if len(freed) == 0 {
		return nil
	}
	if more := len(freed) - maxNamed; more > 0 {
		freed = append(freed[:maxNamed:maxNamed], fmt.Sprintf("%d more", more))
	}
	return []string{fmt.Sprintf("pool %s is the first in the default routing domain, which is therefore taken for that of the cluster's network: addresses of Nodes, Machines and Services can be allocated in the other routing domains from now on (%s). "+
		"If the cluster is in another one, name it: flag --cluster-routing-domain, chart value clusterRoutingDomain", pool.Key, strings.Join(freed, ", "))}
}

// warnings returns at most one warning about a pool. Data that cannot be read in time is
// omitted. Pools outside the routing domain of the cluster's network are not checked; if
// nothing shows which one it is, the warning asks for its name. addressesOfNodes is
// false for a pool that may offer the addresses of Nodes, which are not allocated
// (package reconcilers/inuse).
func (u clusterAddressUse) warnings(ctx context.Context, pool ledger.Pool, addressesOfNodes bool) []string {
	if !u.ledger.AvoidsInUse(pool.RoutingDomain) || len(pool.Window) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clusterUseLimit)
	defer cancel()
	shared := &overlapList{window: pool.Window}
	if err := errors.Join(u.services(ctx, shared), u.nodes(ctx, shared, addressesOfNodes)); err != nil {
		u.log.V(1).Info("Reading the addresses that the cluster uses failed, warnings may be missing", "pool", pool.Key.String(), "error", err.Error())
	}
	if len(shared.found) == 0 {
		return nil
	}
	warning := fmt.Sprintf("pool %s offers addresses that this cluster uses itself, exclude them: %s", pool.Key, strings.Join(shared.found, ", "))
	if _, known := u.ledger.ClusterDomain(); !known && pool.RoutingDomain != "" {
		warning += fmt.Sprintf(". If routing domain %s is not that of the cluster, name that of the cluster: flag --cluster-routing-domain, chart value clusterRoutingDomain", pool.RoutingDomain)
	}
	return []string{warning}
}

func (u clusterAddressUse) services(ctx context.Context, shared *overlapList) error {
	var all networkingv1.ServiceCIDRList
	err := u.live.List(ctx, &all)
	for _, s := range all.Items {
		shared.addOverlaps("ServiceCIDR "+s.Name, s.Spec.CIDRs...)
	}
	return err
}

func (u clusterAddressUse) nodes(ctx context.Context, shared *overlapList, addresses bool) error {
	var page corev1.NodeList
	for !shared.isFull() {
		if err := u.live.List(ctx, &page, client.Limit(nodePage), client.Continue(page.Continue)); err != nil {
			return err
		}
		for i := range page.Items {
			n := &page.Items[i]
			for _, a := range n.Status.Addresses {
				if addresses {
					shared.addOverlaps("Node "+n.Name, a.Address)
				}
			}
			shared.addOverlaps("Pods of Node "+n.Name, n.Spec.PodCIDRs...)
		}
		if page.Continue == "" {
			break
		}
	}
	return nil
}

// overlapList lists addresses of a pool that the cluster uses.
type overlapList struct {
	window []allocator.Range
	found  []string
}

// addOverlaps adds networks or addresses that overlap with the pool. The addresses of a
// node include host names, which are skipped.
func (s *overlapList) addOverlaps(by string, texts ...string) {
	for _, text := range texts {
		used, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			used, err = netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
		}
		switch {
		case err != nil || s.isFull() || !slices.ContainsFunc(s.window, allocator.RangeOfPrefix(used.Masked()).Overlaps):
		case len(s.found) == maxNamed:
			s.found = append(s.found, "more")
		default:
			s.found = append(s.found, fmt.Sprintf("%s of %s", text, by))
		}
	}
}

// isFull reports whether the warning is full.
func (s *overlapList) isFull() bool { return len(s.found) > maxNamed }
