package allocator

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Amount formats a number of addresses for messages: n in digits. An n that saturates at
// MaxInt64 is shown as a power of two, from the exact number: "about 2^64" for an IPv6
// network of prefix length 64.
func Amount(n int64, exact float64) string {
	if n < math.MaxInt64 {
		return strconv.FormatInt(n, 10)
	}
	return About(max(exact, math.MaxInt64))
}

// About formats a number that is too large for digits as a power of two: "about 2^62".
func About(n float64) string {
	return "about 2^" + strconv.FormatFloat(math.Round(10*math.Log2(n))/10, 'f', -1, 64)
}

// AmountOf formats the number of addresses of ranges for messages.
func AmountOf(ranges ...Range) string {
	n, exact := int64(0), 0.0
	for _, r := range ranges {
		for sp := range r.eachSpan {
			n, exact = addSaturating(n, sp.size().int64()), exact+sp.size().float64()
		}
	}
	return Amount(n, exact)
}

// DecimalOf formats the number of addresses of ranges in decimal digits, for programs.
func DecimalOf(ranges ...Range) string {
	sum := new(big.Int)
	for _, r := range ranges {
		for sp := range r.eachSpan {
			sum.Add(sum, sp.size().big())
		}
	}
	return sum.String()
}

// Counted returns a number with its noun in the singular or plural: "1 address", "2
// addresses", "0 claims".
func Counted[N int | int32 | int64](n N, noun string) string {
	return fmt.Sprintf("%d %s", n, Plural(n, noun))
}

// Plural returns a noun in the singular for 1, otherwise in the plural.
func Plural[N int | int32 | int64](n N, noun string) string {
	if strings.HasSuffix(noun, "s") {
		return Agree(n, noun, noun+"es")
	}
	return Agree(n, noun, noun+"s")
}

// Agree returns the word for one object if n is 1, otherwise the word for several.
func Agree[N int | int32 | int64](n N, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}
