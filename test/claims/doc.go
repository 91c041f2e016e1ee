// Package claims tests the behavior that all kinds of claims share. Each test runs for
// IPAllocation, IPClaim, IPAddressClaim (of both kinds of pools) and ProxyVIP. The
// subjects are create, dry run, exhaustion, exact addresses, conflicts, cooldown,
// restarts, missing pools, deletion of pools, and the correction of a claim that was not
// served.
package claims
