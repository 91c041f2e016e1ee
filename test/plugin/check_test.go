package plugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

type finding struct {
	ID, Severity, Title, Message, Remedy string
	Objects                              []owner
}

type checked struct {
	APIVersion, Kind   string
	Passed, NotChecked []string
	Findings           []finding
}

// ids returns the distinct identifiers of findings.
func (c checked) ids() (ids []string) {
	for _, f := range c.Findings {
		ids = append(ids, f.ID)
	}
	return slices.Compact(ids)
}

// checkedCluster is a cluster for planted defects.
type checkedCluster struct {
	*sandbox.Sandbox
	client client.WithWatch
	ns     string
	found  map[string]bool // identifiers of the findings so far
}

func (s *checkedCluster) check(t *testing.T, args ...string) checked {
	t.Helper()
	c := decodedFrom[checked](t, s.Kubeconfig(), append([]string{"check", "--grace", "0s"}, args...)...)
	for _, f := range c.Findings {
		s.found[f.ID] = true
		if f.Message == "" || f.Remedy == "" || f.Title == "" || f.Severity != "error" && f.Severity != "warning" {
			t.Errorf("incomplete finding: %+v", f)
		}
	}
	return c
}

// finds waits until the identifiers of the findings equal want.
func (s *checkedCluster) finds(t *testing.T, args []string, want ...string) (c checked) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if c = s.check(t, args...); !slices.Equal(c.ids(), want) {
			return fmt.Errorf("findings %v, want %v: %+v", c.ids(), want, c)
		}
		return nil
	})
	return c
}

// A healthy cluster has no finding. The check reports each planted defect, and no further
// finding. The subtests are steps on one cluster.
func TestCheck(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s := &checkedCluster{found: map[string]bool{}}
	s.Sandbox, s.client = suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	s.ns = suite.CreateNamespace(t, s.client)
	for n, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, s.client)
		suite.Create(t, s.client, kind.Pool(ns, fmt.Sprintf("10.7%d.0.0", n), fmt.Sprintf("10.7%d.0.99", n)))
		for i := range 3 {
			suite.Create(t, s.client, kind.Claim(ns, fmt.Sprintf("claim-%d", i), ""))
		}
	}
	for _, step := range []struct {
		name string
		run  func(*checkedCluster, *testing.T)
	}{
		{"healthy", (*checkedCluster).healthy},
		{"webhooks", (*checkedCluster).webhooks},
		{"certificates", (*checkedCluster).certificates},
		{"versions", (*checkedCluster).versions},
		{"journal", (*checkedCluster).journal},
		{"objects", (*checkedCluster).objects},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			return
		}
	}
	for _, d := range health.Defects() {
		if !s.found[d.ID] {
			t.Errorf("%s was never found: %s", d.ID, d.Title)
		}
	}
}

