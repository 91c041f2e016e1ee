// Package lifecycle tests how NetworkPools and IPAllocations live: from the create to the release, through restarts of the manager, with
// pools that come late, and with objects that came in around the webhooks. It runs on a real API server and real managers (package
// sandbox), and looks only at what users see: objects, events and metrics.
package lifecycle
