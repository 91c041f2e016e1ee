package addressfile

import (
	"fmt"
	"io"
	"strings"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// TenantPair is a row of a tenant map: a tenant of a file, and the tenant of the cluster
// that it is.
type TenantPair struct {
	Tenant string // "" for rows without a tenant
	Name   string // namespace/name
}

// Placeholder is the namespace of a TenantPair that a person has not completed.
const Placeholder = "NAMESPACE"

var tenantColumns = []string{"tenant", "namespace/name"}

// ReadTenantMap reads a tenant map: a CSV file with the columns of WriteTenantMap, also
// as Excel saves it.
func ReadTenantMap(r io.Reader) (pairs []TenantPair, err error) {
	data, err := readText(r, false)
	if err != nil {
		return nil, err
	}
	lines, err := readLines(data)
	if err != nil {
		return nil, err
	}
	row := map[string]int{}
	for n, l := range lines {
		cells := append(l.cells, "")
		pair := TenantPair{trimCell(safetext.UnguardCell(cells[0])), trimCell(safetext.UnguardCell(cells[1]))}
		if n == 0 {
			if normalize(pair.Tenant) != normalize(tenantColumns[0]) || normalize(pair.Name) != normalize(tenantColumns[1]) {
				return nil, Fault{Row: l.row, Text: fmt.Sprintf("is no header of a tenant map: write %q", strings.Join(tenantColumns, ","))}
			}
			continue
		}
		if first := row[pair.Tenant]; first > 0 {
			return nil, Fault{Row: l.row, Text: fmt.Sprintf("has the tenant %q of row %d: remove one of them", Shorten(pair.Tenant), first)}
		}
		row[pair.Tenant] = l.row
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

// WriteTenantMap writes a tenant map for ReadTenantMap. Cells are guarded, because
// authors of other tools' objects chose the names.
func WriteTenantMap(w io.Writer, pairs []TenantPair) error {
	rows := [][]string{tenantColumns}
	for _, p := range pairs {
		rows = append(rows, []string{p.Tenant, p.Name})
	}
	return safetext.NewCSVWriter(w).WriteAll(rows)
}

// latin maps letters with accents to letters of names, as NetBox does for slugs.
var latin = strings.NewReplacer(
	"à", "a", "á", "a", "â", "a", "ã", "a", "ä", "a", "å", "a", "ç", "c", "č", "c", "ć", "c", "ď", "d", "è", "e", "é", "e", "ê", "e", "ë", "e", "ě", "e", "ę", "e",
	"ì", "i", "í", "i", "î", "i", "ï", "i", "ł", "l", "ñ", "n", "ń", "n", "ň", "n", "ò", "o", "ó", "o", "ô", "o", "õ", "o", "ö", "o", "ø", "o", "ř", "r", "š", "s", "ś", "s",
	"ß", "ss", "ť", "t", "ù", "u", "ú", "u", "û", "u", "ü", "u", "ů", "u", "ý", "y", "ÿ", "y", "ž", "z", "ź", "z", "ż", "z", "æ", "ae", "œ", "oe",
)

// Slug returns a text as the name of an object: "Acme Corp." becomes acme-corp. The
// result is "" for a text without Latin letters and digits.
func Slug(text string) string {
	words := strings.FieldsFunc(latin.Replace(strings.ToLower(text)), func(r rune) bool { return r == ' ' || r == '-' || r == '_' || r == '.' || r == '/' || r == '\t' })
	for n, word := range words {
		words[n] = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, word)
	}
	return strings.Join(strings.FieldsFunc(strings.Join(words, "-"), func(r rune) bool { return r == '-' }), "-")
}