func (s *checkedCluster) healthy(t *testing.T) {
	c := s.finds(t, nil)
	for _, want := range []string{"leader manager-1, journal renewed at ", "webhooks: 15 mutating, 11 validating", "certificates valid until ", "a dry-run create in "} {
		if !slices.ContainsFunc(c.Passed, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("no line with %q: %q", want, c.Passed)
		}
	}
	if c.APIVersion != "kubectl-ipam.butlerlabs.dev/v1" || c.Kind != "Check" {
		t.Errorf("%s, %s", c.APIVersion, c.Kind)
	}
	if r := run(t, s.Kubeconfig(), "check"); r.code != 0 || !regexp.MustCompile(`ok a dry-run create in \S+ was answered in [\d.]+m?s\n`).MatchString(r.stdout) || !strings.Contains(r.stdout, "ok no finding: 15 claims and 5 pools checked\n") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	for _, args := range [][]string{{"--only", "nothing"}, {"--grace", "-1s"}, {"--kubeconfig", "/nowhere"}, {"--server", "https://127.0.0.1:1"}} {
		if r := run(t, s.Kubeconfig(), append([]string{"check"}, args...)...); r.code != 2 {
			t.Errorf("%v: exit code %d, want 2: %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
}

var installation = []string{"--only", "installation"}

// changeWebhooks changes the stored mutating webhooks, and returns a function that
// restores the webhooks.
func (s *checkedCluster) changeWebhooks(t *testing.T, change func([]admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook) (restore func()) {
	t.Helper()
	o := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "zz-butler-ipam"}}
	var before []admissionregistrationv1.MutatingWebhook
	set := func(f func([]admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook) {
		suite.Change(t, s.client, o, func(o *admissionregistrationv1.MutatingWebhookConfiguration) {
			if before == nil {
				before = o.DeepCopy().Webhooks
			}
			o.Webhooks = f(o.Webhooks)
		})
	}
	set(change)
	return func() {
		set(func([]admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			return before
		})
		s.finds(t, nil)
	}
}

func (s *checkedCluster) webhooks(t *testing.T) {
	isOfAllocations := func(w admissionregistrationv1.MutatingWebhook) bool { return strings.Contains(w.Name, "ipallocation.") }
	restore := s.changeWebhooks(t, func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
		return slices.DeleteFunc(all, isOfAllocations)
	})
	c := s.finds(t, nil, "IPAM402", "IPAM406") // the dry-run create succeeds without an address
	if len(c.Findings) != 3 {
		t.Errorf("two webhooks and a create: %+v", c.Findings)
	}
	restore()

	service := func(name string) func([]admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
		return func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			for n := range all {
				all[n].ClientConfig.Service.Name, all[n].TimeoutSeconds = name, new(int32(1))
			}
			return all
		}
	}
	restore = s.changeWebhooks(t, service("missing"))
	s.finds(t, nil, "IPAM404", "IPAM406")
	restore()
	idle := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: "idle"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: "idle", Labels: map[string]string{discoveryv1.LabelServiceName: "idle"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(bool)}}},
	}
	suite.Create(t, s.client, idle, slice)
	restore = s.changeWebhooks(t, service("idle"))
	s.finds(t, nil, "IPAM404", "IPAM406")
	suite.Change(t, s.client, slice, func(slice *discoveryv1.EndpointSlice) { slice.Endpoints[0].Conditions.Ready = new(true) })
	s.finds(t, nil, "IPAM406") // an endpoint exists, but no process listens on its port
	restore()

	restore = s.changeWebhooks(t, func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
		all[0].ClientConfig.CABundle = nil
		return all
	})
	s.finds(t, nil, "IPAM403")
	restore()

	validating := suite.Read(t, s.client, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam"}})
	suite.Delete(t, s.client, validating)
	s.finds(t, nil, "IPAM407")
	validating.ResourceVersion = ""
	suite.Create(t, s.client, validating)
	s.finds(t, nil)
}

// authority signs certificates of the Service of the webhooks.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T, ends time.Time) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, certificate: &x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "test"}}}
	text := a.sign(t, a.certificate, ends)
	block, _ := pem.Decode(text)
	if a.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// sign returns a certificate that is valid in the ten years before ends.
func (a *authority) sign(t *testing.T, template *x509.Certificate, ends time.Time) []byte {
	t.Helper()
	template.SerialNumber, template.NotBefore, template.NotAfter, template.BasicConstraintsValid = big.NewInt(1), ends.AddDate(-10, 0, 0), ends, true
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// deployment returns the Deployment of config/manager.
func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	text, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{}
	if err := yaml.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (s *checkedCluster) certificates(t *testing.T) {
	data, err := certificateOf(s.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	served := data[corev1.TLSCertKey]
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: "butler-ipam-webhook-tls"}, Data: data}
	suite.Create(t, s.client, deployment(t))
	if c := s.finds(t, nil); !slices.ContainsFunc(c.NotChecked, func(line string) bool { return strings.Contains(line, "there is no Secret butler-ipam-webhook-tls") }) {
		t.Errorf("without the Secret: not checked %q", c.NotChecked)
	}
	suite.Create(t, s.client, secret)
	if c := s.finds(t, nil); len(c.NotChecked) > 0 {
		t.Errorf("not checked: %q", c.NotChecked)
	}
	a, years := newAuthority(t, time.Now().AddDate(5, 0, 0)), time.Now().AddDate(5, 0, 0)
	serve := func(ends time.Time, host string) {
		t.Helper()
		suite.Change(t, s.client, secret, func(secret *corev1.Secret) {
			secret.Data[corev1.TLSCertKey] = a.sign(t, &x509.Certificate{DNSNames: []string{host}}, ends)
		})
	}
	const host = "butler-ipam-webhook." + sandbox.ManagerNamespace + ".svc"
	serve(years, host)
	s.finds(t, nil, "IPAM403") // caBundle contains another authority

	// The managers keep their certificate, because caBundle now contains the two
	// authorities.
	mutating := s.changeBundles(t, a.pem())
	s.finds(t, nil)
	serve(time.Now().AddDate(0, 0, 29), host)
	s.finds(t, nil, "IPAM409")
	serve(time.Now().Add(-time.Minute), host)
	s.finds(t, nil, "IPAM408")
	serve(years, "another.host")
	s.finds(t, nil, "IPAM403")
	suite.Change(t, s.client, secret, func(secret *corev1.Secret) { secret.Data[corev1.TLSCertKey] = served })
	mutating()
	s.finds(t, nil)
	suite.Delete(t, s.client, deployment(t))
}

