package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	poolName = "pool"
	claim    = `{"poolRef":{"name":"` + poolName + `"},"tenantClusterRef":{"name":"web","namespace":"team-a"},"type":"nodes","count":1}`
)

// subject is a kind of object whose creation is measured.
type subject struct {
	name                       string // in the figures
	apiVersion, kind, resource string
	spec                       string // JSON
	// gives is what stands in the answer to a create; "" where the API server adds
	// nothing.
	gives string
	// copies names the CRD that it is served like, for one that only this program has.
	copies string
	// idle is the path of the mutating webhook that this program has for it; "" for none.
	idle string
	// another is the object that a client writes beside it, status what it writes into it
	// (JSON), to do what an allocator does; see writes.
	another *subject
	status  string
	// hasPool is for claims: they want a pool, become Ready after the answer, and go some
	// time after their deletion.
	hasPool       bool
	clusterScoped bool
}

var (
	plainCR = subject{name: "plain CR", apiVersion: "plain.bench.butlerlabs.dev/v1alpha1", kind: "IPAllocation", resource: "ipallocations", spec: claim,
		copies: "ipallocations.butler.butlerlabs.dev"}
	hookedCR = subject{name: "CR, two webhooks", apiVersion: "hooked.bench.butlerlabs.dev/v1alpha1", kind: "IPAllocation", resource: "ipallocations", spec: claim,
		copies: plainCR.copies, idle: "/mutate", another: &plainCR, status: allocated}
	committedCR = subject{name: "CR, two webhooks and journal", apiVersion: "committed.bench.butlerlabs.dev/v1alpha1", kind: "IPAllocation", resource: "ipallocations",
		spec: claim, copies: plainCR.copies, gives: `"startAddress":"10.`, idle: "/commit", another: &plainCR, status: allocated}
	// Cluster API's kinds, whose CRDs serve several versions: the API server keeps each object in memory once for each of them.
	hookedClaim = subject{name: "IPAddressClaim, two webhooks", apiVersion: "hooked.bench.butlerlabs.dev/v1beta2", kind: "IPAddressClaim", resource: "ipaddressclaims",
		spec: addressClaim.spec, copies: "ipaddressclaims.ipam.cluster.x-k8s.io", idle: hookedCR.idle, another: &plainAddress, status: bound}
	plainAddress = subject{name: "plain IPAddress", apiVersion: "plain.bench.butlerlabs.dev/v1beta2", kind: "IPAddress", resource: "ipaddresses",
		spec:   `{"claimRef":{"name":"claim"},"poolRef":{"apiGroup":"ipam.metal3.io","kind":"IPPool","name":"` + poolName + `"},"address":"10.0.0.1","prefix":16}`,
		copies: "ipaddresses.ipam.cluster.x-k8s.io"}
	service = subject{name: "Service", apiVersion: "v1", kind: "Service", resource: "services", spec: `{"ports":[{"port":80}]}`, gives: `"clusterIP":"10.`}
	alloc   = subject{name: "IPAllocation", apiVersion: "butler.butlerlabs.dev/v1alpha1", kind: "IPAllocation", resource: "ipallocations", spec: claim,
		gives: `"startAddress":"10.`, hasPool: true}
	vip = subject{name: "ProxyVIP", apiVersion: "novaedge.io/v1alpha1", kind: "ProxyVIP", resource: "proxyvips",
		spec: `{"poolRef":{"name":"` + poolName + `"},"mode":"BGP","ports":[80]}`, gives: `"address":"10.`, hasPool: true, clusterScoped: true}
	ipClaim = subject{name: "IPClaim", apiVersion: "ipam.metal3.io/v1alpha1", kind: "IPClaim", resource: "ipclaims", spec: `{"pool":{"name":"` + poolName + `"}}`,
		gives: `"ipAddress":"10.`, hasPool: true}
	addressClaim = subject{name: "IPAddressClaim", apiVersion: "ipam.cluster.x-k8s.io/v1beta2", kind: "IPAddressClaim", resource: "ipaddressclaims",
		spec: `{"poolRef":{"apiGroup":"ipam.metal3.io","kind":"IPPool","name":"` + poolName + `"}}`, gives: `"ipAddress":"10.`, hasPool: true}
)

