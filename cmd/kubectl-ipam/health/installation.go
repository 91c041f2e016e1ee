package health

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// LabelManager selects the objects of the manager by a label: pods, Deployment and
// webhook configurations.
const LabelManager = "app.kubernetes.io/name=butler-ipam"

// labelVersion is the label with the release, on the objects rendered by a chart.
const labelVersion = "app.kubernetes.io/version"

const (
	// expiresSoon is the remaining life below which a certificate is reported, unless a
	// quarter of its total life is shorter: then a quarter. Certificates are renewed
	// earlier.
	expiresSoon = 30 * 24 * time.Hour
	// certificateReadme refers to the explanation of the certificates.
	certificateReadme = "see Certificates in the README of the chart"
)

// JournalRenewal is longer than the interval between two renewals of the journal by a
// leader: after JournalRenewal without a renewal, no replica leads.
const JournalRenewal = 6 * time.Second

// CheckJournal checks the Lease with the journal; nil means that the Lease does not
// exist. renewed reports that a leader has renewed the Lease recently, or during a watch
// for JournalRenewal. passed describes the leader if there is no finding.
func CheckJournal(i *inventory.Inventory, namespace string, lease *coordinationv1.Lease, renewed bool) (list []Finding, passed string) {
	pods := "kubectl -n " + namespace + " get pods -l " + LabelManager + ", then their log"
	if lease == nil {
		return []Finding{newFinding(NoLeader, nil, "start the manager; if it runs in another namespace, name that with --manager-namespace",
			"there is no Lease %s in namespace %s", journal.LeaseName, namespace)}, ""
	}
	renewTime := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
	unrenewed := max(0, i.Now().Sub(renewTime))
	v, err := journal.DecodeLease(lease)
	switch {
	case errors.Is(err, journal.ErrFormat):
		list = append(list, newFinding(JournalUnreadable, nil, "upgrade the manager and this command to the release that wrote the journal", "%v", err))
	case err != nil:
		list = append(list, newFinding(JournalUnreadable, nil, "as the message says; the manager grants nothing until then", "%v", err))
	}
	if !renewed {
		by := "by no replica"
		if v.Leader != "" {
			by = "by " + leaderName(v.Leader)
		}
		list = append(list, newFinding(NoLeader, nil, pods, "the journal is not renewed; last at %s %s", renewTime.UTC().Format(time.RFC3339), by))
		list = append(list, checkGrants(i, v.Entries, unrenewed)...)
	}
	if v.Quarantine {
		list = append(list, newFinding(JournalLost, nil, "wait for two minutes after the start of a leader: then the flag is removed. Unless this is the first start of a manager in this namespace, find out what deleted or emptied the Lease",
			"the Lease %s/%s is new, or was deleted or emptied, although pools or claims are stored: it may lack the grants of creates in flight", namespace, journal.LeaseName))
	}
	if len(list) == 0 {
		passed = fmt.Sprintf("leader %s, journal renewed at %s", leaderName(v.Leader), renewTime.UTC().Format(time.RFC3339))
	}
	return list, passed
}

// leaderName returns the name of the replica in an identity, see package journal.
func leaderName(identity string) string {
	name, _, _ := strings.Cut(identity, "@")
	return name
}

// hook is a mutating or a validating webhook.
type hook struct {
	name   string // of the webhook
	client admissionv1.WebhookClientConfig
}