// changeBundles adds an authority to the caBundle of every webhook, and returns a
// function that removes the authority.
func (s *checkedCluster) changeBundles(t *testing.T, added []byte) (restore func()) {
	t.Helper()
	o := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam"}}
	var before []byte
	suite.Change(t, s.client, o, func(o *admissionregistrationv1.ValidatingWebhookConfiguration) {
		before = o.Webhooks[0].ClientConfig.CABundle
		for n := range o.Webhooks {
			o.Webhooks[n].ClientConfig.CABundle = slices.Concat(before, added)
		}
	})
	restoreMutating := s.changeWebhooks(t, func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
		for n := range all {
			all[n].ClientConfig.CABundle = slices.Concat(before, added)
		}
		return all
	})
	return func() {
		suite.Change(t, s.client, o, func(o *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for n := range o.Webhooks {
				o.Webhooks[n].ClientConfig.CABundle = before
			}
		})
		restoreMutating()
	}
}

func (s *checkedCluster) versions(t *testing.T) {
	pod := func(name, image string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "butler-ipam"}},
			Spec:       corev1.PodSpec{ServiceAccountName: "butler-ipam", Containers: []corev1.Container{{Name: "manager", Image: image}}},
		}
	}
	first, second := pod("first", "butler-ipam:v0.1.0"), pod("second", "butler-ipam:v0.2.0")
	suite.Create(t, s.client, first, second)
	s.finds(t, nil, "IPAM405")
	if r := run(t, s.Kubeconfig(), "check"); r.code != 0 {
		t.Errorf("during a rollout: %s%s", r.stdout, r.stderr)
	}
	for _, p := range []*corev1.Pod{first, second} {
		if err := s.client.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}

	released := filepath.Join(t.TempDir(), "kubectl-ipam")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", released, "-ldflags", "-X main.version=v0.1.3", "../../cmd/kubectl-ipam").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := deployment(t)
	d.Labels["app.kubernetes.io/version"] = "v0.2.0"
	suite.Create(t, s.client, d)
	command := exec.CommandContext(t.Context(), released, "check")
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig())
	out, err := command.Output()
	if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) || ended.ExitCode() != 1 || !strings.Contains(string(out), "WARNING IPAM410 this command is of release v0.1.3, the manager of v0.2.0") {
		t.Errorf("%v: %s", err, out)
	}
	s.found["IPAM410"] = true
	suite.Delete(t, s.client, d)
	s.finds(t, nil)
}

// journal ends the manager and plants defects in the journal.
func (s *checkedCluster) journal(t *testing.T) {
	s.finds(t, append(slices.Clone(installation), "--manager-namespace", s.ns), "IPAM401") // the namespace has no journal
	manager := s.Managers()[0]
	if err := manager.Kill(); err != nil {
		t.Fatal(err)
	}
	<-manager.Exited()
	s.finds(t, installation, "IPAM401", "IPAM406")

	store, err := journal.NewLeaseStore(s.Config(), sandbox.ManagerNamespace, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	store.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	v, err := store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := allocator.ParseRange("10.70.0.90")
	if err != nil {
		t.Fatal(err)
	}
	v.Entries = append(v.Entries, journal.Entry{Token: journal.Token{1}, Ranges: []allocator.Range{r}, Resource: "ipallocations.butler.butlerlabs.dev", Namespace: s.ns, NameHash: 1})
	if _, err := store.Write(t.Context(), v.Next(v.Snapshot)); err != nil {
		t.Fatal(err)
	}
	c := s.finds(t, installation, "IPAM401", "IPAM406", "IPAM413")
	if last := c.Findings[len(c.Findings)-1]; !strings.Contains(last.Message, "10.70.0.90") {
		t.Errorf("%+v", last)
	}

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: journal.LeaseName}}
	const annotation = "butler.butlerlabs.dev/journal"
	for _, text := range []string{"/wA=", "damaged"} { // the first text has the format of a later release
		suite.Change(t, s.client, lease, func(l *coordinationv1.Lease) { l.Annotations[annotation] = text })
		s.finds(t, installation, "IPAM401", "IPAM406", "IPAM411")
	}
	suite.Change(t, s.client, lease, func(l *coordinationv1.Lease) { delete(l.Annotations, annotation) })
	s.finds(t, installation, "IPAM401", "IPAM406", "IPAM412")
}

