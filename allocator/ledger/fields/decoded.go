package fields

// perValue is what a value takes at most of those that a comma stands between, in bytes: the largest element of a list that can be written as "{}"
// has some hundred, and a list that grows is there twice.
const perValue = 256

// Decoded bounds what a JSON text of so many bytes, with so many commas between its values, takes in memory once it is read, in bytes: it may be a
// hundred times as much.
func Decoded(bytes, commas int64) int64 { return 4*bytes + perValue*commas }
