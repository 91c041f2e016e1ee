package inventory

import (
	"cmp"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator/kinds"
)

// KindOf returns the kind of an object: "IPAllocation".
func KindOf(k Key) string { return kinds.NameOf(k) }

// NameOf returns namespace/name of an object; the name of a cluster-scoped object.
func NameOf(k Key) string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// TitleOf returns the kind and the name of an object: "IPClaim ns/web".
func TitleOf(k Key) string { return KindOf(k) + " " + NameOf(k) }

// IsKind reports whether a text names the kind of an object as kubectl does: by kind,
// plural or short name, with or without version and API group. Case does not matter.
func IsKind(k Key, text string) bool {
	plural, group, _ := strings.Cut(k.Resource, ".")
	name, suffix, qualified := strings.Cut(strings.ToLower(text), ".")
	if qualified && suffix != group && !strings.HasSuffix(suffix, "."+group) {
		return false
	}
	kind := kinds.ForResource(k.Resource)
	return name == plural || name == strings.ToLower(KindOf(k)) || kind != nil && slices.Contains(kind.ShortNames, name)
}

// IsNamed reports whether a text is NAME, NAMESPACE/NAME, KIND/NAME or
// KIND/NAMESPACE/NAME of an object, see IsKind. Case does not matter.
func IsNamed(k Key, text string) bool {
	return strings.EqualFold(text, k.Name) || strings.EqualFold(text, NameOf(k)) || IsNamedWithKind(k, text)
}

// IsNamedWithKind reports whether a text is KIND/NAME or KIND/NAMESPACE/NAME of an
// object, see IsKind. Case does not matter.
func IsNamedWithKind(k Key, text string) bool {
	kind, name, _ := strings.Cut(text, "/")
	return IsKind(k, kind) && (strings.EqualFold(name, k.Name) || strings.EqualFold(name, NameOf(k)))
}

// ArgumentOf returns an argument that names a pool and no other pool of the Inventory:
// the first of NAMESPACE/NAME and KIND/NAMESPACE/NAME (see IsNamed).
func (i *Inventory) ArgumentOf(pool Key) string {
	arguments := []string{NameOf(pool), KindOf(pool) + "/" + NameOf(pool)}
	for _, argument := range arguments {
		if !slices.ContainsFunc(i.Pools(), func(p *Pool) bool { return p.Key != pool && IsNamed(p.Key, argument) }) {
			return argument
		}
	}
	return arguments[1]
}

// Nearest returns the names that a person may have meant by a text: those within the
// least number of changed characters, of at most two and a third of the text. Case does
// not matter.
func Nearest(text string, names []string) (nearest []string) {
	least := min(2, len([]rune(text))/3)
	for _, name := range names {
		switch changed := distance(strings.ToLower(text), strings.ToLower(name)); {
		case changed < least:
			nearest, least = []string{name}, changed
		case changed == least && changed > 0:
			nearest = append(nearest, name)
		}
	}
	slices.Sort(nearest)
	return slices.Compact(nearest)
}

// distance counts the characters to insert, remove or replace, and the neighbouring
// characters to exchange, that turn a text into another.
func distance(x, y string) int {
	a, b := []rune(x), []rune(y)
	rows := make([][]int, len(a)+1)
	for n := range rows {
		rows[n] = make([]int, len(b)+1)
		rows[n][0] = n
	}
	for m := range rows[0] {
		rows[0][m] = m
	}
	for n := 1; n <= len(a); n++ {
		for m := 1; m <= len(b); m++ {
			replaced := rows[n-1][m-1]
			if a[n-1] != b[m-1] {
				replaced++
			}
			rows[n][m] = min(rows[n-1][m]+1, rows[n][m-1]+1, replaced)
			if n > 1 && m > 1 && a[n-1] == b[m-2] && a[n-2] == b[m-1] {
				rows[n][m] = min(rows[n][m], rows[n-2][m-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// CompareKeys orders objects by resource, namespace and name.
func CompareKeys(x, y Key) int {
	return cmp.Or(strings.Compare(x.Resource, y.Resource), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
}