// objects plants defects in pools and claims while the manager and the webhooks are
// absent.
func (s *checkedCluster) objects(t *testing.T) {
	suite.Delete(t, s.client, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "zz-butler-ipam"}})
	suite.Delete(t, s.client, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam"}})
	args := []string{"--only", "addresses,pools,capacity"}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // wait until the API server no longer calls the deleted webhooks
		return s.client.Create(ctx, networkPool(s.ns, "barrier", "10.200.0.0/24", "barrier"), client.DryRunAll)
	})
	s.finds(t, args)

	plant := planter{t, s}
	var want []string
	for id, p := range map[string]func(planter) []string{
		"IPAM101": planter.twoOwners, "IPAM102": planter.orphan, "IPAM103": planter.poolMissing, "IPAM104": planter.noAddress, "IPAM105": planter.notOffered,
		"IPAM106": planter.lostConflict, "IPAM107": planter.notReady, "IPAM108": planter.stuckDeletion, "IPAM109": planter.tenantMissing,
		"IPAM110": planter.addressObjectMissing, "IPAM111": planter.finalizerMissing, "IPAM201": planter.overlap, "IPAM202": planter.faulty,
		"IPAM203": planter.clusterNetwork, "IPAM204": planter.usedAddress, "IPAM205": planter.poolWaits, "IPAM206": planter.poolFinalizerMissing,
		"IPAM207": planter.movedRecord, "IPAM208": planter.cooldownsFull, "IPAM209": planter.cooldownsUnreadable,
		"IPAM210": planter.statusListFull, "IPAM301": planter.fragmented,
		"IPAM302": planter.full, "IPAM303": planter.onlyReserved, "IPAM304": planter.nearlyFull,
	} {
		for _, name := range p(plant) {
			want = append(want, id+" "+name)
		}
	}
	slices.Sort(want)
	var found checked
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		found = s.check(t, args...)
		var got []string
		for _, f := range found.Findings {
			name := ""
			if len(f.Objects) > 0 {
				name = f.Objects[0].Name
			}
			got = append(got, f.ID+" "+name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("found\n%s\nwant\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), found)
		}
		return nil
	})
	s.followRemedies(t, found.Findings)
	if r := run(t, s.Kubeconfig(), "check", "--only", "pools", "--grace", "0s"); r.code != 1 || !strings.Contains(r.stdout, "ERROR IPAM204 Node worker-3 uses 10.150.0.77, which is free and offered by NetworkPool "+s.ns+"/used\n    -> ") || strings.Contains(r.stdout, "IPAM1") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := run(t, s.Kubeconfig(), "check", "--only", "capacity", "-o", "csv"); r.code != 1 || !strings.Contains(r.stdout, "IPAM302,error,NetworkPool "+s.ns+"/full,") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// followRemedies runs each kubectl command in a remedy. Commands that write run as a dry
// run.
func (s *checkedCluster) followRemedies(t *testing.T, list []finding) {
	t.Helper()
	followed := 0
	for _, f := range list {
		for _, line := range regexp.MustCompile(`kubectl [^,;:]+`).FindAllString(f.Remedy, -1) {
			if strings.Contains(line, "kubectl delete") || strings.Contains(line, "kubectl annotate") {
				line += " --dry-run=server"
			}
			command := exec.CommandContext(t.Context(), "bash", "-c", line)
			command.Env = append(append(os.Environ(), s.KubectlEnv()...), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: remedy %q: %v: %s", f.ID, line, err, out)
			}
			followed++
		}
	}
	if followed < 10 {
		t.Errorf("%d commands in the remedies", followed)
	}
}

// planter plants defects. Each method returns the names of the first objects of the
// expected findings. Each pool has its own routing domain, unless the defect needs a
// shared routing domain.
type planter struct {
	t *testing.T
	*checkedCluster
}

