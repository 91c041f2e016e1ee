package main

import (
	"fmt"
	"strings"
)

// writeNotes lists the files of the release, and the commits since the previous tag.
func (r *release) writeNotes() error {
	var out strings.Builder
	fmt.Fprintf(&out, "# Butler IPAM %s\n\n", r.version)
	fmt.Fprintf(&out, `| File | Content |
| --- | --- |
| butler-ipam-image.tar | OCI archive of %s:%s for linux/amd64 and linux/arm64 |
| butler-ipam-image.ARCH.cdx.json | bill of materials of the image (CycloneDX) |
| butler-ipam-%s.tgz | Helm chart |
| install.yaml | manifests for kubectl apply --server-side: all APIs, with certificates from cert-manager |
| kubectl-ipam_OS_ARCH | the plugin, with its completion |
| ipam.yaml | manifest of the plugin for krew |
| SHA256SUMS | checksums of all files |

`, r.image, r.version, strings.TrimPrefix(r.version, "v"))
	previous, err := git(r.root, "describe", "--tags", "--abbrev=0", "HEAD^")
	if err != nil { // there is no earlier tag
		out.WriteString("This is the first release.\n")
		return r.write("NOTES.md", out.String())
	}
	changes, err := git(r.root, "log", "--no-merges", "--format=- %s", previous+"..HEAD")
	if err != nil {
		return err
	}
	fmt.Fprintf(&out, "## Changes since %s\n\n%s\n", previous, changes)
	return r.write("NOTES.md", out.String())
}
