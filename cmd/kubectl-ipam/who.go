package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/state"
)

// objectItem names an object in the output.
type objectItem struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func newObjectItem(k inventory.Key) *objectItem {
	if k == (inventory.Key{}) {
		return nil
	}
	return &objectItem{Kind: inventory.KindOf(k), Namespace: k.Namespace, Name: k.Name}
}

func (o *objectItem) String() string {
	switch {
	case o == nil:
		return ""
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// segmentItem is a run of addresses with one state and one owner in the output.
type segmentItem struct {
	Range         string        `json:"range"`
	First         string        `json:"first"`
	Last          string        `json:"last"`
	Size          int64         `json:"size"`
	RoutingDomain string        `json:"routingDomain,omitempty"`
	State         string        `json:"state"`
	Owner         *objectItem   `json:"owner,omitempty"`
	Tenant        string        `json:"tenant,omitempty"`
	Purpose       string        `json:"purpose,omitempty"`
	Since         *time.Time    `json:"since,omitempty"` // of the allocation, or of the cooldown
	Until         *time.Time    `json:"until,omitempty"` // of the cooldown
	Rivals        []*objectItem `json:"rivals,omitempty"`
	Pools         []*objectItem `json:"pools,omitempty"`
	ReservedBy    *objectItem   `json:"reservedBy,omitempty"`
	Reservation   string        `json:"reservation,omitempty"`
	Releases      []releaseItem `json:"releases,omitempty"`

	exact allocator.Range
}

// releaseItem is a recorded release in the output.
type releaseItem struct {
	Claim       string     `json:"claim"`
	Tenant      string     `json:"tenant"`
	Range       string     `json:"range"`
	AllocatedAt *time.Time `json:"allocatedAt,omitempty"`
	ReleasedAt  time.Time  `json:"releasedAt"`
	ReusableAt  *time.Time `json:"reusableAt,omitempty"`
}

// notOffered is the state of free addresses that no pool offers.
const notOffered = "not offered"

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

func newSegmentItem(i *inventory.Inventory, domain string, g state.Segment) segmentItem {
	item := segmentItem{
		Range: rangeText(g.Range), First: g.Range.First.String(), Last: g.Range.Last.String(), Size: g.Range.Size(), RoutingDomain: domain, State: string(g.State),
		Owner: newObjectItem(g.Owner), Until: optionalTime(g.Until), Since: optionalTime(g.Since), exact: g.Range,
	}
	if c := i.Claim(g.Owner); c != nil {
		item.Tenant, item.Purpose = c.Tenant, string(c.Purpose)
		if g.State == state.SegmentOwned {
			item.Since = optionalTime(c.Since)
		}
	}
	for _, rival := range g.Rivals {
		item.Rivals = append(item.Rivals, newObjectItem(rival))
	}
	return item
}

func newAnswerItem(i *inventory.Inventory, answer inventory.Answer) segmentItem {
	item := newSegmentItem(i, answer.Domain, answer.Segment)
	for _, p := range answer.Pools {
		item.Pools = append(item.Pools, newObjectItem(p.Key))
	}
	if answer.ReservedBy != nil {
		item.ReservedBy, item.Reservation = newObjectItem(answer.ReservedBy.Key), answer.Reservation
	}
	if item.State == string(state.SegmentFree) && len(item.Pools) == 0 {
		item.State = notOffered
	}
	for _, r := range answer.Releases {
		item.Releases = append(item.Releases, releaseItem{
			r.Claim, r.Tenant, rangeText(r.Range), optionalTime(r.AllocatedAt), r.ReleasedAt.UTC().Truncate(time.Second), optionalTime(r.ReusableAt),
		})
	}
	return item
}

func (a *app) newWho() *cobra.Command {
	var at, log string
	cmd := &cobra.Command{
		Use: "who ADDRESS | RANGE | CIDR | TENANT | KIND/[NAMESPACE/]NAME", Short: "Show who owns an address", Args: cobra.ExactArgs(1),
		Long: `Show who owns an address, in every routing domain, through whichever pool; what is reserved, free, or in cooldown; and the recorded releases.

A range is answered run by run, a tenant (namespace/name) and a claim with all their ranges.

With --at, show instead who owned the addresses at a time, from the AllocationHistories that the manager stores if a retention is set. With --log, from the log of the
manager, which has a line for each allocation and each release, as JSON, with logger "history": give the log of all its replicas, as your log store returns
it. With --log and without --at, show all owners in the log.`,
		Example: `  kubectl ipam who 10.40.1.60
  kubectl ipam who 10.40.1.0/24
  kubectl ipam who 10.40.1.60 --domain red
  kubectl ipam who team-1/web
  kubectl ipam who ipallocation/butler-system/web-nodes -o json
  kubectl ipam who 10.40.1.60 --at 2026-11-24T15:00:00Z
  kubectl ipam who 10.40.1.60 --log manager.log
  kubectl ipam who 10.40.1.60 --log - --at 2026-11-24T15:00:00Z`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if log != "" || at != "" {
				return a.past(cmd.Context(), args[0], log, at)
			}
			i, err := a.load(cmd.Context())
			if err != nil {
				return err
			}
			answers, err := a.answer(i, args[0])
			if err != nil {
				return err
			}
			if a.output != "table" {
				return segmentList("OwnerList", answers, true).print(a)
			}
			for _, item := range answers {
				if err := a.explain(item); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "`time` of the question, in RFC 3339: only the owners at that time")
	cmd.Flags().StringVar(&log, "log", "", "`file` with the log of the manager, - for standard input; without the flag, --at reads AllocationHistories")
	return cmd
}

// answer returns what is known about the addresses that an argument names.
func (a *app) answer(i *inventory.Inventory, argument string) (items []segmentItem, err error) {
	add := func(domain string, r allocator.Range) {
		for _, answer := range i.Who(domain, r) {
			items = append(items, newAnswerItem(i, answer))
		}
	}
	if r, err := allocator.ParseRange(argument); err == nil {
		known := func(s segmentItem) bool { return s.State != notOffered }
		for _, domain := range i.Domains() {
			if !a.inDomain(domain) {
				continue
			}
			before := len(items)
			if add(domain, r); !slices.ContainsFunc(items[before:], known) { // a routing domain that does not use these addresses
				items = items[:before]
			}
		}
		if len(items) == 0 {
			return nil, fmt.Errorf("%s: no pool offers or reserves these addresses%s, and no claim owns them", argument, a.inWhichDomain())
		}
		return items, nil
	}
	found := false
	for _, c := range i.Claims() {
		if a.inDomain(c.Domain) && (c.Tenant == argument || isNamed(c.Key, argument)) {
			found = true
			for _, r := range c.Ranges {
				add(c.Domain, r)
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("%q is no address, range or network, and no tenant (namespace/name) or claim (kind/namespace/name) has this name%s", argument, a.inWhichDomain())
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("%s owns no address: list its claims with kubectl ipam claims", argument)
	}
	return items, nil
}

func (a *app) inWhichDomain() string {
	if a.domainSet {
		return fmt.Sprintf(" in routing domain %q", a.domain)
	}
	return ""
}

// isNamed reports whether a text is kind/namespace/name or kind/name of an object.
func isNamed(k inventory.Key, text string) bool {
	return strings.EqualFold(text, inventory.KindOf(k)+"/"+inventory.NameOf(k)) || strings.EqualFold(text, inventory.KindOf(k)+"/"+k.Name)
}

// explain prints what is known about a run of addresses.
func (a *app) explain(s segmentItem) error {
	var text strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&text, format+"\n", values...) }
	line("%s  %s", s.exact, s.summary())
	for _, rival := range s.Rivals {
		line("  conflict  %s names this address too", rival)
	}
	if s.Tenant != "" {
		line("  tenant    %s", s.Tenant)
	}
	if s.Purpose != "" {
		line("  purpose   %s", s.Purpose)
	}
	if s.State == string(state.SegmentOwned) && s.Since != nil {
		line("  since     %s", s.Since.Format(time.RFC3339))
	}
	for _, p := range s.Pools {
		line("  pool      %s", p)
	}
	line("  domain    %s", cmp.Or(s.RoutingDomain, "(default)"))
	if s.ReservedBy != nil {
		line("  reserved  %s: %s", s.ReservedBy, s.Reservation)
	}
	for _, r := range s.Releases {
		from := ""
		if r.AllocatedAt != nil {
			from = r.AllocatedAt.Format(time.RFC3339) + " "
		}
		line("  before    IPAllocation %s for %s, %s, %sto %s", r.Claim, r.Tenant, r.Range, from, r.ReleasedAt.Format(time.RFC3339))
	}
	_, err := fmt.Fprint(a.out, text.String())
	return err
}

// summary returns the state of a run in a sentence.
func (s segmentItem) summary() string {
	switch state.SegmentState(s.State) {
	case state.SegmentOwned:
		return "owned by " + s.Owner.String()
	case state.SegmentGranted:
		if s.Owner == nil || s.Owner.Name == "" {
			return "granted to a claim that is not stored yet: free within two minutes if its create has failed"
		}
		return "granted to " + s.Owner.String()
	case state.SegmentCooldown:
		text := "in cooldown"
		if s.Until != nil {
			text += " until " + s.Until.Format(time.RFC3339)
		}
		return text
	case state.SegmentMoved:
		return "moved to another cluster with " + s.Owner.String()
	case state.SegmentWithheld:
		return "withheld by an update of " + s.Owner.String()
	}
	return s.State
}

// segmentList is the output of runs of addresses.
func segmentList(kind string, items []segmentItem, domains bool) list[segmentItem] {
	return list[segmentItem]{
		kind: kind, empty: "no addresses", items: items, name: func(s segmentItem) string { return s.Range },
		columns: []column[segmentItem]{
			{"RANGE", false, func(s segmentItem) string { return s.exact.String() }},
			{"SIZE", false, func(s segmentItem) string { return allocator.AmountOf(s.exact) }},
			{"DOMAIN", !domains, func(s segmentItem) string { return s.RoutingDomain }},
			{"STATE", false, func(s segmentItem) string {
				if len(s.Rivals) > 0 {
					return "conflict"
				}
				return s.State
			}},
			{"OWNER", false, func(s segmentItem) string { return s.Owner.String() }},
			{"TENANT", false, func(s segmentItem) string { return s.Tenant }},
			{"PURPOSE", true, func(s segmentItem) string { return s.Purpose }},
			{"SINCE", true, func(s segmentItem) string { return timeText(s.Since) }},
			{"UNTIL", false, func(s segmentItem) string { return timeText(s.Until) }},
		},
	}
}

func timeText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339)
}