// pool creates a NetworkPool in its own routing domain, and returns the name of the pool.
func (p planter) pool(name, cidr string, change ...func(*butlerv1.NetworkPool)) string {
	p.t.Helper()
	o := networkPool(p.ns, name, cidr, name)
	o.Finalizers = []string{butlerv1.FinalizerNetworkPool}
	for _, c := range change {
		c(o)
	}
	suite.Create(p.t, p.client, o)
	return name
}

// allocation creates an IPAllocation with a finalizer and the condition Ready.
func (p planter) allocation(pool, name, first, last string, change ...func(*butlerv1.IPAllocation)) *butlerv1.IPAllocation {
	p.t.Helper()
	a := suite.Kinds[0].Claim(p.ns, name, "").(*butlerv1.IPAllocation)
	a.Finalizers, a.Spec.PoolRef.Name = []string{butlerv1.FinalizerIPAllocation}, pool
	if first != "" {
		a.Spec.PinnedRange, a.Spec.Count = &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last}, nil
	}
	a.Status.Phase = butlerv1.PhaseAllocated
	a.Status.Conditions = []metav1.Condition{condition(butlerv1.ConditionReady, metav1.ConditionTrue, butlerv1.ReasonAllocated)}
	for _, c := range change {
		c(a)
	}
	status := a.DeepCopy().Status
	suite.Create(p.t, p.client, a)
	if a.Status = status; status.Phase != "" || len(status.Conditions) > 0 {
		p.updateStatus(a)
	}
	return a
}

func (p planter) updateStatus(o client.Object) {
	p.t.Helper()
	if err := p.client.Status().Update(p.t.Context(), o); err != nil {
		p.t.Fatalf("status of %T %s: %v", o, o.GetName(), err)
	}
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: reason, LastTransitionTime: metav1.Now()}
}

// unready removes the status of an allocation.
func unready(a *butlerv1.IPAllocation) { a.Status = butlerv1.IPAllocationStatus{} }

// ipPool creates an IPPool with a finalizer.
func (p planter) ipPool(name, first, last string, annotations map[string]string) string {
	p.t.Helper()
	o := suite.Kinds[1].Pool(p.ns, first, last).(*metal3v1.IPPool)
	o.Name, o.Finalizers, o.Annotations, o.Labels = name, []string{metal3v1.FinalizerIPPool}, annotations, map[string]string{butlerv1.LabelRoutingDomain: name}
	suite.Create(p.t, p.client, o)
	return name
}

// ipClaim creates an IPClaim with a requested address, a finalizer, and the reference to
// an address object in its status.
func (p planter) ipClaim(pool, name, address string, labels map[string]string) *metal3v1.IPClaim {
	p.t.Helper()
	c := suite.Kinds[1].Claim(p.ns, name, address).(*metal3v1.IPClaim)
	c.Spec.Pool.Name, c.Finalizers, c.Labels = pool, []string{metal3v1.FinalizerIPClaim}, labels
	suite.Create(p.t, p.client, c)
	c.Status.Address = &corev1.ObjectReference{Name: pool + "-" + name}
	p.updateStatus(c)
	return c
}

func (p planter) ipAddress(pool, name, claim, address string) {
	p.t.Helper()
	suite.Create(p.t, p.client, &metal3v1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: name},
		Spec:       metal3v1.IPAddressSpec{Address: metal3v1.IP(address), Claim: corev1.ObjectReference{Name: claim}, Pool: corev1.ObjectReference{Name: pool}, Prefix: 24},
	})
}

func (p planter) twoOwners() []string {
	pool := p.pool("twins", "10.100.0.0/24")
	a, b := p.allocation(pool, "a-twin", "10.100.0.4", "10.100.0.7"), p.allocation(pool, "b-twin", "10.100.0.7", "10.100.0.9")
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) && b.UID < a.UID { // the older claim keeps the address; of two claims of equal age, the claim with the smaller UID
		return []string{"a-twin"}
	}
	return []string{"b-twin"}
}

func (p planter) lostConflict() []string {
	pool := p.pool("rivals", "10.101.0.0/24")
	p.allocation(pool, "owner", "10.101.0.4", "10.101.0.7")
	p.allocation(pool, "loser", "10.101.0.7", "10.101.0.9", unready)
	return []string{"loser"}
}

func (p planter) orphan() []string {
	p.ipAddress(p.ipPool("orphans", "10.102.0.1", "10.102.0.20", nil), "orphan", "gone", "10.102.0.4")
	p.ipAddress("orphans", "kept", "_reserved", "10.102.0.5") // an IPAddress that reserves an address
	return []string{"orphan"}
}

