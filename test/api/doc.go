// Package api tests, on a real API server, what the API promises without the allocator: its rules and what they say to people, its
// defaults and columns, that objects of earlier schemas can live on, which requests are sent to the webhooks, and that everything in
// config/ is accepted.
package api
