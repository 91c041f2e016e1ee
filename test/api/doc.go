// Package api tests the parts of the API that work without the allocator, on a real API
// server. These are the validation rules and their messages, defaults, printed columns,
// objects stored under earlier schemas, the selection of requests that are sent to the
// webhooks, and that the API server accepts every object in config/.
package api
