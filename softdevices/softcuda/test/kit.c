#include "test.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define X(name, symbol, args) int(*name) args;
CALLS(X)
#undef X

const char *side = "A";

static void *lib;
static int peer = -1;
static pid_t child;

void *library(void)
{
	return lib;
}

static void *symbol(const char *name)
{
	void *p = dlsym(lib, name);

	if (!p) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return p;
}

void load(void)
{
	const char *path = getenv("CUDA_LIB");

	lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define X(name, sym, args) *(void **)&name = symbol(#sym);
	CALLS(X)
#undef X
	MUST(cuInit(0));
}

void start(void)
{
	void *ctx;

	load();
	MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cuCtxSetCurrent(ctx));
}

const char *res(int r)
{
	static char texts[8][80];
	static int next;
	char *text = texts[next++ % 8];
	const char *name = "?";

	if (!r)
		return "ok";
	cuGetErrorName(r, &name);
	snprintf(text, sizeof(texts[0]), "%d %s", r, strncmp(name, "CUDA_ERROR_", 11) ? name : name + 11);
	return text;
}

void must(int r, const char *what)
{
	if (!r)
		return;
	fprintf(stderr, "%s: %s -> %s\n", side, what, cuGetErrorName ? res(r) : "?");
	exit(1);
}

bool vmm_make(ptr *p, ptr *handle, size_t size, bool rdma)
{
	struct prop q = { .type = 1, .handle_types = 1, .location_type = 1, .gpu_direct_rdma = rdma };
	struct access a = { .location_type = 1, .flags = 3 };

	return !cuMemCreate(handle, size, &q, 0) && !cuMemAddressReserve(p, size, 0, 0, 0) &&
	       !cuMemMap(*p, size, 0, *handle, 0) && !cuMemSetAccess(*p, size, &a, 1);
}

void two(void)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd)) {
		perror("socketpair");
		exit(1);
	}
	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		side = "B";
	}
	peer = fd[!child];
	close(fd[!!child]);
}

void tell(const void *data, size_t n)
{
	if (send(peer, data, n, MSG_NOSIGNAL) != (ssize_t)n) {
		fprintf(stderr, "%s: the peer has ended\n", side);
		exit(1);
	}
}

bool hear(void *data, size_t n)
{
	return recv(peer, data, n, MSG_WAITALL) == (ssize_t)n;
}

void tell_fd(int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(peer, &m, MSG_NOSIGNAL) != 1)
		exit(1);
}

int hear_fd(void)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	int fd = -1;

	if (recvmsg(peer, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

void join(void)
{
	int status;

	if (child && (waitpid(child, &status, 0) != child || status)) {
		fprintf(stderr, "B ended with status %#x\n", status);
		exit(1);
	}
	child = 0;
}