// expectedHooks maps an API group to the names of its webhooks: mutating, then
// validating.
var expectedHooks = map[string][2][]string{
	"butler.butlerlabs.dev": {
		{"first.ipallocation.butler.butlerlabs.dev", "ipallocation.butler.butlerlabs.dev", "networkpool.butler.butlerlabs.dev"},
		{"ipallocation.butler.butlerlabs.dev", "networkpool.butler.butlerlabs.dev", "delete.networkpool.butler.butlerlabs.dev"},
	},
	"novaedge.io": {
		{"first.proxyvip.novaedge.io", "proxyvip.novaedge.io", "proxyippool.novaedge.io"},
		{"proxyvip.novaedge.io", "proxyippool.novaedge.io", "delete.proxyippool.novaedge.io"},
	},
	"ipam.metal3.io": {
		{"first.ipclaim.ipam.metal3.io", "ipclaim.ipam.metal3.io", "ippool.ipam.metal3.io", "first.ipaddress.ipam.metal3.io", "ipaddress.ipam.metal3.io"},
		{"ipclaim.ipam.metal3.io", "ipaddress.ipam.metal3.io", "ippool.ipam.metal3.io"},
	},
	"ipam.cluster.x-k8s.io": {
		{"first.ipaddressclaim.ipam.cluster.x-k8s.io", "ipaddressclaim.ipam.cluster.x-k8s.io", "first.ipaddress.ipam.cluster.x-k8s.io", "ipaddress.ipam.cluster.x-k8s.io"},
		{"ipaddressclaim.ipam.cluster.x-k8s.io", "ipaddress.ipam.cluster.x-k8s.io"},
	},
}

// Webhooks contains the stored webhooks of the manager.
type Webhooks struct {
	mutating, validating []hook
}

// SelectWebhooks selects the webhooks of the manager by name.
func SelectWebhooks(mutating []admissionv1.MutatingWebhookConfiguration, validating []admissionv1.ValidatingWebhookConfiguration) (w Webhooks) {
	isOurs := func(kind int, name string) bool {
		for _, expected := range expectedHooks {
			if slices.Contains(expected[kind], name) {
				return true
			}
		}
		return false
	}
	for _, configuration := range mutating {
		for _, h := range configuration.Webhooks {
			if isOurs(0, h.Name) {
				w.mutating = append(w.mutating, hook{h.Name, h.ClientConfig})
			}
		}
	}
	for _, configuration := range validating {
		for _, h := range configuration.Webhooks {
			if isOurs(1, h.Name) {
				w.validating = append(w.validating, hook{h.Name, h.ClientConfig})
			}
		}
	}
	return w
}

// Len returns the numbers of mutating and validating webhooks.
func (w Webhooks) Len() (mutating, validating int) { return len(w.mutating), len(w.validating) }

// CheckWebhooks lists the missing webhooks. The webhooks of an API group are expected if
// one of these is stored:
//
//   - a claim of the group
//   - a webhook of the group
func CheckWebhooks(i *inventory.Inventory, w Webhooks) (list []Finding) {
	const remedy = "install the webhook configurations again: helm upgrade with the values of the release"
	used := map[string]bool{}
	for _, c := range i.Stored() {
		if _, group, _ := strings.Cut(c.Key.Resource, "."); c.Pool != (inventory.Key{}) { // without a pool: an IPAddress of another provider
			used[group] = true
		}
	}
	for group, expected := range expectedHooks {
		for _, h := range slices.Concat(w.mutating, w.validating) {
			used[group] = used[group] || slices.Contains(expected[0], h.name) || slices.Contains(expected[1], h.name)
		}
	}
	for kind, stored := range [][]hook{w.mutating, w.validating} {
		title := []string{"mutating", "validating"}[kind]
		if len(stored) == 0 {
			list = append(list, newFinding(ConfigurationMissing, nil, remedy, "there is no %s webhook of Butler IPAM: %s", title, []string{
				"a create is answered without addresses, which follow later", "invalid claims and pools are stored",
			}[kind]))
			continue
		}
		for _, group := range slices.Sorted(maps.Keys(expectedHooks)) {
			for _, name := range expectedHooks[group][kind] {
				if used[group] && !slices.ContainsFunc(stored, func(h hook) bool { return h.name == name }) {
					list = append(list, newFinding(WebhookMissing, nil, remedy, "the %s webhook %s is missing", title, name))
				}
			}
		}
	}
	return list
}

// Services lists the Services through which the API server calls the webhooks.
func (w Webhooks) Services() (services []admissionv1.ServiceReference) {
	for _, h := range slices.Concat(w.mutating, w.validating) {
		if s := h.client.Service; s != nil && !slices.ContainsFunc(services, func(o admissionv1.ServiceReference) bool { return o.Namespace == s.Namespace && o.Name == s.Name }) {
			services = append(services, *s)
		}
	}
	return services
}

