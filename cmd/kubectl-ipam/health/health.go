package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Severity is the urgency of a Defect.
type Severity string

const (
	SeverityError   Severity = "error"   // a function fails, or an address has two users
	SeverityWarning Severity = "warning" // a function will fail, or a person should check the objects
)

// Defect is a class of findings.
type Defect struct {
	ID       string // stable: an identifier keeps its meaning in later releases
	Severity Severity
	Title    string
}

// Areas of defects: the digit of an identifier after "IPAM".
const (
	AreaAddresses    = "1" // claims and their addresses
	AreaPools        = "2" // pools and networks
	AreaCapacity     = "3"
	AreaInstallation = "4" // leader, webhooks, certificates, versions
)

// Areas maps the name of an area to the area.
var Areas = map[string]string{"addresses": AreaAddresses, "pools": AreaPools, "capacity": AreaCapacity, "installation": AreaInstallation}

// DefaultGrace is the default time after which a temporary state is a defect. The manager
// ends temporary states earlier, also after a failure, with one exception: the leader
// deletes an address object ten minutes after the leader first observed the object
// without its claim.
const DefaultGrace = 10 * time.Minute

// Area returns the area of a defect.
func (d Defect) Area() string { return strings.TrimPrefix(d.ID, "IPAM")[:1] }

// The defects. The README of cmd/kubectl-ipam has a row with the title of each defect.
var (
	TwoOwners            = define("IPAM101", SeverityError, "Two Ready claims name the same address.")
	OrphanAddress        = define("IPAM102", SeverityWarning, "An address object has no claim.")
	PoolMissing          = define("IPAM103", SeverityWarning, "The pool of a claim does not exist.")
	NoAddress            = define("IPAM104", SeverityWarning, "A claim has no address for long.")
	NotOffered           = define("IPAM105", SeverityError, "A claim names addresses that its pool does not give it.")
	LostConflict         = define("IPAM106", SeverityWarning, "A claim names an address that has another owner.")
	NotReady             = define("IPAM107", SeverityWarning, "A claim has its addresses and is not Ready for long.")
	StuckDeletion        = define("IPAM108", SeverityWarning, "A claim is being deleted for long.")
	TenantMissing        = define("IPAM109", SeverityWarning, "A claim is for a tenant that does not exist.")
	AddressObjectMissing = define("IPAM110", SeverityError, "The address object that a claim names is not stored.")
	FinalizerMissing     = define("IPAM111", SeverityWarning, "A claim with addresses lacks its finalizer.")

	Overlap               = define("IPAM201", SeverityWarning, "Two pools of a routing domain offer the same addresses.")
	FaultyPool            = define("IPAM202", SeverityError, "A pool breaks a rule.")
	ClusterNetwork        = define("IPAM203", SeverityError, "A pool offers addresses of the Services or the Pods of the cluster.")
	UsedAddress           = define("IPAM204", SeverityError, "A Node or a Service uses an address that is free and offered, or that a claim of another user owns.")
	PoolWaits             = define("IPAM205", SeverityWarning, "A pool is being deleted while claims own its addresses.")
	PoolFinalizerMissing  = define("IPAM206", SeverityWarning, "A pool whose addresses are owned lacks its finalizer.")
	MovedRecordUnreadable = define("IPAM207", SeverityError, "The record of moved ranges of a pool cannot be read.")
	CooldownsFull         = define("IPAM208", SeverityWarning, "The annotations of a pool leave no room for its cooldown list.")
	CooldownsUnreadable   = define("IPAM209", SeverityWarning, "The cooldown list of a pool cannot be read.")
	StatusListFull        = define("IPAM210", SeverityWarning, "A list in the status of a pool has no room for all its entries.")

	Fragmented   = define("IPAM301", SeverityWarning, "No free block is large enough for the default count of a pool, though enough addresses are free.")
	Full         = define("IPAM302", SeverityError, "A pool is full.")
	OnlyReserved = define("IPAM303", SeverityError, "All addresses of a pool are reserved.")
	NearlyFull   = define("IPAM304", SeverityWarning, "At most 5 % of a pool are free.")

	NoLeader             = define("IPAM401", SeverityError, "No replica renews the journal.")
	WebhookMissing       = define("IPAM402", SeverityError, "A webhook is missing in the webhook configurations.")
	WrongBundle          = define("IPAM403", SeverityError, "The caBundle of a webhook is empty, unreadable, or not that of the certificate.")
	NoEndpoint           = define("IPAM404", SeverityError, "The Service of the webhooks does not exist or has no ready endpoint.")
	ReplicasDiffer       = define("IPAM405", SeverityWarning, "Replicas of several versions run for long.")
	CreateFails          = define("IPAM406", SeverityError, "A create, tried by a dry run, fails or returns no address.")
	ConfigurationMissing = define("IPAM407", SeverityError, "A webhook configuration is missing.")
	CertificateExpired   = define("IPAM408", SeverityError, "A certificate of the webhooks has expired.")
	CertificateExpires   = define("IPAM409", SeverityWarning, "A certificate of the webhooks expires soon.")
	PluginDiffers        = define("IPAM410", SeverityWarning, "This command and the manager are of different releases.")
	JournalUnreadable    = define("IPAM411", SeverityError, "The journal is damaged, or in the format of a newer release.")
	JournalLost          = define("IPAM412", SeverityWarning, "The journal is new although pools or claims are stored: no further address is allocated for two minutes.")
	LeakedGrant          = define("IPAM413", SeverityWarning, "The journal keeps a grant whose object was never stored.")
)