func (p planter) poolMissing() []string {
	return []string{p.allocation("missing", "waiting", "", "", unready).Name}
}

func (p planter) noAddress() []string {
	return []string{p.allocation(p.pool("unserved", "10.104.0.0/24"), "unserved", "", "", unready).Name}
}

func (p planter) notOffered() []string {
	return []string{p.allocation(p.pool("elsewhere", "10.105.0.0/24"), "outside", "10.250.0.1", "10.250.0.1", unready).Name}
}

func (p planter) notReady() []string {
	return []string{p.allocation(p.pool("slow", "10.106.0.0/24"), "slow", "10.106.0.1", "10.106.0.1", unready).Name}
}

func (p planter) stuckDeletion() []string {
	a := p.allocation(p.pool("stuck", "10.107.0.0/24"), "stuck", "10.107.0.1", "10.107.0.1")
	if err := p.client.Delete(p.t.Context(), a); err != nil {
		p.t.Fatal(err)
	}
	return []string{a.Name}
}

func (p planter) tenantMissing() []string {
	p.ipPool("tenants", "10.108.0.1", "10.108.0.20", nil)
	p.ipAddress("tenants", "tenants-machine", "machine", "10.108.0.3")
	c := p.ipClaim("tenants", "machine", "10.108.0.3", map[string]string{"cluster.x-k8s.io/cluster-name": "never"})
	a := p.allocation(p.pool("deserted", "10.109.0.0/24"), "deserted", "10.109.0.1", "10.109.0.1", func(a *butlerv1.IPAllocation) {
		a.Status.Conditions = append(a.Status.Conditions, condition(butlerv1.ConditionTenantClusterMissing, metav1.ConditionTrue, butlerv1.ReasonTenantNeverSeen))
	})
	return []string{a.Name, c.Name}
}

func (p planter) addressObjectMissing() []string {
	return []string{p.ipClaim(p.ipPool("bare", "10.110.0.1", "10.110.0.20", nil), "bare", "10.110.0.3", nil).Name}
}

func (p planter) finalizerMissing() []string {
	return []string{p.allocation(p.pool("unkept", "10.111.0.0/24"), "unkept", "10.111.0.1", "10.111.0.1", func(a *butlerv1.IPAllocation) { a.Finalizers = nil }).Name}
}

func (p planter) overlap() []string {
	p.pool("left", "10.112.0.0/24")
	p.pool("right", "10.112.0.128/25", func(p *butlerv1.NetworkPool) { p.Spec.RoutingDomain = "left" })
	return []string{"left"}
}

// faulty creates a pool with overlapping ranges. Only the webhook checks the rule.
func (p planter) faulty() []string {
	return []string{p.pool("faulty", "10.113.0.0/24", func(p *butlerv1.NetworkPool) {
		p.Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.113.0.1", End: "10.113.0.9"}, {Start: "10.113.0.5", End: "10.113.0.12"}}}
	})}
}

func (p planter) inDefaultDomain(o *butlerv1.NetworkPool) { o.Spec.RoutingDomain = "" }

func (p planter) clusterNetwork() []string {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}, Spec: corev1.NodeSpec{PodCIDR: "10.151.0.0/24", PodCIDRs: []string{"10.151.0.0/24"}}}
	suite.Create(p.t, p.client, node)
	reserves := func(o *butlerv1.NetworkPool) { o.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.97.0.0/25"}} }
	onlyRest := func(o *butlerv1.NetworkPool) {
		o.Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.95.255.0", End: "10.95.255.255"}}}
	}
	p.pool("beside", "10.0.0.0/8", p.inDefaultDomain, onlyRest) // the pool offers no address of the cluster network
	return []string{p.pool("pods", "10.151.0.128/25", p.inDefaultDomain), p.pool("services", "10.97.0.0/24", p.inDefaultDomain, reserves)}
}

