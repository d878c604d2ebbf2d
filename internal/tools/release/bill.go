package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A bill of materials in CycloneDX's format: https://cyclonedx.org/docs/1.5/json.
type (
	bom struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type    string `json:"type"`
		Ref     string `json:"bom-ref"`
		Name    string `json:"name"`
		Version string `json:"version"`
		Scope   string `json:"scope,omitempty"`
		URL     string `json:"purl"`
	}
)

// part is a module, which is linked into gorun, or is for examples and benchmarks only.
func part(kind, module, version, scope string) component {
	url := "pkg:golang/" + module + "@" + version
	return component{kind, url, module, version, scope, url}
}

// bill writes a bill of all modules that go.mod names, and of Go's standard library. linked are the modules in the
// binaries.
func (r *release) bill(linked map[string]bool) error {
	text, err := r.command(nil, "go", "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		return err
	}
	for _, m := range mod.Replace {
		return fmt.Errorf("go.mod replaces %s: go install refuses such a release", m.Old.Path)
	}
	compiler, err := r.command(nil, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{r.when.Format(time.RFC3339),
		part("application", mod.Module.Path, r.version, "")}}
	compiler, _, _ = strings.Cut(strings.TrimPrefix(compiler, "go"), " ") // experiments follow
	b.Components = append(b.Components, part("library", "std", compiler, "required"))
	for _, m := range mod.Require {
		scope := "optional"
		if linked[m.Path] {
			scope = "required"
		}
		b.Components = append(b.Components, part("library", m.Path, m.Version, scope))
	}
	return writeFile(filepath.Join(r.out, "gorun_"+r.number()+".cdx.json"), func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(b)
	})
}

// modulesOf are the modules that the linker has written into a binary.
func modulesOf(binary string) (paths []string, err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		paths = append(paths, m.Path)
	}
	slices.Sort(paths)
	return paths, nil
}
