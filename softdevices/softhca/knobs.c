/* The knobs: environment variables, read when a device is opened. README.md describes them. */
#include "verbs.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

extern char **environ;

static int bad(const char *name, const char *value, const char *want)
{
	fprintf(stderr, "softhca: %s=%s: want %s\n", name, value, want);
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

static int small_knob(const char *name, const char *value, uint64_t lo, uint64_t hi, uint32_t *out)
{
	uint64_t n;

	if (number_knob(name, value, lo, hi, &n))
		return -1;
	*out = (uint32_t)n;
	return 0;
}

static int bool_knob(const char *name, const char *value, bool *out)
{
	uint64_t n;

	if (number_knob(name, value, 0, 1, &n))
		return -1;
	*out = n;
	return 0;
}

/* SOFTHCA_FAIL=read:17,reg:3 */
static int fail_knob(struct knobs *k, const char *name, const char *value)
{
	static const char *const kinds[FAIL_KINDS] = { "send", "write", "read", "atomic", "fin", "reg", "poll" };
	const char *p = value;

	while (*p) {
		const char *comma = strchrnul(p, ','), *colon = memchr(p, ':', (size_t)(comma - p));
		char n[24];
		int i;

		if (!colon || (size_t)(comma - colon) > sizeof(n))
			break;
		for (i = 0; i < FAIL_KINDS; i++)
			if (strlen(kinds[i]) == (size_t)(colon - p) && !strncmp(kinds[i], p, (size_t)(colon - p)))
				break;
		snprintf(n, sizeof(n), "%.*s", (int)(comma - colon - 1), colon + 1);
		if (i == FAIL_KINDS || !number(n, 1, UINT64_MAX, &k->fail[i]))
			break;
		if (!*comma)
			return 0;
		p = comma + 1;
	}
	return bad(name, value, "KIND:N,… with KIND send, write, read, atomic, fin, reg or poll and N from 1");
}

static int scale_knob(struct knobs *k, const char *name, const char *value)
{
	char *end;
	double d = strtod(value, &end);

	if (end == value || *end || !(d > 0 && d <= 1000))
		return bad(name, value, "a factor above 0 and up to 1000");
	k->retry_scale = d;
	return 0;
}

/* SOFTHCA_PKEYS=7fff,8001: hexadecimal, as they are always written */
int knobs_pkeys(struct knobs *k, const char *name, const char *value)
{
	const char *p = value;

	for (k->npkeys = 0; k->npkeys < 16; p++) {
		char *end;
		unsigned long key = isxdigit((unsigned char)*p) ? strtoul(p, &end, 16) : 0;

		if (!(key & 0x7fff) || key > 0xffff)
			break;
		k->pkeys[k->npkeys++] = (uint16_t)key;
		if (!*end)
			return 0;
		if (*end != ',')
			break;
		p = end;
	}
	return bad(name, value, "KEY,…: up to 16 hexadecimal numbers of 16 bits, not 0 or 8000");
}

/* SOFTHCA_DROP_FROM=1,2:1024 */
static int holes_knob(struct knobs *k, const char *name, const char *value)
{
	const char *p = value;

	for (k->nholes = 0; k->nholes < HOLES_MOST; p++) {
		struct hole *hole = &k->holes[k->nholes++];
		uint64_t bytes;
		char *end = NULL, n[24];
		unsigned long subnet = isdigit((unsigned char)*p) ? strtoul(p, &end, 0) : 0x10000;

		if (subnet > 0xffff)
			break;
		*hole = (struct hole){ (uint16_t)subnet, -1 };
		if (*end == ':') {
			p = end + 1;
			end = strchrnul(p, ',');
			snprintf(n, sizeof(n), "%.*s", (int)MIN(end - p, 23), p);
			if (!number(n, 0, INT32_MAX, &bytes))
				break;
			hole->bytes = (int64_t)bytes;
		}
		if (!*end)
			return 0;
		if (*end != ',')
			break;
		p = end;
	}
	return bad(name, value, "SUBNET,… or SUBNET:BYTES,…: up to 8 subnets from 0 to 65535");
}

static int mode_knob(struct knobs *k, const char *name, const char *value)
{
	static const char *const modes[] = { "ib", "roce", "vf", "two_ports", "efa", "mlx5" };

	for (unsigned i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(value, modes[i])) {
			k->mode = (enum mode)i;
			return 0;
		}
	return bad(name, value, "ib, roce, vf, two_ports, efa or mlx5");
}

/* What has no knob's value follows from the mode. */
static void defaults_of_mode(struct knobs *k)
{
	if (k->npkeys)
		return;
	k->npkeys = 1;
	k->pkeys[0] = 0xffff;
	if (k->mode == MODE_VF) { /* a limited member by the first entry; empty ones; and a full member by a late entry */
		k->npkeys = PKEYS_MOST;
		k->pkeys[0] = 0x7fff;
		k->pkeys[20] = 0xffff;
	}
}

static int dir_knob(struct knobs *k, const char *name, const char *value)
{
	if (value[0] != '/' || strlen(value) >= sizeof(k->dir) - 32)
		return bad(name, value, "an absolute path of up to 220 bytes");
	strcpy(k->dir, value);
	return 0;
}

static int set_knob(struct knobs *k, const char *name, const char *value)
{
	const char *n = name + strlen("SOFTHCA_");

	if (!strcmp(n, "DIR"))
		return dir_knob(k, name, value);
	if (!strcmp(n, "MODE"))
		return mode_knob(k, name, value);
	if (!strcmp(n, "SUBNET")) {
		uint32_t subnet = 0;
		int err = small_knob(name, value, 0, 0xffff, &subnet);

		k->subnet = (uint16_t)subnet;
		return err;
	}
	if (!strcmp(n, "SL"))
		return small_knob(name, value, 0, 15, &k->sl);
	if (!strcmp(n, "GID_EX"))
		return bool_knob(name, value, &k->gid_ex);
	if (!strcmp(n, "IFINDEX"))
		return small_knob(name, value, 0, INT32_MAX, &k->ifindex);
	if (!strcmp(n, "SEED")) {
		k->seeded = true;
		return number_knob(name, value, 0, UINT64_MAX, &k->seed);
	}
	if (!strcmp(n, "LIST_DELAY")) {
		int err = number_knob(name, value, 0, 10000000, &k->list_delay);

		k->list_delay *= 1000;
		return err;
	}
	if (!strcmp(n, "FLUSH_DELAY")) {
		int err = number_knob(name, value, 0, 10000000, &k->flush_delay);

		k->flush_delay *= 1000;
		return err;
	}
	if (!strcmp(n, "RNR"))
		return small_knob(name, value, 0, 1000, &k->rnr);
	if (!strcmp(n, "DROP"))
		return small_knob(name, value, 0, 1000, &k->drop);
	if (!strcmp(n, "DROP_ACK"))
		return small_knob(name, value, 0, 1000, &k->drop_ack);
	if (!strcmp(n, "DROP_FROM"))
		return holes_knob(k, name, value);
	if (!strcmp(n, "FAIL"))
		return fail_knob(k, name, value);
	if (!strcmp(n, "TM"))
		return bool_knob(name, value, &k->tm);
	if (!strcmp(n, "MAX_TAGS"))
		return small_knob(name, value, 1, 65536, &k->max_tags);
	if (!strcmp(n, "MAX_OPS"))
		return small_knob(name, value, 1, 65536, &k->max_ops);
	if (!strcmp(n, "MAX_INLINE"))
		return small_knob(name, value, 0, 4096, &k->max_inline);
	if (!strcmp(n, "MAX_MSG"))
		return number_knob(name, value, 1, 1ull << 31, &k->max_msg);
	if (!strcmp(n, "PKEYS"))
		return knobs_pkeys(k, name, value);
	if (!strcmp(n, "MAX_RD"))
		return small_knob(name, value, 1, 128, &k->max_rd);
	if (!strcmp(n, "MAX_QP"))
		return small_knob(name, value, 1, 200000, &k->max_qp);
	if (!strcmp(n, "MEMLOCK"))
		return number_knob(name, value, 0, UINT64_MAX, &k->memlock);
	if (!strcmp(n, "RETRY_SCALE"))
		return scale_knob(k, name, value);
	if (!strcmp(n, "WIRE"))
		return bool_knob(name, value, &k->wire);
	if (!strcmp(n, "READV"))
		return bool_knob(name, value, &k->readv);
	if (!strcmp(n, "DMABUF"))
		return bool_knob(name, value, &k->dmabuf);
	if (!strcmp(n, "PEERMEM")) {
		if (strlen(value) >= sizeof(k->peermem))
			return bad(name, value, "a path of up to 255 bytes");
		strcpy(k->peermem, value);
		return 0;
	}
	if (!strcmp(n, "PAGES"))
		return bool_knob(name, value, &k->pages) || (k->pages && pages_possible()) ? -1 : 0;
	if (!strcmp(n, "DEBUG"))
		return bool_knob(name, value, &k->debug);
	fprintf(stderr, "softhca: %s is no knob of the software HCA (README.md lists them)\n", name);
	return -1;
}

int knobs_read(struct knobs *k)
{
	const char *tmp = getenv("TMPDIR");
	char name[64];

	*k = (struct knobs){
		.tm = true, .max_tags = 1024, .max_ops = 2048, .max_inline = 512, .max_rd = 16, .max_qp = 200000,
		.max_msg = 1ull << 31, .memlock = UINT64_MAX, .retry_scale = 1, .readv = true, .dmabuf = true,
		.gid_ex = true, .sl = SL_ANY, .flush_delay = 200000,
	};
	snprintf(k->dir, sizeof(k->dir), "%s", tmp && tmp[0] == '/' && strlen(tmp) < 220 ? tmp : "/tmp");
	for (char **e = environ; *e; e++) {
		const char *eq = strchr(*e, '=');

		if (strncmp(*e, "SOFTHCA_", 8) || !eq)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(eq - *e), *e);
		if (set_knob(k, name, eq + 1))
			return -1;
	}
	defaults_of_mode(k);
	return 0;
}
