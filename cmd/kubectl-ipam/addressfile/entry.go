package addressfile

import (
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

const (
	documentVersion = "kubectl-ipam.butlerlabs.dev/v1"
	documentKind    = "AddressList"
)

// Document is an exported pool as YAML.
type Document struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Items      []Entry `json:"items"`
}

// Entry is a claim or a reservation of an exported pool.
type Entry struct {
	Kind        Kind   `json:"kind"`
	Name        string `json:"name,omitempty"`
	Ranges      string `json:"ranges"` // addresses, ranges or a network, separated by spaces
	Tenant      string `json:"tenant,omitempty"`
	Type        string `json:"type,omitempty"`
	Team        string `json:"team,omitempty"`
	Mode        string `json:"mode,omitempty"`
	Ports       string `json:"ports,omitempty"`
	Description string `json:"description,omitempty"`
}

// entryColumns is the header of an exported CSV file.
var entryColumns = []string{"kind", "name", "ranges", "tenant", "type", "team", "mode", "ports", "description"}

func (e Entry) cells() []string {
	return []string{string(e.Kind), e.Name, e.Ranges, e.Tenant, e.Type, e.Team, e.Mode, e.Ports, e.Description}
}

// WriteCSV writes entries as a CSV file for Read. Cells are guarded (safetext.GuardCell);
// Read returns their values.
func WriteCSV(w io.Writer, entries []Entry) error {
	out := safetext.NewCSVWriter(w)
	if err := out.Write(entryColumns); err != nil {
		return err
	}
	for _, e := range entries {
		if err := out.Write(e.cells()); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// WriteYAML writes entries as a YAML file for Read.
func WriteYAML(w io.Writer, entries []Entry) error {
	text, err := yaml.Marshal(Document{documentVersion, documentKind, append([]Entry{}, entries...)})
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// CleanText returns a description for an Entry: line breaks become \n, because a CSV file
// does not keep \r\n, NUL characters are replaced, because Read denies them, and a
// description of more than MaxCell bytes is cut, because Read denies longer cells.
func CleanText(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "\ufffd").Replace(text)
	if len(text) >= MaxCell { // with room for the prefix of safetext.GuardCell
		text = strings.ToValidUTF8(text[:MaxCell-1-len("…")], "") + "…"
	}
	return text
}
