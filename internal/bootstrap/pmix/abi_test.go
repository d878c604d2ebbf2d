package pmix

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Each number and offset of abi.h, compared with the header by the C compiler.
const compare = `
#include <pmix.h>
#include "abi.h"
#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)
SAME(PX_BOOL, PMIX_BOOL);
SAME(PX_UINT32, PMIX_UINT32);
SAME(PX_BYTES, PMIX_BYTE_OBJECT);
SAME(PX_GLOBAL, PMIX_GLOBAL);
SAME(PX_WILDCARD, PMIX_RANK_WILDCARD);
SAME(PX_NOT_FOUND, PMIX_ERR_NOT_FOUND);
SAME(sizeof(struct px_proc), sizeof(pmix_proc_t));
SAME(offsetof(struct px_proc, rank), offsetof(pmix_proc_t, rank));
SAME(sizeof(struct px_value), sizeof(pmix_value_t));
SAME(offsetof(struct px_value, data.number), offsetof(pmix_value_t, data.uint32));
SAME(offsetof(struct px_value, data.flag), offsetof(pmix_value_t, data.flag));
SAME(offsetof(struct px_value, data.bytes.at), offsetof(pmix_value_t, data.bo.bytes));
SAME(offsetof(struct px_value, data.bytes.size), offsetof(pmix_value_t, data.bo.size));
SAME(sizeof(struct px_info), sizeof(pmix_info_t));
SAME(offsetof(struct px_info, flags), offsetof(pmix_info_t, flags));
SAME(offsetof(struct px_info, value), offsetof(pmix_info_t, value));
_Static_assert(sizeof(PMIX_COLLECT_DATA) == sizeof("pmix.collect"), "key");
`

func TestABI(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	headers, _ := filepath.Glob("/usr/lib/*/pmix2/include/pmix.h")
	if len(headers) == 0 {
		t.Skip("the header of libpmix-dev is not installed")
	}
	check := func(text string) ([]byte, error) {
		file := filepath.Join(t.TempDir(), "compare.c")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		include := "-I" + filepath.Dir(headers[0])
		return exec.Command(gcc, "-std=gnu11", "-fsyntax-only", "-I.", include, file).CombinedOutput()
	}
	if out, err := check(compare); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := check(compare + "SAME(PX_BOOL, PMIX_STRING);\n"); err == nil {
		t.Error("a difference is not found")
	}
}
