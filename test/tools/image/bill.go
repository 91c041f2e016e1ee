package main

import (
	"debug/buildinfo"
	"os"
	"path"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// writeBill lists what a binary was made of, as Go has written it into the binary. It has
// no date and no serial number, which would differ each time.
func writeBill(out, binary, name string, digest v1.Hash) (err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	repository, tag := name[:strings.LastIndex(name, ":")], name[strings.LastIndex(name, ":")+1:]
	bill := cdx.NewBOM()
	bill.Metadata = &cdx.Metadata{Component: &cdx.Component{
		Type: cdx.ComponentTypeContainer, Name: repository, Version: tag,
		PackageURL: "pkg:oci/" + path.Base(repository) + "@" + strings.Replace(digest.String(), ":", "%3A", 1) + "?repository_url=" + repository,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: digest.Hex}},
	}}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []cdx.Component{
		{Type: cdx.ComponentTypeApplication, Name: info.Path, Version: tag, PackageURL: "pkg:golang/" + info.Path + "@" + tag},
		{Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion, PackageURL: "pkg:golang/std@" + goVersion},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: "pkg:golang/" + m.Path + "@" + m.Version})
	}
	bill.Components = &components
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
