// Package journal tests the journal's Lease on a real API server.
package journal