// CheckCertificates checks the caBundle of each webhook and the certificate of the
// manager. serving is the certificate of the manager in PEM; nil if not known. passed
// describes the certificates if there is no finding.
func CheckCertificates(i *inventory.Inventory, w Webhooks, serving []byte) (list []Finding, passed string) {
	leaf, intermediates := parseServing(serving)
	until := time.Time{}
	seen := map[string]bool{}
	for _, h := range slices.Concat(w.mutating, w.validating) {
		if seen[string(h.client.CABundle)] {
			continue
		}
		seen[string(h.client.CABundle)] = true
		authorities := parseCertificates(h.client.CABundle)
		if len(authorities) == 0 {
			list = append(list, newFinding(WrongBundle, nil, certificateReadme+": who fills caBundle", "webhook %s has no certificate authority in caBundle", h.name))
			continue
		}
		newest := slices.MaxFunc(authorities, func(x, y *x509.Certificate) int { return x.NotAfter.Compare(y.NotAfter) })
		list = append(list, checkExpiry(i, "the certificate authority of webhook "+h.name, newest)...)
		until = earlier(until, newest.NotAfter)
		if leaf == nil {
			continue
		}
		if err := verify(leaf, intermediates, authorities, h.client.Service, i.Now()); err != nil && i.Now().Before(leaf.NotAfter) && i.Now().Before(newest.NotAfter) {
			list = append(list, newFinding(WrongBundle, nil, certificateReadme+": caBundle must have the authority of the certificate", "the caBundle of webhook %s does not trust the certificate of the manager: %v", h.name, err))
		}
	}
	if leaf != nil {
		list = append(list, checkExpiry(i, "the certificate of the manager", leaf)...)
		until = earlier(until, leaf.NotAfter)
	} else if len(serving) > 0 {
		list = append(list, newFinding(WrongBundle, nil, certificateReadme, "the Secret of the manager has no readable certificate in tls.crt"))
	}
	if len(list) == 0 && !until.IsZero() {
		passed = "certificates valid until " + until.UTC().Format(time.DateOnly)
	}
	return list, passed
}

func earlier(x, y time.Time) time.Time {
	if x.IsZero() || y.Before(x) {
		return y
	}
	return x
}

// checkExpiry reports a certificate that has expired or expires soon.
func checkExpiry(i *inventory.Inventory, what string, c *x509.Certificate) []Finding {
	left, at := c.NotAfter.Sub(i.Now()), c.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case left <= 0:
		return []Finding{newFinding(CertificateExpired, nil, "renew it: "+certificateReadme, "%s has expired at %s", what, at)}
	case left < min(expiresSoon, c.NotAfter.Sub(c.NotBefore)/4):
		return []Finding{newFinding(CertificateExpires, nil, "find out why it is not renewed: "+certificateReadme, "%s expires at %s", what, at)}
	}
	return nil
}

// verify returns the reason why an API server does not trust a certificate; nil for a
// trusted certificate.
func verify(leaf *x509.Certificate, intermediates, authorities []*x509.Certificate, service *admissionv1.ServiceReference, now time.Time) error {
	options := x509.VerifyOptions{Roots: poolOf(authorities), Intermediates: poolOf(intermediates), CurrentTime: now}
	if service != nil {
		options.DNSName = service.Name + "." + service.Namespace + ".svc"
	}
	_, err := leaf.Verify(options)
	return err
}

func poolOf(certificates []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}

// parseServing returns the certificate of a server and the following certificates in a
// PEM text; nil without a readable certificate.
func parseServing(text []byte) (leaf *x509.Certificate, intermediates []*x509.Certificate) {
	if all := parseCertificates(text); len(all) > 0 {
		return all[0], all[1:]
	}
	return nil, nil
}

// parseCertificates returns the readable certificates of a PEM text.
func parseCertificates(text []byte) (list []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			list = append(list, c)
		}
	}
	return list
}

