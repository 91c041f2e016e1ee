package object

// perValue bounds the memory of one JSON value between two commas, in bytes: the largest
// list element that can be written as "{}" takes some hundred bytes, and a growing list
// is in memory twice.
const perValue = 256

// DecodedBytes bounds the memory of a decoded JSON text with the given numbers of bytes
// and commas: up to a hundred times the text.
func DecodedBytes(bytes, commas int64) int64 { return 4*bytes + perValue*commas }
