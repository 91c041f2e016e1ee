// Package historyrecord encodes and decodes the records of allocations and releases, and
// lists the claims that owned an address at a time.
//
//	stored claim ──▶ NewRecord ──▶ Record.Fields ──▶ line of the manager's log ──▶ ReadLog ──▶ History
//	Records ──▶ AppendRecords ──▶ spec.records of an AllocationHistory ──▶ ReadObject ──▶ NewHistory ──▶ History
//	History ──▶ Owners, of a range at a time
//
// Every function is pure. The input of every function is bounded.
package historyrecord
