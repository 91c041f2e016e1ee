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

// The rights to read this are in config/rbac/novaedge_role.yaml.
const (
	clusterUseLimit = 2 * time.Second // for all reads: a warning is not worth more
	nodePage        = 500
)

// clusterUse knows what the cluster uses for itself: the addresses of its Services, of its nodes, and of the Pods on them. Whoever announces one
// of those takes it away from there.
type clusterUse struct {
	live client.Reader
	log  logr.Logger
}

// warnings about a pool: one at most. They are advice, so what cannot be read in time is left out. A routing domain of its own is not the
// cluster's.
func (u clusterUse) warnings(ctx context.Context, pool ledger.Pool) []string {
	if pool.Space != "" || len(pool.Window) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clusterUseLimit)
	defer cancel()
	shared := &sharedUse{window: pool.Window}
	if err := errors.Join(u.services(ctx, shared), u.nodes(ctx, shared)); err != nil {
		u.log.V(1).Info("What the cluster uses for itself cannot be read: no warning tells of it", "pool", pool.Key.String(), "error", err.Error())
	}
	if len(shared.found) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("pool %s offers addresses that this cluster uses for itself, leave them out: %s", pool.Key, strings.Join(shared.found, ", "))}
}

func (u clusterUse) services(ctx context.Context, shared *sharedUse) error {
	var all networkingv1.ServiceCIDRList
	err := u.live.List(ctx, &all)
	for _, s := range all.Items {
		shared.see("ServiceCIDR "+s.Name, s.Spec.CIDRs...)
	}
	return err
}

func (u clusterUse) nodes(ctx context.Context, shared *sharedUse) error {
	var page corev1.NodeList
	for !shared.enough() {
		if err := u.live.List(ctx, &page, client.Limit(nodePage), client.Continue(page.Continue)); err != nil {
			return err
		}
		for i := range page.Items {
			n := &page.Items[i]
			for _, a := range n.Status.Addresses {
				shared.see("Node "+n.Name, a.Address)
			}
			shared.see("Pods of Node "+n.Name, n.Spec.PodCIDRs...)
		}
		if page.Continue == "" {
			break
		}
	}
	return nil
}

// sharedUse is what of a pool's addresses the cluster uses, in words.
type sharedUse struct {
	window []allocator.Range
	found  []string
}

// see takes in networks, or addresses, that something of the cluster uses. A node also has addresses that are names: they are left out.
func (s *sharedUse) see(by string, texts ...string) {
	for _, text := range texts {
		used, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			used, err = netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
		}
		switch {
		case err != nil || s.enough() || !slices.ContainsFunc(s.window, allocator.RangeOfPrefix(used.Masked()).Overlaps):
		case len(s.found) == maxNamed:
			s.found = append(s.found, "more")
		default:
			s.found = append(s.found, fmt.Sprintf("%s of %s", text, by))
		}
	}
}

// enough says that no more fits into a warning.
func (s *sharedUse) enough() bool { return len(s.found) > maxNamed }
