// Package backoff tests how often managers repeat writes that the API server denies. It
// counts the managers' calls in the API server's audit log.
package backoff