// usedAddress creates users of free addresses that the manager does not watch: the
// external address of a Node, and the address of a Service whose ProxyVIP is lost.
func (p planter) usedAddress() []string {
	p.pool("used", "10.150.0.0/24", p.inDefaultDomain)
	p.allocation("used", "known", "10.150.0.70", "10.150.0.70")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3"}}
	suite.Create(p.t, p.client, node)
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "worker-3"}, {Type: corev1.NodeInternalIP, Address: "10.150.0.70"}, {Type: corev1.NodeExternalIP, Address: "10.150.0.77"},
		{Type: corev1.NodeInternalIP, Address: "10.150.0.79"},
	}
	p.updateStatus(node)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
	service.Annotations = map[string]string{novaedgev1.AnnotationVIPMode: "L2ARP"}
	suite.Create(p.t, p.client, service)
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.150.0.78"}}
	p.updateStatus(service)
	return []string{"used", "used"}
}

func (p planter) poolWaits() []string {
	p.pool("leaving", "10.116.0.0/24")
	p.allocation("leaving", "staying", "10.116.0.1", "10.116.0.1")
	if err := p.client.Delete(p.t.Context(), networkPool(p.ns, "leaving", "", "")); err != nil {
		p.t.Fatal(err)
	}
	return []string{"leaving"}
}

func (p planter) poolFinalizerMissing() []string {
	p.pool("loose", "10.117.0.0/24", func(p *butlerv1.NetworkPool) { p.Finalizers = nil })
	p.allocation("loose", "loose", "10.117.0.1", "10.117.0.1")
	vips := suite.Kinds[4].Pool(p.ns+"-vips", "10.118.0.1", "10.118.0.9").(*novaedgev1.ProxyIPPool)
	suite.Create(p.t, p.client, vips) // no finding about the finalizer: the pool has no owners
	return []string{"loose"}
}

func (p planter) movedRecord() []string {
	suite.Create(p.t, p.client, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: sandbox.ManagerNamespace, Name: "broken", Labels: map[string]string{poolrecord.LabelMoved: "uid"},
			Annotations: map[string]string{poolrecord.AnnotationMovedPool: "ippools.ipam.metal3.io/" + p.ns + "/tenants"},
		},
		Data: map[string]string{poolrecord.KeyMoved: "[{"},
	})
	return []string{""}
}

func (p planter) cooldownsFull() []string {
	return []string{p.ipPool("crowded", "10.119.0.1", "10.119.0.20", map[string]string{butlerv1.AnnotationReuseDelay: "1h", "example.com/notes": strings.Repeat("x", 250_000)})}
}

func (p planter) cooldownsUnreadable() []string {
	return []string{p.ipPool("garbled", "10.120.0.1", "10.120.0.20", map[string]string{butlerv1.AnnotationCooldown: "[{"})}
}

func (p planter) statusListFull() []string {
	name := p.pool("unlisted", "10.149.0.0/24")
	o := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: name}}
	if err := p.client.Get(p.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		p.t.Fatal(err)
	}
	o.Status.InfrastructureConsumedIPs = 5
	p.updateStatus(o)
	return []string{name}
}

// fragmented creates a pool in which every fourth address is owned.
func (p planter) fragmented() []string {
	p.pool("fragments", "10.121.0.0/28", func(p *butlerv1.NetworkPool) {
		p.Spec.TenantAllocation = &butlerv1.TenantAllocation{Defaults: &butlerv1.AllocationDefaults{NodesPerTenant: 4, LBPoolPerTenant: 3}}
	})
	address := netip.MustParseAddr("10.121.0.0")
	for n := range 16 {
		if n%4 == 3 {
			p.allocation("fragments", fmt.Sprintf("fragment-%d", n), address.String(), address.String())
		}
		address = address.Next()
	}
	return []string{"fragments"}
}

func (p planter) full() []string {
	p.allocation(p.pool("full", "10.122.0.0/30"), "full", "10.122.0.0", "10.122.0.3")
	return []string{"full"}
}

