/* Names of errors. */
#include "base.h"

static const struct {
	int code;
	const char *name, *text;
} results[] = {
	{ 0, "CUDA_SUCCESS", "no error" },
#define X(name, number, text) { number, "CUDA_ERROR_" #name, text },
	RESULTS(X)
#undef X
};

static int find(CUresult r)
{
	for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i].code == (int)r)
			return (int)i;
	return -1;
}

/* Both may be called before cuInit. */
EXPORT CUresult cuGetErrorName(CUresult error, const char **out)
{
	int i = find(error);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = i < 0 ? NULL : results[i].name;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **out)
{
	int i = find(error);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = i < 0 ? NULL : results[i].text;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
