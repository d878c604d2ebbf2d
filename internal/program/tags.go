package program

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
)

// wanted asks a C compiler, as a text that it preprocesses, which optional transports it could build. Its answer has
// the word gorun_tag and a build tag for each of them, and the declarations of headers.
const wanted = `
#if __has_include(<infiniband/verbs.h>)
gorun_tag verbs
#endif
#if __has_include(<ucp/api/ucp.h>) && __has_include(<ucp/api/ucp_version.h>)
#include <ucp/api/ucp_version.h>
#if UCP_API_VERSION >= UCP_VERSION(1, 13)
gorun_tag ucx
#endif
#endif
#if __has_include(<rdma/fi_tagged.h>)
#include <rdma/fabric.h>
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 17))
gorun_tag ofi
#endif
#endif
`

const answer = "gorun_tag"

// Tags returns the build tags of the transports whose headers the C compiler of cgo finds here; nothing where cgo is
// off.
func Tags(ctx context.Context) (tags []string) {
	tool, err := goTool()
	if err != nil {
		return nil
	}
	var env struct{ CC, CGO_ENABLED, GOOS, GOHOSTOS, GOARCH, GOHOSTARCH string }
	out, err := exec.CommandContext(ctx, tool, "env", "-json", "CC", "CGO_ENABLED", "GOOS", "GOHOSTOS", "GOARCH",
		"GOHOSTARCH").Output()
	if err != nil || json.Unmarshal(out, &env) != nil || env.CGO_ENABLED != "1" || env.GOOS != "linux" ||
		env.GOOS != env.GOHOSTOS || env.GOARCH != env.GOHOSTARCH {
		return nil
	}
	cc := strings.Fields(env.CC)
	if len(cc) == 0 {
		return nil
	}
	c := exec.CommandContext(ctx, cc[0], append(cc[1:], "-E", "-P", "-x", "c", "-")...)
	c.Stdin = strings.NewReader(wanted)
	if out, err = c.Output(); err != nil {
		return nil
	}
	words := strings.Fields(string(out))
	for i := range len(words) - 1 {
		if words[i] == answer {
			tags = append(tags, words[i+1])
		}
	}
	return tags
}

// withTags are arguments of go build: these tags, and those of GOFLAGS, which they would replace.
func withTags(ctx context.Context, tool, dir string, tags []string) []string {
	if len(tags) == 0 {
		return nil
	}
	c := exec.CommandContext(ctx, tool, "env", "GOFLAGS")
	c.Dir = dir
	flags, _ := c.Output() // what is wrong with them go build says
	tags = slices.Clone(tags)
	for _, flag := range strings.Fields(string(flags)) {
		if list, ok := strings.CutPrefix("-"+strings.TrimLeft(flag, "-"), "-tags="); ok {
			tags = append(tags, strings.Split(list, ",")...)
		}
	}
	return []string{"-tags", strings.Join(tags, ",")}
}