func (p planter) onlyReserved() []string {
	return []string{p.pool("reserved", "10.123.0.0/24", func(p *butlerv1.NetworkPool) { p.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.123.0.0/24"}} })}
}

func (p planter) nearlyFull() []string {
	p.allocation(p.pool("nearly", "10.124.0.0/26"), "nearly", "10.124.0.0", "10.124.0.61")
	return []string{"nearly"}
}

// For a viewer of one namespace, check reports findings about the namespace, and a line
// for each kind that is not checked.
func TestCheck_Viewer(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	waiting := suite.Kinds[0].Claim(ns, "waiting", "").(*butlerv1.IPAllocation)
	waiting.Spec.PoolRef.Name = "missing"
	suite.Create(t, admin, networkPool(ns, "pool", "10.71.0.0/24", ns), waiting)
	viewer := viewerKubeconfig(t, "check-viewer", ns)
	r := run(t, viewer, "check")
	if r.code != 1 || strings.Contains(r.stderr, "warning:") || !strings.Contains(r.stdout, "WARNING IPAM103 IPAllocation "+ns+"/waiting waits for NetworkPool "+ns+"/missing") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	c := decodedFrom[checked](t, viewer, "check")
	for _, want := range []string{
		"ipallocations.butler.butlerlabs.dev outside of namespace " + ns + " (forbidden)", "proxyvips.novaedge.io (forbidden)", "Nodes (forbidden)", "Services (forbidden)",
		"ServiceCIDRs (forbidden)", "records of moved ranges (forbidden)", "the journal (forbidden)", "mutating webhooks (forbidden)", "Pods of the manager (forbidden)", "a create (forbidden)",
	} {
		if !slices.Contains(c.NotChecked, want) {
			t.Errorf("not checked is %q, without %q", c.NotChecked, want)
		}
	}
	if c := decodedFrom[checked](t, viewer, "check", "--only", "capacity"); slices.ContainsFunc(c.NotChecked, func(line string) bool { return !strings.Contains(line, ".") }) {
		t.Errorf("what is not asked for is reported as not checked: %q", c.NotChecked)
	}
}

// The roles in the README of the command are sufficient and necessary. With the viewer
// role and these roles, check omits nothing; if a rule is removed from the roles, check
// lists objects as not checked.
func TestCheck_Roles(t *testing.T) {
	readme, err := os.ReadFile("../../cmd/kubectl-ipam/README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		_, text, _ := strings.Cut(string(readme), "```"+language+"\n")
		text, _, _ = strings.Cut(text, "```")
		return text
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "check-roles.yaml"), []byte(block("yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "bash", "-e", "-c", block("sh")) // the commands bind the roles to the user jane
	command.Env, command.Dir = append(os.Environ(), cluster.KubectlEnv()...), dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ns := suite.CreateNamespace(t, admin)
	kind := suite.Kinds[1]
	claim := kind.Claim(ns, "claim", "")
	claim.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "web"}) // with this label, check reads Clusters
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: "butler-ipam-webhook-tls"}}
	if secret.Data, err = certificateOf(cluster); err != nil {
		t.Fatal(err)
	}
	suite.CreateForTest(t, admin, deployment(t), secret)
	suite.Create(t, admin, networkPool(ns, "pool", "10.72.0.0/24", ns), kind.Pool(ns, "10.73.0.1", "10.73.0.9"), claim)
	path := kubeconfigOf(t, "jane", ns)
	awaitNotChecked := func(rule rbacv1.PolicyRule, some bool) {
		t.Helper()
		suite.Eventually(t, suite.Soon, func(context.Context) error { // the API server observes changed roles with a delay
			if c := decodedFrom[checked](t, path, "check"); len(c.NotChecked) > 0 != some {
				return fmt.Errorf("without %+v: not checked is %q", rule, c.NotChecked)
			}
			return nil
		})
	}
	awaitNotChecked(rbacv1.PolicyRule{}, false)
	clusterRole := suite.Read(t, admin, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam-check"}})
	for n, rule := range clusterRole.DeepCopy().Rules {
		all := clusterRole.DeepCopy().Rules
		suite.Change(t, admin, clusterRole, func(r *rbacv1.ClusterRole) { r.Rules = slices.Delete(r.Rules, n, n+1) })
		awaitNotChecked(rule, true)
		suite.Change(t, admin, clusterRole, func(r *rbacv1.ClusterRole) { r.Rules = all })
	}
	role := suite.Read(t, admin, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: "butler-ipam-check"}})
	for n, rule := range role.DeepCopy().Rules {
		all := role.DeepCopy().Rules
		suite.Change(t, admin, role, func(r *rbacv1.Role) { r.Rules = slices.Delete(r.Rules, n, n+1) })
		awaitNotChecked(rule, true)
		suite.Change(t, admin, role, func(r *rbacv1.Role) { r.Rules = all })
	}
	awaitNotChecked(rbacv1.PolicyRule{}, false)
}

// certificateOf returns the data of a Secret with the certificate that the managers of a
// sandbox serve.
func certificateOf(s *sandbox.Sandbox) (map[string][]byte, error) {
	served, err := os.ReadFile(filepath.Join(s.WebhookCertDir(), "tls.crt"))
	return map[string][]byte{corev1.TLSCertKey: served}, err
}
