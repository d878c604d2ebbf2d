package sizes

import (
	"errors"

	"github.com/docker/go-units"
)

// largest is below any overflow of the library's, which it does not notice.
const largest = 1 << 50

// Parse reads a size such as 4096, 4K, 4KiB or 1.5M. All units are powers of 1024, as everywhere in this field.
func Parse(text string) (int64, error) {
	n, err := units.RAMInBytes(text)
	if err != nil || n < 0 || n > largest {
		return 0, errors.New("not a size; use for example 4096, 64KiB or 1M")
	}
	return n, nil
}
