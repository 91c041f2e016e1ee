package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// journalRoom is the room of the journal for open grants. Namespaces share the room: one
// namespace, or several together, leave room for every other. Cluster-scoped objects
// share like a namespace, and so do the withheld ranges of pool updates.
//
// If all others leave the part p of the journal, a namespace may use p*p/4 of the
// journal. So m namespaces that use all they can, one after the other, leave about
// 4/(m+4): the room shrinks, and does not end. With p/4 in place of p*p/4 they would
// leave (3/4)^m, which is nothing for 30 of them. A namespace without open grants gets
// its first one as long as the journal has any room.
//
// Invariant: each entry that was added, and not removed since, is counted once. used is
// the sum of the bytes of all accounts, and an account without entries has none.
type journalRoom struct {
	limits    *Limits
	used      int                     // bytes of all entries
	byAccount map[string]journalUsage // namespace, or standbyAccount -> its entries
	byDomain  map[accountDomain]int   // account and routing domain -> number of entries
}

func newJournalRoom(limits *Limits) journalRoom {
	return journalRoom{limits: limits, byAccount: map[string]journalUsage{}, byDomain: map[accountDomain]int{}}
}

// maxShare divides the journal: one namespace alone may use a quarter.
const maxShare = 4

// standbyAccount is the account of the standby grants of an earlier leader, whose
// namespaces are not known. No namespace can have this name.
const standbyAccount = "*"

// usualEntryBytes is the usual size of an open grant in the journal.
const usualEntryBytes = 32

// journalUsage counts the entries of an account and their bytes in the journal.
type journalUsage struct{ entries, bytes int }

// accountDomain identifies the entries of an account in a routing domain.
type accountDomain struct{ account, routingDomain string }

// accountOf returns the namespace whose share of the journal an entry uses; "" for a
// cluster-scoped object.
func accountOf(e *journal.Entry) string {
	if e.IsStandby() {
		return standbyAccount
	}
	return e.Namespace
}

// add counts the entry of an open grant.
func (j *journalRoom) add(e *journal.Entry) { j.count(e, 1) }

// remove no longer counts an entry. The entry is as it was when it was added.
func (j *journalRoom) remove(e *journal.Entry) { j.count(e, -1) }

// count adds an entry (sign 1), or removes it (sign -1). The first entry of an account
// also counts the namespace's name; the first entry of an account in a routing domain
// also counts the domain's name.
func (j *journalRoom) count(e *journal.Entry, sign int) {
	account := accountOf(e)
	used, in := j.byAccount[account], accountDomain{account, e.RoutingDomain}
	size := e.EncodedSize()
	if used.entries+min(sign, 0) == 0 {
		size += len(account) + 1
	}
	if j.byDomain[in]+min(sign, 0) == 0 {
		size += len(e.RoutingDomain) + 1
	}
	if j.byDomain[in] += sign; j.byDomain[in] == 0 {
		delete(j.byDomain, in)
	}
	used.entries += sign
	used.bytes += sign * size
	j.used += sign * size
	if used.entries == 0 {
		delete(j.byAccount, account)
	} else {
		j.byAccount[account] = used
	}
}

// admit returns why the journal has no room for an entry of size bytes in a namespace:
// nil, or a *NotServingError.
func (j *journalRoom) admit(namespace string, size int) error {
	used := j.byAccount[namespace]
	left := j.limits.JournalBytes - (j.used - used.bytes) // by all others
	reason := "the journal is full of open grants"
	switch {
	case used.bytes+size <= j.share(left), used.entries == 0 && size <= min(left, usualEntryBytes):
		return nil
	case size > j.limits.JournalBytes/maxShare:
		reason = "the update removes more ranges than the journal can keep for one namespace: remove them in several updates"
	case used.entries > 0:
		whose := "namespace " + namespace + " has used up its"
		if namespace == "" {
			whose = "cluster-scoped objects have used up their"
		}
		reason = whose + " share of the journal (open grants and withheld ranges): the part of failed creates and failed pool updates is free again after " + j.limits.GrantLife.String()
	}
	return &NotServingError{Reason: reason, RetryAfter: time.Second, NoOtherReplica: true, JournalFull: true}
}

// share returns the bytes that a namespace may use if all others leave this number of
// bytes.
func (j *journalRoom) share(left int) int {
	part := float64(left) / float64(j.limits.JournalBytes)
	return int(part * float64(left) / maxShare)
}

// isShort reports whether more than half of the journal is used.
func (j *journalRoom) isShort() bool { return j.used > j.limits.JournalBytes/2 }

// check verifies that exactly these entries are counted.
func (j *journalRoom) check(entries []*journal.Entry) error {
	want := newJournalRoom(j.limits)
	for _, e := range entries {
		want.add(e)
	}
	switch {
	case j.used != want.used:
		return fmt.Errorf("entries use %d bytes of the journal, counted %d", want.used, j.used)
	case !maps.Equal(j.byAccount, want.byAccount):
		return fmt.Errorf("accounts use %v of the journal, counted %v", want.byAccount, j.byAccount)
	case !maps.Equal(j.byDomain, want.byDomain):
		return fmt.Errorf("accounts have %v entries in each domain, counted %v", want.byDomain, j.byDomain)
	}
	return nil
}

// JournalShare is the part of the journal that the open grants and withheld ranges of a
// namespace use.
type JournalShare struct {
	Namespace string // "" for cluster-scoped objects
	Grants    int
	Part      float64 // of the room for open grants, from 0 to 1
}

// JournalShares lists the namespaces that use most of the journal, the largest share
// first, at most the given number.
func (s *State) JournalShares(most int) []JournalShare { return s.journalRoom.largestShares(most) }

func (j *journalRoom) largestShares(most int) (list []JournalShare) {
	for account, used := range j.byAccount {
		if account != standbyAccount {
			list = append(list, JournalShare{account, used.entries, float64(used.bytes) / float64(j.limits.JournalBytes)})
		}
	}
	slices.SortFunc(list, func(x, y JournalShare) int {
		return cmp.Or(cmp.Compare(y.Part, x.Part), cmp.Compare(x.Namespace, y.Namespace))
	})
	return list[:min(len(list), most)]
}
