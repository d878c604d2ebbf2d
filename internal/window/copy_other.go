//go:build !amd64 || race

package window

const copyString = false

func moveString(dst, src []byte) { copy(dst, src) }
