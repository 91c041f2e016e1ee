package state

import (
	"cmp"
	"slices"
	"time"
)

// The room of the journal is shared by namespaces: one namespace, or several together,
// leave room for every other. Cluster-scoped objects share like a namespace, and so do
// the withheld ranges of pool updates.
//
//	Invariant: the sum of journalUsage.bytes over all accounts == grantBytes
//
// If all others leave the part p of the journal, a namespace may use p*p/4 of the
// journal. So m namespaces that use all they can, one after the other, leave about
// 4/(m+4): the room shrinks, and does not end. With p/4 in place of p*p/4 they would
// leave (3/4)^m, which is nothing for 30 of them. A namespace without open grants gets
// its first one as long as the journal has any room.

// maxShare divides the journal: one namespace alone may use a quarter.
const maxShare = 4

// standbyAccount is the account of the standby grants of an earlier leader, whose
// namespaces are not known. No namespace can have this name.
const standbyAccount = "*"

// usualEntryBytes is the usual size of an open grant in the journal.
const usualEntryBytes = 32

// journalUsage counts the open grants of an account and their bytes in the journal.
type journalUsage struct{ grants, bytes int }

// namespaceDomain identifies the open grants of an account in a routing domain.
type namespaceDomain struct{ account, space string }

// account returns the namespace whose share of the journal a grant uses; "" for a
// cluster-scoped object.
func (g *OpenGrant) account() string {
	if g.IsStandby() {
		return standbyAccount
	}
	return g.Namespace
}

// checkJournalRoom returns why the journal has no room for a grant of size bytes in a
// namespace; the error is a *NotServingError.
func (s *State) checkJournalRoom(namespace string, size int) error {
	used := s.usageByNamespace[namespace]
	left := s.limits.JournalBytes - (s.grantBytes - used.bytes) // by all others
	reason := "the journal is full of open grants"
	switch {
	case used.bytes+size <= s.journalShare(left), used.grants == 0 && size <= min(left, usualEntryBytes):
		return nil
	case size > s.limits.JournalBytes/maxShare:
		reason = "the update removes more ranges than the journal can keep for one namespace: remove them in several updates"
	case used.grants > 0:
		whose := "namespace " + namespace + " has used up its"
		if namespace == "" {
			whose = "cluster-scoped objects have used up their"
		}
		reason = whose + " share of the journal (open grants and withheld ranges): the part of failed creates and failed pool updates is free again after " + s.limits.GrantLife.String()
	}
	return &NotServingError{Reason: reason, RetryAfter: time.Second, NoOtherReplica: true, JournalFull: true}
}

// journalShare returns the bytes that a namespace may use if all others leave this number
// of bytes.
func (s *State) journalShare(left int) int {
	part := float64(left) / float64(s.limits.JournalBytes)
	return int(part * float64(left) / maxShare)
}

// accountGrant adds a grant to the journal's bytes (sign 1), or removes the grant (sign
// -1). The first grant of an account also accounts for the namespace's name; the first
// grant of an account in a routing domain also accounts for the domain's name.
func (s *State) accountGrant(g *OpenGrant, sign int) {
	account := g.account()
	used, in := s.usageByNamespace[account], namespaceDomain{account, g.Space}
	size := g.EncodedSize()
	if used.grants+min(sign, 0) == 0 {
		size += len(account) + 1
	}
	if s.grantsByDomain[in]+min(sign, 0) == 0 {
		size += len(g.Space) + 1
	}
	if s.grantsByDomain[in] += sign; s.grantsByDomain[in] == 0 {
		delete(s.grantsByDomain, in)
	}
	used.grants += sign
	used.bytes += sign * size
	s.grantBytes += sign * size
	if used.grants == 0 {
		delete(s.usageByNamespace, account)
	} else {
		s.usageByNamespace[account] = used
	}
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
func (s *State) JournalShares(most int) (list []JournalShare) {
	for account, used := range s.usageByNamespace {
		if account != standbyAccount {
			list = append(list, JournalShare{account, used.grants, float64(used.bytes) / float64(s.limits.JournalBytes)})
		}
	}
	slices.SortFunc(list, func(x, y JournalShare) int {
		return cmp.Or(cmp.Compare(y.Part, x.Part), cmp.Compare(x.Namespace, y.Namespace))
	})
	return list[:min(len(list), most)]
}
