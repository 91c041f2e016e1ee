package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const (
	// journalPoll is the interval at which readJournal reads the journal.
	journalPoll = 500 * time.Millisecond
	// maxCreates bounds the number of namespaces in which tryCreates looks for the right
	// to create a claim.
	maxCreates = 10
)

// readJournal reads the journal until a renewal by the leader is proved, for at most
// health.JournalRenewal. Proofs of a renewal, if the Lease names a leader:
//
//   - the Lease has changed between two reads
//   - the renewal time differs from the clock of this machine by less than half of
//     health.JournalRenewal
//
// An old renewal time proves nothing, as the clocks of this machine and of the leader may
// differ.
func (n *Installation) readJournal(ctx context.Context) {
	path := []string{"apis", "coordination.k8s.io", "v1", "namespaces", n.ManagerNamespace, "leases", journal.LeaseName}
	var first, last *coordinationv1.Lease
	renewed := false
	for begun := time.Now(); !renewed; {
		lease := &coordinationv1.Lease{}
		found, read := n.get(ctx, "the journal", lease, path...)
		if !read {
			return
		}
		if last = lease; !found {
			last = nil
			break
		}
		if first == nil {
			first = lease
		}
		leader, age := ptr.Deref(lease.Spec.HolderIdentity, ""), n.Now().Sub(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time)
		renewed = leader != "" && (lease.ResourceVersion != first.ResourceVersion || age.Abs() < health.JournalRenewal/2)
		if time.Since(begun) > health.JournalRenewal {
			break
		}
		if !renewed {
			select {
			case <-ctx.Done():
				n.leaveOut("the journal", ctx.Err().Error())
				return
			case <-time.After(journalPoll):
			}
		}
	}
	n.add(func(i *inventory.Inventory) health.Report {
		return healthOf(health.CheckJournal(i, n.ManagerNamespace, last, renewed))
	})
}

func (n *Installation) readWebhooks(ctx context.Context) {
	var mutating []admissionv1.MutatingWebhookConfiguration
	var validating []admissionv1.ValidatingWebhookConfiguration
	group := []string{"apis", "admissionregistration.k8s.io", "v1"}
	if !listOf(ctx, n, "mutating webhooks", "", collect(&mutating), append(group, "mutatingwebhookconfigurations")...) ||
		!listOf(ctx, n, "validating webhooks", "", collect(&validating), append(group, "validatingwebhookconfigurations")...) {
		return
	}
	hooks := health.SelectWebhooks(mutating, validating)
	n.add(func(i *inventory.Inventory) health.Report {
		missing, passed := health.CheckWebhooks(i, hooks), ""
		if len(missing) == 0 {
			m, v := hooks.Len()
			passed = fmt.Sprintf("webhooks: %d mutating, %d validating", m, v)
		}
		return healthOf(missing, passed)
	})
	certificate := n.readCertificate(ctx)
	n.add(func(i *inventory.Inventory) health.Report {
		return healthOf(health.CheckCertificates(i, hooks, certificate))
	})
	for _, name := range hooks.Services() {
		n.readEndpoints(ctx, name)
	}
}

// readCertificate reads the certificate of the manager from the Secret named by the
// Deployment of the manager; nil if the certificate is not known.
func (n *Installation) readCertificate(ctx context.Context) []byte {
	const what = "the certificate of the manager"
	var deployments []appsv1.Deployment
	if !listOf(ctx, n, "the Deployment of the manager", health.LabelManager, collect(&deployments), "apis", "apps", "v1", "namespaces", n.ManagerNamespace, "deployments") {
		n.leaveOut(what, "its Secret is not known")
		return nil
	}
	for d := range deployments {
		n.addFindings(health.CheckPlugin(n.checks.Version, &deployments[d]), "")
		name := health.CertificateSecret(&deployments[d])
		if name == "" {
			continue
		}
		var secret corev1.Secret
		if found, read := n.get(ctx, what, &secret, "api", "v1", "namespaces", n.ManagerNamespace, "secrets", name); !found {
			if read {
				n.leaveOut(what, "there is no Secret "+name)
			}
			return nil
		}
		return secret.Data[corev1.TLSCertKey]
	}
	n.leaveOut(what, "no Deployment of the manager names its Secret")
	return nil
}

