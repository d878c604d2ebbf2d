//go:build pmix && linux && cgo

package pmix

// The only file that says import "C". The types are those of the PMIx standard as libpmix.so.2 (versions 3 to 5) has
// them in memory; abi_test.go compares them with the header where that is installed.

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "abi.h"

static struct {
	int (*init)(struct px_proc *, struct px_info *, size_t);
	int (*put)(uint8_t, const char *, struct px_value *);
	int (*commit)(void);
	int (*fence)(const struct px_proc *, size_t, const struct px_info *, size_t);
	int (*get)(const struct px_proc *, const char *, const struct px_info *, size_t, struct px_value **);
	int (*abort)(int, const char *, struct px_proc *, size_t);
	int (*finalize)(const struct px_info *, size_t);
	const char *(*text)(int);
} px;

// px_open returns NULL, or what is wrong.
static const char *px_open(const char *file) {
	void *lib = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
	if (!lib)
		return dlerror();
	struct { const char *name; void **to; } want[] = {
		{"PMIx_Init", (void **)&px.init}, {"PMIx_Put", (void **)&px.put}, {"PMIx_Commit", (void **)&px.commit},
		{"PMIx_Fence", (void **)&px.fence}, {"PMIx_Get", (void **)&px.get}, {"PMIx_Abort", (void **)&px.abort},
		{"PMIx_Finalize", (void **)&px.finalize}, {"PMIx_Error_string", (void **)&px.text},
	};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		if (!(*want[i].to = dlsym(lib, want[i].name)))
			return dlerror();
	return NULL;
}

// px_init makes the library's threads block all signals: they are for Go's threads.
static int px_init(struct px_proc *self) {
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = px.init(self, NULL, 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

static int px_put(const char *key, void *bytes, size_t size) {
	struct px_value v = {.type = PX_BYTES, .data.bytes = {bytes, size}};
	return px.put(PX_GLOBAL, key, &v); // it copies
}

static int px_commit(void) { return px.commit(); }

static int px_fence(void) {
	struct px_info collect = {.key = "pmix.collect", .value = {.type = PX_BOOL, .data.flag = 1}};
	return px.fence(NULL, 0, &collect, 1);
}

static int px_get(const struct px_proc *of, const char *key, struct px_value **v) {
	*v = NULL;
	return px.get(of, key, NULL, 0, v);
}

static void px_free(struct px_value *v) {
	if (v && v->type == PX_BYTES)
		free(v->data.bytes.at);
	free(v);
}

static int px_abort(int code, const char *why) { return px.abort(code, why, NULL, 0); }
static int px_finalize(void) { return px.finalize(NULL, 0); }
static const char *px_text(int rc) { return px.text(rc); }
static uint32_t px_number(const struct px_value *v) { return v->data.number; }
static void *px_at(const struct px_value *v) { return v->data.bytes.at; }
static size_t px_size(const struct px_value *v) { return v->data.bytes.size; }
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Built is true: this program can speak PMIx.
const Built = true

const library = "libpmix.so.2"

// proc names a process of a job.
type proc struct{ p C.struct_px_proc }

// The ranks that stand for all of a job.
const wildcard = C.PX_WILDCARD

const notFound = C.PX_NOT_FOUND

// status is a result of the library that is no success.
type status int

func (s status) Error() string {
	return fmt.Sprintf("%s (%d)", C.GoString(C.px_text(C.int(s))), int(s))
}

func result(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return status(rc)
}

func open() error {
	file := C.CString(library)
	defer C.free(unsafe.Pointer(file))
	if wrong := C.px_open(file); wrong != nil {
		return errors.New(C.GoString(wrong))
	}
	return nil
}

func initialize() (p proc, err error) {
	err = result(C.px_init(&p.p))
	return p, err
}

func (p *proc) rank() int { return int(p.p.rank) }

func (p *proc) namespace() string { return C.GoString(&p.p.nspace[0]) }

// of is another process of the same job.
func (p *proc) of(rank uint32) proc {
	o := *p
	o.p.rank = C.uint32_t(rank)
	return o
}

func put(key string, value []byte) error {
	k, v := C.CString(key), C.CBytes(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(v)
	if err := result(C.px_put(k, v, C.size_t(len(value)))); err != nil {
		return err
	}
	return result(C.px_commit())
}

func fence() error { return result(C.px_fence()) }

// get returns a value of one of two types.
func get(of proc, key string) (bytes []byte, number uint32, err error) {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	var v *C.struct_px_value
	if err := result(C.px_get(&of.p, k, &v)); err != nil {
		return nil, 0, err
	}
	if v == nil {
		return nil, 0, errors.New("libpmix returned no value")
	}
	defer C.px_free(v)
	switch size := C.px_size(v); {
	case v._type == C.PX_UINT32:
		return nil, uint32(C.px_number(v)), nil
	case v._type != C.PX_BYTES:
		return nil, 0, fmt.Errorf("the value is of type %d", int(v._type))
	case size > maxValue:
		return nil, 0, fmt.Errorf("the value has %d bytes", int(size))
	default:
		return C.GoBytes(C.px_at(v), C.int(size)), 0, nil
	}
}

func abort(code int, why string) error {
	w := C.CString(why)
	defer C.free(unsafe.Pointer(w))
	return result(C.px_abort(C.int(code), w))
}

func finalize() error { return result(C.px_finalize()) }
