/* The knobs: environment variables, read by cuInit. README.md describes them. */
#include "base.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static int bad(const char *name, const char *value, const char *want)
{
	report("%s=%s: want %s", name, value, want);
	return -1;
}

/* The whole of text as a number in [lo, hi]. */
static bool number(const char *text, uint64_t lo, uint64_t hi, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &end, 0);
	return !errno && !*end && *out >= lo && *out <= hi;
}

static int number_knob(const char *name, const char *value, uint64_t lo, uint64_t hi, uint64_t *out)
{
	char want[80];

	if (number(value, lo, hi, out))
		return 0;
	snprintf(want, sizeof(want), "a number from %" PRIu64 " to %" PRIu64, lo, hi);
	return bad(name, value, want);
}

static int microseconds_knob(const char *name, const char *value, uint64_t *out)
{
	int err = number_knob(name, value, 0, 10000000, out);

	*out *= 1000;
	return err;
}

static int bool_knob(const char *name, const char *value, bool *out)
{
	uint64_t n;

	if (number_knob(name, value, 0, 1, &n))
		return -1;
	*out = n;
	return 0;
}

/* SOFTCUDA_FAIL=cuMemAlloc:2,copy:17:700 */
static int fail_knob(struct knobs *k, const char *name, const char *value)
{
	char text[600], *at = text, *one;

	if (strlen(value) >= sizeof(text))
		return bad(name, value, "a shorter list");
	strcpy(text, value);
	while ((one = strsep(&at, ","))) {
		struct fail *f = &k->fail[k->fails];
		char *call = strsep(&one, ":"), *nth = strsep(&one, ":");
		uint64_t code = 0;

		if (k->fails == MAX_FAILS || !nth || !*call || strlen(call) >= sizeof(f->call) ||
		    !number(nth, 1, UINT64_MAX, &f->nth) || (one && !number(one, 1, 999, &code)))
			return bad(name, value, "CALL:N or CALL:N:ERROR, up to 16, as cuMemAlloc:2 or copy:17:700");
		strcpy(f->call, call);
		f->code = (int)code;
		k->fails++;
	}
	return 0;
}

/* SOFTCUDA_PCI=0000:00:06.0,0000:41:00.0 */
static int pci_knob(struct knobs *k, const char *name, const char *value)
{
	const char *p = value;

	for (unsigned i = 0; i < MAX_DEVICES; i++) {
		unsigned domain, bus, slot;
		int n = 0;

		if (sscanf(p, "%4x:%2x:%2x.0%n", &domain, &bus, &slot, &n) != 3 || !n || slot > 31)
			break;
		k->pci[i] = domain << 16 | bus << 8 | slot;
		if (!p[n])
			return 0;
		if (p[n] != ',')
			break;
		p += n + 1;
	}
	return bad(name, value, "DOMAIN:BUS:DEVICE.0,…, up to 16, hexadecimal");
}

static int left_knob(struct knobs *k, const char *name, const char *value)
{
	if (value[0] != '/' || strlen(value) >= sizeof(k->left))
		return bad(name, value, "an absolute path of up to 255 bytes");
	strcpy(k->left, value);
	return 0;
}

static int ordering_knob(struct knobs *k, const char *name, const char *value)
{
	uint64_t n;

	if (!number(value, 0, 200, &n) || n % 100)
		return bad(name, value, "0, 100 or 200");
	k->ordering = (unsigned)n;
	return 0;
}

static int set_knob(struct knobs *k, const char *name, const char *value)
{
	const char *n = name + strlen("SOFTCUDA_");
	uint64_t v;

	if (!strcmp(n, "SEED")) {
		k->seeded = true;
		return number_knob(name, value, 0, UINT64_MAX, &k->seed);
	}
	if (!strcmp(n, "DEVICES")) {
		if (number_knob(name, value, 0, MAX_DEVICES, &v))
			return -1;
		k->devices = (unsigned)v;
		return 0;
	}
	if (!strcmp(n, "DELAY"))
		return microseconds_knob(name, value, &k->delay);
	if (!strcmp(n, "SLOW_OPEN"))
		return microseconds_knob(name, value, &k->slow_open);
	if (!strcmp(n, "MEMORY"))
		return number_knob(name, value, GRANULARITY, 1ull << 40, &k->memory);
	if (!strcmp(n, "PCI"))
		return pci_knob(k, name, value);
	if (!strcmp(n, "FAIL"))
		return fail_knob(k, name, value);
	if (!strcmp(n, "ORDERING"))
		return ordering_knob(k, name, value);
	if (!strcmp(n, "VMM"))
		return bool_knob(name, value, &k->vmm);
	if (!strcmp(n, "DMABUF"))
		return bool_knob(name, value, &k->dmabuf);
	if (!strcmp(n, "PEERS"))
		return bool_knob(name, value, &k->peers);
	if (!strcmp(n, "SIGNALS"))
		return bool_knob(name, value, &k->signals);
	if (!strcmp(n, "LEAKS"))
		return bool_knob(name, value, &k->leaks);
	if (!strcmp(n, "LEFT"))
		return left_knob(k, name, value);
	if (!strcmp(n, "DEBUG"))
		return bool_knob(name, value, &k->debug);
	report("%s is no knob of the software GPU (README.md lists them)", name);
	return -1;
}

int knobs_read(struct knobs *k)
{
	bool delayed = getenv("SOFTCUDA_DELAY") != NULL;
	char name[64];

	*k = (struct knobs){
		.devices = 1, .memory = 4ull << 30, .ordering = FLUSH_TO_OWNER, .vmm = true, .dmabuf = true, .peers = true,
	};
	for (unsigned i = 0; i < MAX_DEVICES; i++)
		k->pci[i] = (16 + i) << 8;
	for (char **e = environ; *e; e++) {
		const char *eq = strchr(*e, '=');

		if (strncmp(*e, "SOFTCUDA_", 9) || !eq)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(eq - *e), *e);
		if (set_knob(k, name, eq + 1))
			return -1;
	}
	if (k->seeded && !delayed)
		k->delay = 200000;
	return 0;
}
