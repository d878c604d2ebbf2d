package program

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// A transport can be built where its headers are, if their version is late enough, whatever else they declare.
func TestTags(t *testing.T) {
	gcc := proc.RequireProgram(t, "gcc", "gcc")
	const libfabric = "#define FI_MAJOR_VERSION 1\n#define FI_MINOR_VERSION %d\n" +
		"#define FI_VERSION(major, minor) ((major) << 16 | (minor))\n#define FI_VERSION_GE(a, b) ((a) >= (b))\n" +
		"typedef int verbs; extern verbs ucx;\n"
	const ucx = "#define UCP_VERSION(major, minor) ((major) << 24 | (minor) << 16)\n" +
		"#define UCP_API_VERSION UCP_VERSION(1, %d)\n"
	for _, c := range []struct {
		headers map[string]string
		want    []string
	}{
		{nil, nil},
		{map[string]string{"infiniband/verbs.h": "int ofi;"}, []string{"verbs"}},
		{map[string]string{"ucp/api/ucp.h": "", "ucp/api/ucp_version.h": fmt.Sprintf(ucx, 12)}, nil},
		{map[string]string{"ucp/api/ucp.h": "", "ucp/api/ucp_version.h": fmt.Sprintf(ucx, 13)}, []string{"ucx"}},
		{map[string]string{"rdma/fi_tagged.h": "", "rdma/fabric.h": fmt.Sprintf(libfabric, 16)}, nil},
		{map[string]string{"rdma/fi_tagged.h": "", "rdma/fabric.h": fmt.Sprintf(libfabric, 17)}, []string{"ofi"}},
	} {
		dir := t.TempDir()
		for name, text := range c.headers {
			path := filepath.Join(dir, name)
			os.MkdirAll(filepath.Dir(path), 0o755)
			os.WriteFile(path, []byte(text), 0o644)
		}
		t.Setenv("CGO_ENABLED", "1")
		t.Setenv("CC", gcc+" -nostdinc -I "+dir)
		if got := Tags(t.Context()); !slices.Equal(got, c.want) {
			t.Errorf("with the headers %q the tags are %q, want %q", c.headers, got, c.want)
		}
	}
}
