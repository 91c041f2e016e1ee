// Package write writes objects and statuses of reconcilers, and classifies failed writes:
// a write based on a stale version fails with the same codes as a write that a webhook
// denies.
package write