func (s subject) group() string {
	group, _, _ := strings.Cut(s.apiVersion, "/")
	return group
}

func (s subject) version() string {
	_, version, _ := strings.Cut(s.apiVersion, "/")
	return version
}

// bodies are n objects as a client sends them.
func (c *collection) bodies(prefix string, n int) [][]byte {
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = c.body(nameOf(prefix, i))
	}
	return bodies
}

func (c *collection) body(name string) []byte {
	namespace := c.namespace
	if c.clusterScoped {
		namespace = ""
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q},"spec":%s}`, c.apiVersion, c.kind, name, namespace, c.spec)
}

func nameOf(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// create sends an object and sees to it that the answer holds what the subject is measured for.
func (c *collection) create(ctx context.Context, body []byte) error {
	_, err := c.created(ctx, body)
	return err
}

// created is the answer to such a create.
func (c *collection) created(ctx context.Context, body []byte) ([]byte, error) {
	var code int
	answer, err := c.raw.Post().AbsPath(c.path()).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).StatusCode(&code).Raw()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, answer) // which has the reason: the client knows no kinds, so none of errors either
	}
	if code != http.StatusCreated || !bytes.Contains(answer, []byte(c.gives)) {
		return nil, fmt.Errorf("create answers %d, and not %s: %s", code, c.gives, answer)
	}
	return answer, nil
}

// allocated is the status of an IPAllocation that has its address.
const allocated = `{"phase":"Allocated","allocatedCount":1,"startAddress":"10.0.0.1","endAddress":"10.0.0.1","addresses":["10.0.0.1"],` +
	`"conditions":[{"type":"Ready","status":"True","reason":"Allocated","message":"10.0.0.1 is owned","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`

// bound is the status of an IPAddressClaim that has its IPAddress.
const bound = `{"addressRef":{"name":"address"},` +
	`"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"10.0.0.1 is owned","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`

// beside is where the other objects go that are written for those of c.
func (c *collection) beside() *collection {
	return &collection{bench: c.bench, subject: *c.another, namespace: c.namespace}
}

// write makes the writes that follow the create of an object, of which this is the answer. The status is put, which costs the API server less than
// a patch.
func (c *collection) write(ctx context.Context, w writes, name string, answer []byte) error {
	if w.object {
		if err := c.beside().create(ctx, c.beside().body(name)); err != nil {
			return err
		}
	}
	if !w.status {
		return nil
	}
	object := map[string]json.RawMessage{}
	if err := json.Unmarshal(answer, &object); err != nil {
		return err
	}
	object["status"] = json.RawMessage(c.status)
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.raw.Put().AbsPath(c.path()+"/"+name+"/status").Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Error()
}

func (c *collection) delete(ctx context.Context, name string) error {
	return c.raw.Delete().AbsPath(c.path() + "/" + name).Do(ctx).Error()
}

// copyCRD serves the subject as what it copies, under its own API group.
func (b *bench) copyCRD(ctx context.Context, s subject) error {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := b.setup.Get(ctx, types.NamespacedName{Name: s.copies}, crd); err != nil {
		return err
	}
	copied := &unstructured.Unstructured{Object: map[string]any{"spec": crd.Object["spec"]}}
	copied.SetGroupVersionKind(crd.GroupVersionKind())
	copied.SetName(s.resource + "." + s.group())
	if err := unstructured.SetNestedField(copied.Object, s.group(), "spec", "group"); err != nil {
		return err
	}
	if err := b.setup.Create(ctx, copied); err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) error { return b.tryCreate(ctx, s) })
}

// tryCreate says whether an object of the subject could be created.
func (b *bench) tryCreate(ctx context.Context, s subject) error {
	c := &collection{bench: b, subject: s, namespace: metav1.NamespaceDefault}
	return b.raw.Post().AbsPath(c.path()).Param("dryRun", "All").Body(c.bodies("try", 1)[0]).SetHeader("Content-Type", "application/json").Do(ctx).Error()
}