var defects []Defect

func define(id string, s Severity, title string) Defect {
	d := Defect{id, s, title}
	defects = append(defects, d)
	return d
}

// Defects lists all defects by identifier.
func Defects() []Defect { return slices.Clone(defects) }

// Finding is an occurrence of a Defect, with a remedy.
type Finding struct {
	Defect
	Objects []inventory.Key // affected objects; may be empty
	Message string
	Remedy  string

	user string // user of an address in use, with the UID; "" for another defect
}

// Report is the result of a check.
type Report struct {
	Passed     []string // lines about checks without a finding
	Findings   []Finding
	NotChecked []string // lines about omitted checks, with the reason: "Nodes (forbidden)"
}

// newFinding returns a finding with a message formatted from format and values.
func newFinding(d Defect, objects []inventory.Key, remedy, format string, values ...any) Finding {
	return Finding{Defect: d, Objects: objects, Message: fmt.Sprintf(format, values...), Remedy: remedy}
}

// Check returns the defects of pools, claims and addresses. NotChecked lists the
// resources that were not read completely. A temporary state, such as a deletion, is a
// defect after it has lasted for grace.
func Check(i *inventory.Inventory, grace time.Duration) (r Report) {
	unread := i.LeftOut()
	for _, resource := range slices.Sorted(maps.Keys(unread)) {
		what := resource
		if namespace := unread[resource]; namespace != "" {
			what += " outside of namespace " + namespace
		}
		r.NotChecked = append(r.NotChecked, what+" (forbidden)")
	}
	for _, p := range i.Pools() {
		r.Findings = append(r.Findings, checkPool(i, p, grace)...)
	}
	for _, c := range i.Stored() {
		r.Findings = append(r.Findings, checkClaim(i, c, grace)...)
	}
	SortFindings(r.Findings)
	return r
}

// IsDoubtful reports whether a finding may be the result of reads at different times: the
// defect concerns several objects, or an object and its pool. A second read confirms the
// finding, see Confirm.
func (f Finding) IsDoubtful() bool { return f.Area() != AreaInstallation || f.ID == CreateFails.ID }

// Seen identifies the findings of a read.
type Seen map[string]bool

// See returns the Seen of findings about an inventory.
func See(list []Finding, i *inventory.Inventory) Seen {
	seen := Seen{}
	for _, f := range list {
		seen[f.identity(i)] = true
	}
	return seen
}

// Confirm returns the findings of a later read about an inventory that the first read
// shows too: the same defect of the same objects, which have not been created again
// between the reads. Other findings may be the result of reads at different times, such
// as a Service that was read after the creation of its ProxyVIP, and ProxyVIPs that were
// read before.
func (s Seen) Confirm(list []Finding, i *inventory.Inventory) (confirmed []Finding) {
	for _, f := range list {
		if s[f.identity(i)] {
			confirmed = append(confirmed, f)
		}
	}
	return confirmed
}

// identity returns a text that two findings have in common if they are about the same
// defect of the same objects.
func (f Finding) identity(i *inventory.Inventory) string {
	text := f.ID + " " + f.user
	for _, k := range f.Objects {
		text += " " + inventory.TitleOf(k)
		if c := i.Claim(k); c != nil {
			text += " " + c.UID
		} else if p := i.Pool(k); p != nil {
			text += " " + string(p.Object.GetUID())
		}
	}
	return text
}

// SortFindings sorts findings by identifier, object and message.
func SortFindings(list []Finding) {
	slices.SortFunc(list, func(x, y Finding) int {
		return cmp.Or(strings.Compare(x.ID, y.ID), slices.CompareFunc(x.Objects, y.Objects, inventory.CompareKeys), strings.Compare(x.Message, y.Message))
	})
}

// kubectlName returns the arguments of kubectl for an object.
func kubectlName(k inventory.Key) string {
	text := k.Resource + " " + k.Name
	if k.Namespace != "" {
		text = "-n " + k.Namespace + " " + text
	}
	return text
}

func formatRanges(ranges []allocator.Range) string {
	texts := make([]string, len(ranges))
	for n, r := range ranges {
		texts[n] = r.String()
	}
	return strings.Join(texts, ", ")
}
