package gitops

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// What Flux' kstatus and Argo CD's health check say of an object: of one that nobody has
// looked at yet, and of what becomes of it.
func TestHealth(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	says := func(o *unstructured.Unstructured, want ...string) error {
		flux, err := status.Compute(o)
		if err != nil {
			return err
		}
		argo, err := health.GetResourceHealth(o, customization(t))
		if err != nil {
			return err
		}
		return different(want, []string{string(flux.Status), string(argo.Status)})
	}
	becomes := func(o *unstructured.Unstructured, message string, want ...string) {
		t.Helper()
		must(t, eventually(t.Context(), func() error {
			if err := stored.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions"); !strings.Contains(fmt.Sprint(conditions), message) {
				return fmt.Errorf("%s: no %q in %v", o.GetName(), message, conditions)
			}
			return says(o, want...)
		}))
	}
	claims := repository(t, namespace, "pinned", "outside")
	good, bad := claims[0], claims[1]
	for _, o := range claims {
		must(t, stored.Create(t.Context(), o))
		if err := says(o, "InProgress", "Progressing"); err != nil {
			t.Errorf("%s, just created: %v", o.GetName(), err)
		}
		becomes(o, "does not exist", "InProgress", "Progressing")
	}
	if argo, err := health.GetResourceHealth(good, nil); argo != nil || err != nil {
		t.Errorf("Argo CD knows the health of an allocation by itself now (%+v, %v): the README says that it does not", argo, err)
	}
	pool := repository(t, namespace, "pool")[0]
	must(t, stored.Create(t.Context(), pool))
	if err := says(pool, "InProgress", "Progressing"); err != nil {
		t.Errorf("pool, just created: %v", err)
	}
	becomes(pool, "True", "Current", "Healthy")
	becomes(good, "allocated from", "Current", "Healthy")
	becomes(bad, "is outside the pool", "Failed", "Degraded")
}

// Flux knows of the condition Ready alone, which a ProxyVIP does not have: its health is
// for Argo CD.
func TestHealth_ProxyVIPs(t *testing.T) {
	t.Parallel()
	name := newNamespace(t) // a ProxyIPPool has none
	becomes := func(o *unstructured.Unstructured, want, message string) {
		t.Helper()
		must(t, eventually(t.Context(), func() error {
			if err := stored.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			argo, err := health.GetResourceHealth(o, customization(t))
			if err != nil {
				return err
			}
			if string(argo.Status) != want || !strings.Contains(argo.Message, message) {
				return fmt.Errorf("%s: got %s %q, want %s %q", o.GetName(), argo.Status, argo.Message, want, message)
			}
			return nil
		}))
	}
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetAPIVersion("novaedge.io/v1alpha1")
		o.SetKind(kind)
		o.SetName(name)
		return o
	}
	vip := func(name, pool, address string) *unstructured.Unstructured {
		return object("ProxyVIP", name, map[string]any{"mode": "L2ARP", "poolRef": map[string]any{"name": pool}, "address": address, "ports": []any{int64(443)}})
	}
	good, bad := vip(name+"-good", name, "10.9.9.1/32"), vip(name+"-bad", name, "10.9.8.1/32")
	for _, o := range []*unstructured.Unstructured{good, bad} {
		must(t, stored.Create(t.Context(), o))
		becomes(o, "Progressing", "does not exist")
	}
	pool := object("ProxyIPPool", name, map[string]any{"cidrs": []any{"10.9.9.0/24"}})
	must(t, stored.Create(t.Context(), pool))
	becomes(pool, "Healthy", "")
	becomes(good, "Healthy", "10.9.9.1")
	becomes(bad, "Degraded", "outside")
}

// A Kustomization that waits is done when the addresses may be used, and not earlier.
func TestFlux_WaitsForAddresses(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	e := newFlux(t, namespace)
	must(t, e.sync(t.Context(), repository(t, namespace, "allocations")))
	if err := e.healthy(t.Context(), 5*time.Second); err == nil || !strings.Contains(err.Error(), "backend-lb status: 'InProgress'") {
		t.Errorf("got %v, want the wait for what has no pool to time out", err)
	}
	must(t, e.sync(t.Context(), repository(t, namespace, "allocations", "pool")))
	must(t, e.healthy(t.Context(), soon))
	var all v1alpha1.IPAllocationList
	must(t, stored.List(t.Context(), &all, client.InNamespace(namespace)))
	for _, a := range all.Items {
		if !ready(a.Status.Conditions, a.Generation) {
			t.Errorf("%s is not ready: %+v", a.Name, a.Status.Conditions)
		}
	}
}

// luaHealth is a health check in Lua, run as Argo CD runs it.
type luaHealth map[string]string // group_kind -> code

// customization is what config/argocd gives Argo CD.
func customization(t *testing.T) luaHealth {
	t.Helper()
	text, err := os.ReadFile("../../config/argocd/argocd-cm.yaml")
	must(t, err)
	var patch struct{ Data map[string]string }
	must(t, yaml.UnmarshalStrict(text, &patch))
	checks := luaHealth{}
	for key, code := range patch.Data {
		kind, found := strings.CutPrefix(key, "resource.customizations.health.")
		if !found {
			t.Fatalf("%s is no health check", key)
		}
		checks[kind] = code
	}
	return checks
}

func (h luaHealth) GetResourceHealth(o *unstructured.Unstructured) (*health.HealthStatus, error) {
	gvk := o.GroupVersionKind()
	code, found := h[gvk.Group+"_"+gvk.Kind]
	if !found {
		return nil, nil
	}
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	if err := l.CallByParam(lua.P{Fn: l.NewFunction(lua.OpenBase), Protect: true}, lua.LString(lua.BaseLibName)); err != nil {
		return nil, err
	}
	l.SetGlobal("obj", luaValue(l, o.Object))
	if err := l.DoString(code); err != nil {
		return nil, err
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return nil, errors.New("the check returns no table")
	}
	return &health.HealthStatus{
		Status:  health.HealthStatusCode(result.RawGetString("status").String()),
		Message: result.RawGetString("message").String(),
	}, nil
}

func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(l, item))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(luaValue(l, item))
		}
		return table
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	default:
		return lua.LNil
	}
}
