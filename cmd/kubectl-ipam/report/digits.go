package report

import (
	"math"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Digits maps the name of a field to the decimal digits of its number, for the numbers of
// a document that exceed the largest int64: the field itself has the largest int64.
type Digits map[string]string

// add adds the digits of a number n that saturates.
func (d *Digits) add(field string, n int64, digits string) {
	if n < math.MaxInt64 {
		return
	}
	if *d == nil {
		*d = Digits{}
	}
	(*d)[field] = digits
}

// DigitsOf returns the digits of the number of addresses of ranges.
func DigitsOf(field string, ranges ...allocator.Range) (d Digits) {
	if n := allocator.Total(ranges); n == math.MaxInt64 {
		d.add(field, n, allocator.DecimalOf(ranges...))
	}
	return d
}

// digitsOfPool returns the digits of the numbers of a pool: those of the named fields, ""
// for a field that the document lacks.
func digitsOfPool(i *inventory.Inventory, pool inventory.Key, size, allocated, free, largest string) (d Digits) {
	u := i.Usage(pool)
	total, owned, available, block := u.Exact.Decimals()
	for _, number := range []struct {
		field  string
		n      int64
		digits string
	}{{size, u.Total, total}, {allocated, u.Allocated, owned}, {free, u.Available, available}, {largest, u.LargestFree, block}} {
		if number.field != "" {
			d.add(number.field, number.n, number.digits)
		}
	}
	return d
}