// CertificateSecret returns the name of the Secret with the certificate served by a
// Deployment of the manager; "" if not known.
func CertificateSecret(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, argument := range c.Args {
			if name, is := strings.CutPrefix(argument, "--webhook-cert-secret="); is {
				return name
			}
		}
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Name == "tls" && v.Secret != nil {
			return v.Secret.SecretName
		}
	}
	return ""
}

// CheckEndpoints checks a Service of the webhooks; nil means that the Service does not
// exist. passed describes the endpoints if there is no finding.
func CheckEndpoints(name admissionv1.ServiceReference, service *corev1.Service, endpoints []discoveryv1.EndpointSlice) (list []Finding, passed string) {
	if service == nil {
		return []Finding{newFinding(NoEndpoint, nil, "install the Service again: helm upgrade with the values of the release", "Service %s/%s of the webhooks does not exist", name.Namespace, name.Name)}, ""
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, "webhooks at " + service.Spec.ExternalName
	}
	ready := 0
	for _, slice := range endpoints {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				ready++
			}
		}
	}
	if ready == 0 {
		return []Finding{newFinding(NoEndpoint, nil, "kubectl -n "+name.Namespace+" get pods -l "+LabelManager+", then describe those that are not ready",
			"Service %s/%s of the webhooks has no ready endpoint", name.Namespace, name.Name)}, ""
	}
	return nil, fmt.Sprintf("ready endpoints behind the webhooks: %d", ready)
}

// CheckReplicas reports different images of the pods of the manager if the youngest pod
// is older than grace: a rollout that does not end.
func CheckReplicas(i *inventory.Inventory, namespace string, pods []corev1.Pod, grace time.Duration) []Finding {
	images := map[string]bool{}
	youngest := time.Time{}
	for n := range pods {
		for _, container := range pods[n].Spec.Containers {
			if container.Name == "manager" {
				images[container.Image] = true
			}
		}
		if created := pods[n].CreationTimestamp.Time; created.After(youngest) {
			youngest = created
		}
	}
	if len(images) < 2 || i.Now().Sub(youngest) < grace {
		return nil
	}
	return []Finding{newFinding(ReplicasDiffer, nil, "finish the upgrade: kubectl -n "+namespace+" rollout status deployment -l "+LabelManager,
		"replicas of several images run: %s", strings.Join(slices.Sorted(maps.Keys(images)), ", "))}
}

// CheckPlugin compares the version of this command with the version of the Deployment of
// the manager: different minor releases may count differently. A version that is not
// semantic, such as the version of a build without a tag, is not compared.
func CheckPlugin(own string, d *appsv1.Deployment) []Finding {
	theirs := d.Labels[labelVersion]
	if theirs == "" {
		for _, c := range d.Spec.Template.Spec.Containers {
			if at := strings.LastIndex(c.Image, ":"); c.Name == "manager" && at > 0 {
				theirs = c.Image[at+1:]
			}
		}
	}
	x, err1 := version.ParseSemantic(own)
	y, err2 := version.ParseSemantic(theirs)
	if err1 != nil || err2 != nil || x.Major() == y.Major() && x.Minor() == y.Minor() {
		return nil
	}
	return []Finding{newFinding(PluginDiffers, nil, "use kubectl-ipam of release "+theirs, "this command is of release %s, the manager of %s: they may count differently", own, theirs)}
}

// NewCreateFinding reports a failed create in a pool, tried by a dry run. err is nil if
// the response has no address.
func NewCreateFinding(pool inventory.Key, err error) Finding {
	if err != nil {
		return newFinding(CreateFails, []inventory.Key{pool}, "correct what the message names; then see the log of the manager", "a create in %s fails: %v", inventory.TitleOf(pool), err)
	}
	return newFinding(CreateFails, []inventory.Key{pool}, "check that the API server can call the mutating webhooks of Butler IPAM: IPAM402, IPAM404, IPAM407",
		"a create in %s was answered without an address: no mutating webhook has answered", inventory.TitleOf(pool))
}
