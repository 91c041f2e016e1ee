package console

import (
	"fmt"
	"net/http"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// maxAnswers bounds the runs of addresses on the page of a range.
const maxAnswers = 200

// addressPage is the data of the page about an address or about the runs of a range.
type addressPage struct {
	Range   string
	Answers []addressAnswer
	Others  int // number of runs beyond maxAnswers, not on the page
}

// addressAnswer describes a run of addresses in a routing domain.
type addressAnswer struct {
	report.Segment
	Text     string
	Pools    []crumb  // pools that offer addresses of the run
	UsedBy   []string // nodes, machines and Services with an address of the run
	Commands []string
	Claims   []string // manifests of claims of the first address of the run
}

// address serves the page with the owners of an address or of a range.
func (r *request) address() (*answer, error) {
	text := r.value("address")
	of, err := allocator.ParseRange(text)
	if err != nil {
		return nil, badRequest("address: %v", err)
	}
	items := report.WhoAnywhere(r.Inventory, of, nil)
	if len(items) == 0 {
		return nil, &statusError{http.StatusNotFound, fmt.Sprintf("%s: no pool offers or reserves these addresses, and no claim owns them", of)}
	}
	page := addressPage{Range: report.NetworkText(of), Others: max(0, len(items)-maxAnswers)}
	for _, item := range items[:len(items)-page.Others] {
		page.Answers = append(page.Answers, r.newAddressAnswer(item))
	}
	return &answer{template: "address.html", title: page.Range, data: page, also: []format{formatJSON}, document: report.NewList(report.KindOwnerList, items)}, nil
}

func (r *request) newAddressAnswer(item report.Segment) addressAnswer {
	a := addressAnswer{Segment: item, Text: run{Segment: item}.text(), Commands: []string{"kubectl ipam who " + item.Exact.String()}}
	if item.Owner != nil && item.Owner.Name != "" && item.State != string(state.SegmentCooldown) {
		command := "kubectl get " + strings.ToLower(item.Owner.Kind)
		if item.Owner.Namespace != "" {
			command += " -n " + item.Owner.Namespace
		}
		a.Commands = append(a.Commands, command+" "+item.Owner.Name+" -o yaml")
	}
	for _, p := range r.PoolsOffering(item.RoutingDomain, item.Exact) {
		a.Pools = append(a.Pools, crumb{Text: objectName(p.Key), Link: link("/pool", "pool", poolName(p), "in", zoomed(networkFor(item.Exact)))})
		if item.State == "free" && item.ReservedBy == nil && !p.Manual {
			a.Claims = append(a.Claims, p.Kind.FormatExampleClaim(p.Object, item.Exact))
		}
	}
	for _, p := range r.Inventory.Pools() {
		if pool, ok := p.Object.(*butlerv1.NetworkPool); ok && p.Domain == item.RoutingDomain {
			a.UsedBy = append(a.UsedBy, usersOf(pool, item.Exact)...)
		}
	}
	return a
}

// usersOf returns the nodes, machines and Services with an address of a range, from the
// status of a pool. At most someRows are returned.
func usersOf(p *butlerv1.NetworkPool, r allocator.Range) (list []string) {
	for _, used := range p.Status.InfrastructureAllocations {
		address, err := allocator.ParseRange(used.IP)
		if err != nil || !address.Overlaps(r) || len(list) == someRows {
			continue
		}
		text := used.IP + ": "
		switch {
		case used.ServiceRef != nil:
			text += "Service " + used.ServiceRef.Namespace + "/" + used.ServiceRef.Name
		case used.NodeRef != nil:
			text += "Node " + used.NodeRef.Name
		case used.MachineRef != nil:
			text += "Machine " + used.MachineRef.Namespace + "/" + used.MachineRef.Name
		default:
			text += used.Source
		}
		list = append(list, text)
	}
	return list
}