func (n *Installation) readEndpoints(ctx context.Context, name admissionv1.ServiceReference) {
	what := "endpoints of Service " + name.Namespace + "/" + name.Name
	service := &corev1.Service{}
	found, read := n.get(ctx, what, service, "api", "v1", "namespaces", name.Namespace, "services", name.Name)
	if !read {
		return
	}
	var endpoints []discoveryv1.EndpointSlice
	if !found {
		service = nil
	} else if !listOf(ctx, n, what, discoveryv1.LabelServiceName+"="+name.Name, collect(&endpoints), "apis", "discovery.k8s.io", "v1", "namespaces", name.Namespace, "endpointslices") {
		return
	}
	n.addFindings(health.CheckEndpoints(name, service, endpoints))
}

func (n *Installation) readReplicas(ctx context.Context) {
	var pods []corev1.Pod
	if listOf(ctx, n, "Pods of the manager", health.LabelManager, collect(&pods), "api", "v1", "namespaces", n.ManagerNamespace, "pods") {
		n.add(func(i *inventory.Inventory) health.Report {
			return healthOf(health.CheckReplicas(i, n.ManagerNamespace, pods, n.checks.Grace), "")
		})
	}
}

// tryCreates tries to create an IPAllocation by a dry run, which reserves nothing. The
// create is sent to the first NetworkPool that meets these conditions:
//
//   - the pool breaks no rule, and is neither being deleted nor paused
//   - the pool has free addresses
//   - the user may create IPAllocations in the namespace of the pool
func (n *Installation) tryCreates(ctx context.Context, i *inventory.Inventory) {
	forbidden := map[string]bool{} // namespace -> true
	for _, p := range i.Pools() {
		if p.Key.Resource != butler.ResourceNetworkPool || p.Fault != "" || p.Deleting || p.Paused || i.Usage(p.Key).Available == 0 || forbidden[p.Key.Namespace] {
			continue
		}
		if len(forbidden) == maxCreates {
			break
		}
		if !May(ctx, n.client, "create", inventory.Key{Resource: butler.ResourceIPAllocation, Namespace: p.Key.Namespace}) {
			forbidden[p.Key.Namespace] = true
			continue
		}
		begun := time.Now()
		switch answered, err := n.tryCreate(ctx, p); {
		case err != nil || !answered:
			n.addFindings([]health.Finding{health.NewCreateFinding(p.Key, err)}, "")
		default:
			n.addFindings(nil, fmt.Sprintf("a dry-run create in %s was answered in %s", inventory.NameOf(p.Key), time.Since(begun).Round(time.Millisecond)))
		}
		return
	}
	if len(forbidden) > 0 {
		n.leaveOut("a create", "forbidden")
	} else {
		n.leaveOut("a create", "no NetworkPool has free addresses")
	}
}

// tryCreate reports whether the response to a dry-run create in a NetworkPool contains an
// address.
func (n *Installation) tryCreate(ctx context.Context, p *inventory.Pool) (answered bool, err error) {
	body, err := json.Marshal(butlerv1.IPAllocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: butlerv1.GroupVersion.String(), Kind: "IPAllocation"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "check-", Namespace: p.Key.Namespace},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: p.Key.Name}, Type: butlerv1.TypeNodes, Count: ptr.To[int32](1),
			TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: p.Key.Namespace, Name: "check"},
		},
	})
	if err != nil {
		return false, err
	}
	raw, err := n.client.Post().AbsPath("apis", butlerv1.GroupVersion.Group, butlerv1.GroupVersion.Version, "namespaces", p.Key.Namespace, "ipallocations").
		Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return false, err
	}
	var answer butlerv1.IPAllocation
	err = json.Unmarshal(raw, &answer)
	return answer.Spec.PinnedRange != nil, err
}
