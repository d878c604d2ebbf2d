/* The lock, injected failures, counters, random numbers. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

struct lib lib = { .mu = PTHREAD_MUTEX_INITIALIZER, .next_id = 927 };
atomic_bool forked;
_Thread_local bool in_host_function;

static const char *const counter_names[] = {
#define X(n) #n,
	COUNTERS(X)
#undef X
};

/* Takes the lock, if the call may go on. */
CUresult begin(const char *call)
{
	CUresult r;

	if (atomic_load_explicit(&forked, memory_order_relaxed))
		return CUDA_ERROR_NOT_INITIALIZED; /* and the lock may be held for ever */
	if (in_host_function)
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_mutex_lock(&lib.mu);
	r = lib.initialized ? fail_now(call, CUDA_ERROR_UNKNOWN) : CUDA_ERROR_NOT_INITIALIZED;
	return r ? end(r) : CUDA_SUCCESS;
}

CUresult end(CUresult r)
{
	pthread_mutex_unlock(&lib.mu);
	return r;
}

static CUresult failure(struct fail *f, const char *call, CUresult usual)
{
	if (strcmp(f->call, call) || ++f->seen != f->nth)
		return CUDA_SUCCESS;
	if (f->code)
		return (CUresult)f->code;
	if (!strncmp(call, "cuMem", 5) && (strstr(call, "Alloc") || strstr(call, "Create")))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return usual;
}

/* SOFTCUDA_FAIL and softcuda_fail: whether this call of that name is the one that fails. */
CUresult fail_now(const char *call, CUresult usual)
{
	CUresult r = failure(&lib.ordered, call, usual);

	for (unsigned i = 0; !r && i < lib.knobs.fails; i++)
		r = failure(&lib.knobs.fail[i], call, usual);
	return r;
}

EXPORT void softcuda_fail(const char *call, uint64_t nth, uint64_t *seen)
{
	struct fail *f = &lib.ordered;

	pthread_mutex_lock(&lib.mu);
	if (seen)
		*seen = f->seen;
	*f = (struct fail){ .nth = nth };
	if (nth && strlen(call) < sizeof(f->call))
		strcpy(f->call, call);
	pthread_mutex_unlock(&lib.mu);
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* splitmix64 */
uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* For a call that is slow: without the lock. */
void pause_ns(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	if (!ns)
		return;
	pthread_mutex_unlock(&lib.mu);
	while (nanosleep(&t, &t))
		;
	pthread_mutex_lock(&lib.mu);
}

void report(const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "softcuda: %s\n", text);
}

void debug(const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (!lib.knobs.debug)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "softcuda: %s\n", text);
}

static size_t left(char *text, size_t size)
{
	size_t at = 0;

	if (size)
		*text = 0;
	for (int i = 0; i < COUNTERS_NOW; i++)
		if (lib.counters[i])
			at += (size_t)snprintf(at < size ? text + at : NULL, at < size ? size - at : 0, "%s %llu\n",
					       counter_names[i], (unsigned long long)lib.counters[i]);
	return at;
}

/* SOFTCUDA_LEFT: a file that says what there is, as a Go program ends without its destructors. */
static void write_left(void)
{
	char path[300], text[600];
	size_t n = left(text, sizeof(text));
	int fd;

	snprintf(path, sizeof(path), "%s.%d", lib.knobs.left, (int)getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, n) != (ssize_t)n)
		report("SOFTCUDA_LEFT: %s: %m", path);
	if (fd >= 0)
		close(fd);
}

void count(enum counter c, int64_t n)
{
	lib.counters[c] += (uint64_t)n;
	if (lib.knobs.left[0] && c < COUNTERS_NOW && c != C_operations)
		write_left();
}

EXPORT size_t softcuda_left(char *text, size_t size)
{
	size_t n;

	pthread_mutex_lock(&lib.mu);
	n = left(text, size);
	pthread_mutex_unlock(&lib.mu);
	return n;
}

EXPORT uint64_t softcuda_counter(const char *name)
{
	uint64_t v = UINT64_MAX;

	pthread_mutex_lock(&lib.mu);
	for (int i = 0; i < COUNTER_COUNT; i++)
		if (!strcmp(counter_names[i], name))
			v = lib.counters[i];
	pthread_mutex_unlock(&lib.mu);
	return v;
}

/* A child of fork has no engine and may not touch the device. */
static void child_forked(void)
{
	atomic_store(&forked, true);
}

__attribute__((constructor)) static void prepare(void)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&lib.changed, &a);
	pthread_condattr_destroy(&a);
	pthread_atfork(NULL, NULL, child_forked);
}

__attribute__((destructor)) static void say_left(void)
{
	char text[600];

	if (!lib.knobs.leaks || atomic_load(&forked) || !left(text, sizeof(text)))
		return;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		report("left: %s", line);
}
